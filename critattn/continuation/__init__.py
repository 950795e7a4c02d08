"""Continuation of curves in one parameter: few evaluations, then values, slopes and crossings anywhere.

Nothing here knows what is evaluated. A curve that does not converge is data (`converged` False and a sentence); misuse
raises.
"""

from critattn.continuation.adaptive import GridCurve as GridCurve
from critattn.continuation.adaptive import adaptive_grid as adaptive_grid
from critattn.continuation.curves import Curve as Curve
from critattn.continuation.curves import Curves as Curves
from critattn.continuation.curves import Evaluate as Evaluate
from critattn.continuation.curves import default_tolerance as default_tolerance
from critattn.continuation.spectral import MAX_NODES as MAX_NODES
from critattn.continuation.spectral import ChebyshevCurve as ChebyshevCurve
from critattn.continuation.spectral import continue_curves as continue_curves
from critattn.continuation.spectral import node_counts as node_counts
