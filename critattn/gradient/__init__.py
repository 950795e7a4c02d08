r"""Gradient of a layer: the exact Frobenius norm of its Jacobian in row blocks, and its operator norm matrix-free.

For `x' = a x + b ATT(N(x))` with K = Q = V = I the block of the Jacobian is

    J_ik = a delta_ik I + (b/r_k) [A_ik I + U_ik y_i^T + delta_ik K_i] P_k,      P_k = I - y_k y_k^T,

with the value path A_ik, the key path U_ik and the query path K_i [derived, docs/theory.md section 3]. Its squared norm
follows from inner products alone; no (nd) x (nd) array is ever formed.
"""

from critattn.gradient.frobenius import exact_operations as exact_operations
from critattn.gradient.frobenius import frobenius_norm_squared as frobenius_norm_squared
from critattn.gradient.frobenius import query_profile as query_profile
from critattn.gradient.frobenius import row_profiles as row_profiles
from critattn.gradient.operator import operator_norm as operator_norm
