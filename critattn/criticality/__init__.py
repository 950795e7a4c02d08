"""Critical points of given curves: crossings, their uncertainties, susceptibility, finite-size scaling, collapse.

Nothing here knows where a curve comes from. Everything accepts curves without errors; a search that fails is data
(`converged` False and a sentence), misuse raises.
"""

from critattn.criticality.collapse import Collapse as Collapse
from critattn.criticality.collapse import data_collapse as data_collapse
from critattn.criticality.crossing import Crossings as Crossings
from critattn.criticality.crossing import Threshold as Threshold
from critattn.criticality.crossing import find_crossing as find_crossing
from critattn.criticality.crossing import find_crossings as find_crossings
from critattn.criticality.finite_size import Extrapolation as Extrapolation
from critattn.criticality.finite_size import Susceptibility as Susceptibility
from critattn.criticality.finite_size import finite_size_scaling as finite_size_scaling
from critattn.criticality.finite_size import susceptibility as susceptibility
from critattn.criticality.uncertainty import bootstrap as bootstrap
from critattn.criticality.uncertainty import bootstrap_crossing as bootstrap_crossing
from critattn.criticality.uncertainty import combine as combine
from critattn.criticality.uncertainty import student_interval as student_interval
