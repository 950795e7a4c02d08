"""ALiBi slopes for any number of heads, by the rules that implementations follow, and slopes for wanted distances."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from critattn.errors import DomainError, SpecError

MAX_HEADS = 65_536
MAX_BIAS = 1000.0


def _power_below(heads: int) -> int:
    return 1 << (heads.bit_length() - 1)


def _press(heads: int, bias_max: float) -> np.ndarray:
    """2^(-B k/c), k = 1..c, then every other slope of 2c heads."""
    whole = _power_below(heads)
    rest = np.arange(1, heads - whole + 1)
    return np.exp2(-np.concatenate([bias_max * np.arange(1, whole + 1) / whole, bias_max * (2 * rest - 1) / whole / 2]))


def _mpt(heads: int, bias_max: float) -> np.ndarray:
    """2^(-B k/N) for the next power of two N: the even k first where heads < N."""
    whole = 1 << (heads - 1).bit_length()
    slopes = np.exp2(-np.arange(1, whole + 1) * (bias_max / whole))
    return slopes if whole == heads else np.concatenate([slopes[1::2], slopes[0::2]])[:heads]


def _ggml(heads: int, bias_max: float) -> np.ndarray:
    """Powers of two bases, m0 = 2^(-B/c) and m1 = 2^(-B/(2c))."""
    whole = _power_below(heads)
    first, second = 2.0 ** (-bias_max / whole), 2.0 ** (-bias_max / 2 / whole)
    return np.array([first ** (h + 1) if h < whole else second ** (2 * (h - whole) + 1) for h in range(heads)])


def _naive(heads: int, bias_max: float) -> np.ndarray:
    return np.exp2(-bias_max * np.arange(1, heads + 1) / heads)


RULES: dict[str, Callable[[int, float], np.ndarray]] = {"press": _press, "mpt": _mpt, "ggml": _ggml, "naive": _naive}


def alibi_slopes(heads: int, bias_max: float = 8.0, *, rule: str = "press") -> np.ndarray:
    """Slopes m_h in the order of the heads, which is not sorted where `heads` is no power of two.

    `m_k = 2^(-B k/c)`, k = 1..c, c the largest power of two up to n, then `2^(-B (2k-1)/(2c))`, k = 1..n-c
    [docs/theory.md (15.1), (15.2)]. The rules `press` (the ALiBi paper's code, BLOOM, Baichuan, BERT variants), `mpt`
    (llm-foundry) and `ggml` (llama.cpp) give the same numbers to rounding; `naive` is 2^(-B k/n) for every n, the
    words of the ALiBi paper, which models do not use.

    Args:
        heads: n, the number of heads.
        bias_max: B, the exponent of the last slope; in (0, 1000].
        rule: press, mpt, ggml or naive.

    Returns:
        (heads,) float64, nats a position.

    Raises:
        DomainError: for a number of heads or a bias_max out of range.
        SpecError: for an unknown rule.
    """
    if isinstance(heads, bool) or not isinstance(heads, int | np.integer) or not 1 <= heads <= MAX_HEADS:
        raise DomainError.of("heads", heads, f"a whole number from 1 to {MAX_HEADS}")
    if not 0 < bias_max <= MAX_BIAS:
        raise DomainError.of("bias_max", bias_max, f"in (0, {MAX_BIAS:g}]")
    if rule not in RULES:
        raise SpecError(f"rule {rule!r} is unknown; known: {', '.join(RULES)}")
    return RULES[rule](int(heads), float(bias_max))


def check_slopes(slopes: Sequence[float] | np.ndarray) -> np.ndarray:
    """The slopes as a float64 vector (heads,).

    Raises:
        DomainError: where there are none, or one is not a finite number above 0.
    """
    found = np.atleast_1d(np.asarray(slopes, dtype=np.float64))
    if found.ndim != 1 or not found.size:
        raise DomainError(f"slopes: have the shape {found.shape}; allowed: one number for each head")
    for head, slope in enumerate(found):
        if not (math.isfinite(slope) and slope > 0):
            raise DomainError(f"slopes: head {head} has {slope:g}; allowed: finite numbers above 0")
    return found


def robust_slopes(
    distances: Sequence[float] | np.ndarray, threshold: float, *, log_distance: bool = False
) -> np.ndarray:
    """Slopes that put the blindness distance where it is wanted [docs/theory.md (15.20)].

    `m = -tau/d` for a linear bias, `m = -tau/ln(1 + d)` for a logarithmic one.

    Args:
        distances: the wanted distances, above 0, in positions.
        threshold: tau < 0, in nats; another threshold moves every distance.
        log_distance: the bias is m ln(1 + d).

    Returns:
        (heads,) float64, in nats a position or a unit of ln(1 + d).

    Raises:
        DomainError: for distances or a threshold out of range.
    """
    wanted = np.atleast_1d(np.asarray(distances, dtype=np.float64))
    if not np.all(np.isfinite(wanted) & (wanted > 0)):
        raise DomainError(f"distances = {wanted.tolist()}: must be finite and above 0")
    if not (math.isfinite(threshold) and threshold < 0):
        raise DomainError.of("threshold", threshold, "a finite number below 0")
    return -threshold / (np.log1p(wanted) if log_distance else wanted)
