"""The Jacobian of a row of weights is diagonal plus at most two rank-one terms, for every normaliser."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sympy as sp

from critattn.symbolic_family import ALPHA, P
from critattn.theorems import Grade, Mutant, Statement, Step, Theorem, equal, signs
from critattn.theorems.theorem import Claim

KEYS = 3
LOGITS = sp.symbols("l1:4", positive=True)
# g, u, c, B of a row, one value a key
Parts = tuple[Sequence[Any], Sequence[Any], Sequence[Any], Sequence[Any]]
Form = Callable[[Sequence[Any]], Parts]
ZERO = (0,) * KEYS
PHIS: Mapping[str, Callable[[Any], Any]] = {
    "exp": sp.exp,
    "softplus": lambda x: sp.log(1 + sp.exp(x)),
    "sigmoid": lambda x: 1 / (1 + sp.exp(-x)),
    "x^p": lambda x: x**P,
}


def symbolic(claim: Claim) -> Iterator[Step]:
    """Derivatives of three keys against the form, each normaliser from its definition."""
    yield from _matches("softmax", _shares(sp.exp), claim.softmax(_shares(sp.exp)))
    for name, phi in PHIS.items():
        slopes = [sp.diff(phi(x), x) for x in LOGITS]
        total = sum(phi(x) for x in LOGITS)
        yield from _matches(f"phi/sum phi, phi = {name}", _shares(phi), claim.ratio(_shares(phi), slopes, total))
        raw = [phi(x) for x in LOGITS]
        yield from _matches(f"phi without sum, phi = {name}", raw, (slopes, ZERO, ZERO, ZERO))
    yield from _re_weighting(claim)
    yield from _entmax(claim)


def _shares(phi: Callable[[Any], Any]) -> list[Any]:
    total = sum(phi(x) for x in LOGITS)
    return [phi(x) / total for x in LOGITS]


def _matches(name: str, weights: Sequence[Any], parts: Parts) -> Iterator[Step]:
    """dA_j/dl_k = g_j [j = k] - u_j g_k - c_j B_k, for a key with itself and with another."""
    g, u, c, b = parts
    for j, k, words in ((0, 0, "dA_1/dl_1"), (0, 1, "dA_1/dl_2")):
        form = (g[j] if j == k else 0) - u[j] * g[k] - c[j] * b[k]
        yield equal(f"{name}: {words} = g [j=k] - u g - c B", sp.diff(weights[j], LOGITS[k]), form)


def _re_weighting(claim: Claim) -> Iterator[Step]:
    """ReLU^p over a first stage a(l): two keys survive, the third is below the mean."""
    first = sp.symbols("a1:4", positive=True)
    slopes = sp.symbols("e1:4")
    values = sp.symbols("v1:3", positive=True)
    n = sp.Symbol("n", positive=True)
    # first stage: da_j/dl_k = a_j e_j [j = k] - a_j a_k e_k, e = phi'/phi
    chain = {(j, k): first[j] * slopes[k] * (int(j == k) - first[k]) for j in range(KEYS) for k in range(KEYS)}
    total: Any = sum(v**P for v in values)
    weights = [v**P / total for v in values] + [0]
    h = sum(weight / v for weight, v in zip(weights, values, strict=False))
    parts = claim.re_weighting(weights, values, (first, slopes, n), h)
    for j, k, words in ((0, 0, "itself"), (0, 1, "another survivor"), (0, 2, "a key below the mean")):
        # v = n a - 1 on the survivors
        derivative: Any = sum(sp.diff(weights[j], v) * n * chain[i, k] for i, v in enumerate(values))
        g, u, c, b = parts
        form = (g[j] if j == k else 0) - u[j] * g[k] - c[j] * b[k]
        known = {first[i]: (values[i] + 1) / n for i in range(2)}
        words = f"ReLU^p re-weighting: derivative of a survivor by {words}"
        yield equal(words, derivative.subs(known), sp.sympify(form).subs(known))


def _entmax(claim: Claim) -> Iterator[Step]:
    """alpha-entmax by implicit differentiation of sum_j [(alpha-1) l_j - tau]^(1/(alpha-1)) = 1."""
    weights = sp.symbols("w1:4", positive=True)
    # dA_j = A_j^(2-alpha) (dl_j - dtau/(alpha-1)), and the changes sum to zero
    e = sp.Symbol("e", positive=True)
    x = sp.Symbol("x", positive=True)
    power = sp.diff(x ** (1 / e), x) * e
    yield equal("d[x^(1/e)]/dx = A^(1-e)/e with A = x^(1/e), e = alpha - 1", power, (x ** (1 / e)) ** (1 - e))
    steep = [w ** (2 - ALPHA) for w in weights]
    g, u, _, _ = claim.entmax(weights)
    for j, k, words in ((0, 0, "dA_1/dl_1"), (0, 1, "dA_1/dl_2")):
        threshold = steep[k] / sum(steep)
        derivative = steep[j] * (int(j == k) - threshold)
        yield equal(f"alpha-entmax on the support: {words}", derivative, (g[j] if j == k else 0) - u[j] * g[k])
    yield from signs("alpha-entmax", {"sum of A^(2-alpha) > 0": (sum(steep), "positive")})


def softmax(weights: Sequence[Any]) -> Parts:
    """The row g = A, u = A."""
    return weights, weights, ZERO, ZERO


def ratio(weights: Sequence[Any], slopes: Sequence[Any], total: Any) -> Parts:
    """The row g = phi'/Z, u = A."""
    return [slope / total for slope in slopes], weights, ZERO, ZERO


