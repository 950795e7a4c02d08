"""Tables of normalisers and of scaling laws, from theory alone."""

import numpy as np
import xarray

from critattn import scaling
from critattn.theory import family as family_theory
from critattn.theory import relu_power, reweighting, simplex, softplus

RHO = 0.3
HEAD_DIM = 64
LAWS = ("constant", "yarn", "llama-4", "mistral-4", "beam", "grok-2", "sqrt-log-n", "lssa")
CRITICAL_RHOS = (0.0, 0.5)
COUNTS = (1e2, 1e4, 1e8)
ENDS = {"gamma": 4.0, "beta": 4.0, "p": 4.0, "p/log n": 2.0, "none": 1.0}
SOFTPLUS_RHOS = (0.1, 0.3, 0.6)
CONTEXTS = (256.0, 1024.0, 8192.0, 65536.0)


def scaling_laws() -> xarray.Dataset:
    """Coefficient gamma(n) of log n of laws of the catalogue with their defaults, |q||k| as each law is meant for.

    Variables `gamma` (law, n), `mark` (law), `critical_gamma` (rho).
    """
    n = np.geomspace(16, 2.0**24, 1201)
    lengths = scaling.Lengths.plain(n - 1, float(HEAD_DIM), keys_seen=n, total_keys=n)
    entries = [scaling.entry(name) for name in LAWS]
    gamma = np.array([scaling.evaluate(one, lengths).gamma for one in entries])
    lines = [scaling.critical_gamma(rho) for rho in CRITICAL_RHOS]
    return xarray.Dataset(
        {
            "gamma": (("law", "n"), gamma),
            "mark": ("law", [one.flags for one in entries]),
            "critical_gamma": ("rho", lines),
        },
        coords={"law": list(LAWS), "n": n, "rho": list(CRITICAL_RHOS), "d": float(HEAD_DIM)},
    )


def family() -> xarray.Dataset:
    """Self weight on the simplex of every normaliser against its own control parameter.

    Variables `self_weight` (member, n, point), `limit` (member, point), `control` (member, point), `control_name` and
    `scale` (member). The exponent of `power` is given in units of log n, in which it has a limit.
    """
    log_n = np.log(COUNTS)[:, None]
    controls, weights, limits, names, scales = [], [], [], [], []
    for name, member in family_theory.MEMBERS.items():
        symbol = "p/log n" if name == "power" else member.control
        # exponents and limits ask for positive values
        control = np.maximum(np.linspace(0, ENDS[symbol], 161), 1e-9)
        given = control * log_n if name == "power" else control
        controls.append(control)
        weights.append(member.self_weight(given, RHO, log_n))
        limits.append(member.limit(control, RHO))
        names.append(symbol)
        scales.append(member.scale)
    return xarray.Dataset(
        {
            "self_weight": (("member", "n", "point"), np.array(weights)),
            "limit": (("member", "point"), np.array(limits)),
            "control": (("member", "point"), np.array(controls)),
            "control_name": ("member", names),
            "scale": ("member", scales),
        },
        coords={"member": list(family_theory.MEMBERS), "n": list(COUNTS), "rho": RHO},
    )


def softplus_entropy() -> xarray.Dataset:
    """Entropy of a row on the simplex over log n, for softplus over its sum and for softmax, with their limits.

    Variables `softmax` (gamma, n) and `softmax_limit` (gamma) at one rho, `softplus` (n) there at gamma = log d, and
    `deficit` (rho_softplus, n) = n (log n - H) with `deficit_limit` (rho_softplus).
    """
    n = np.geomspace(10, 1e12, 221)
    log_n, published = np.log(n), float(np.log(HEAD_DIM))
    gammas = np.array([1.0, float(simplex.critical_gamma(RHO)), published])
    rhos = np.array(SOFTPLUS_RHOS)
    return xarray.Dataset(
        {
            "softmax": (("gamma", "n"), simplex.entropy(gammas[:, None], RHO, log_n) / log_n),
            "softmax_limit": ("gamma", simplex.entropy_fraction_limit(gammas, RHO)),
            "softplus": ("n", softplus.entropy(published, RHO, log_n) / log_n),
            "deficit": (("rho_softplus", "n"), softplus.scaled_entropy_deficit(published, rhos[:, None], log_n)),
            "deficit_limit": ("rho_softplus", softplus.entropy_deficit_limit(rhos)),
        },
        coords={"n": n, "gamma": gammas, "rho_softplus": rhos, "rho": RHO, "d": float(HEAD_DIM)},
    )


def relu_power_weights() -> xarray.Dataset:
    """Mean self weight of ReLU^p re-weighting near the simplex against p, and the p of self weight 1/2.

    Variables `self_weight` (n, p), `critical_p` (n) and `hard_limit`, the weight of a unique maximum at p -> infinity.
    """
    p, gamma = np.geomspace(0.5, 20, 19), float(np.log(HEAD_DIM))
    weights = []
    for log_n in np.log(CONTEXTS):
        rows = reweighting.rows_of(gamma * log_n, RHO, log_n, float(HEAD_DIM), count=16)
        weights.append([rows.self_weight(power) for power in p])
    return xarray.Dataset(
        {
            "self_weight": (("n", "p"), weights),
            "critical_p": ("n", relu_power.critical_p(RHO, np.log(CONTEXTS), HEAD_DIM)),
            "hard_limit": float(relu_power.hard_limit(np.array([1.0, RHO]))[0]),
        },
        coords={"n": list(CONTEXTS), "p": p, "rho": RHO, "d": float(HEAD_DIM)},
    )