def re_weighting(weights: Sequence[Any], values: Sequence[Any], stage: tuple[Any, Any, Any], h: Any) -> Parts:
    """The row g = p n a e A/v, u = A, c = p A (1/v - h), B = a e; g and c vanish below the mean."""
    first, slopes, n = stage
    g = [P * n * a * e * w / v for a, e, w, v in zip(first, slopes, weights, values, strict=False)] + [0]
    c = [P * w * (1 / v - h) for w, v in zip(weights, values, strict=False)] + [0]
    return g, weights, c, [a * e for a, e in zip(first, slopes, strict=True)]


def entmax(weights: Sequence[Any]) -> Parts:
    """The row g = A^(2-alpha), u = g/sum g."""
    g = [w ** (2 - ALPHA) for w in weights]
    return g, [one / sum(g) for one in g], ZERO, ZERO


THEOREM = Theorem(
    name="row_jacobians",
    statement=Statement(
        "The Jacobian of a row of weights by its logits is diag(g) - u g^T - c B^T, with g, u, c and B of the table "
        "for softmax, phi over its sum, phi alone, ReLU^p re-weighting and alpha-entmax.",
        r"\frac{\partial A_i}{\partial\ell_i}=\operatorname{diag}(g_i)-u_ig_i^\top-c_iB_i^\top",
    ),
    hypotheses=(
        "a row of three keys, with two survivors for re-weighting: each entry holds two keys and sums over all",
        "phi is differentiable and positive, logits are positive for x^p",
        "re-weighting with some key above the mean, none at it; entmax inside one support",
    ),
    source="[derived, docs/theory.md (3.1)]",
    grade=Grade.IDENTITY,
    claim={"softmax": softmax, "ratio": ratio, "re_weighting": re_weighting, "entmax": entmax},
    symbolic=symbolic,
    mutants=(
        Mutant("softmax without its rank-one term", {"softmax": lambda a: (a, ZERO, ZERO, ZERO)}, "rows sum to one"),
        Mutant(
            "phi'/phi for phi'/Z",
            {"ratio": lambda a, slopes, total: ([s / a_ for s, a_ in zip(slopes, a, strict=True)], a, ZERO, ZERO)},
            "the slope against the sum, not against the share",
        ),
        Mutant(
            "no gradient through the mean",
            {"re_weighting": lambda a, v, stage, h: (*re_weighting(a, v, stage, h)[:2], ZERO, ZERO)},
            "keys below the mean are clipped, yet move the mean",
        ),
        Mutant(
            "entmax with A^(alpha-1)",
            {"entmax": lambda a: entmax([w ** ((ALPHA - 1) / (2 - ALPHA)) for w in a])},
            "right at alpha = 3/2 only",
        ),
    ),
)
