"""What a clamp of the bias and a soft cap of the logits promise: no key underflows, whatever the logits."""

from collections.abc import Callable, Iterator

import sympy as sp
from flint import arb, ctx

from critattn.biases import Alibi, Clamp
from critattn.blindness import certify
from critattn.theorems import (
    Grade,
    Mutant,
    Statement,
    Step,
    Theorem,
    agrees,
    decided,
    enclosed,
    equal,
    grid,
    positive,
    signs,
)
from critattn.theorems.theorem import Claim

# spread G of the logits, threshold -tau > 0, log N, log Z of a row of equal logits, cap z, penalty b
SPREAD, DEPTH, LOG_N, LOG_Z, CAP, B = sp.symbols("spread depth log_n log_z z b", positive=True)
RATIO, SHARE = sp.symbols("w share", positive=True)
Y, X = sp.symbols("y x", real=True)
# e^G = 1 + g; a logit that is u below the largest or above the least possible one, e^u = 1 + v
EXCESS = sp.Symbol("g", positive=True)
V = sp.Symbol("v", nonnegative=True)
FLUSHED, BF16, FP32 = (power * sp.log(2) for power in (126, 134, 150))


def symbolic(claim: Claim) -> Iterator[Step]:
    """The weight of a key between its bounds, and where these meet the threshold."""
    yield from published(claim)
    logits, penalties = sp.symbols("a0:3", real=True), sp.symbols("b0:3", positive=True)
    total = sum(sp.exp(a - b) for a, b in zip(logits, penalties, strict=True))
    relative = sum(sp.exp(a - logits[0] - b) for a, b in zip(logits, penalties, strict=True))
    weight = sp.exp(logits[0] - penalties[0]) / total
    yield equal(
        "p_d = e^(-b_d)/T, T = sum of e^(-b_k) t_k, t_k = e^(a_k - a_d)", weight, sp.exp(-penalties[0]) / relative
    )
    top, low = 1 + EXCESS, 1 / (1 + EXCESS)
    yield from signs(
        "e^-G <= t_k <= e^G, so that T lies between e^-G Z_0 and e^G Z_0",
        {
            "e^G - t_k for t_k = e^(G-u)": (sp.factor(top - top / (1 + V)), "nonnegative"),
            "t_k - e^-G for t_k = e^(u-G)": (sp.factor(low * (1 + V) - low), "nonnegative"),
        },
    )
    yield equal("clamp: the least weight e^(c-G)/N is e^tau at the safe clamp", claim.clamp - SPREAD - LOG_N, -DEPTH)
    cap = claim.cap_spread * CAP
    yield equal("cap: the least weight e^(-b-2z)/Z_0 is e^tau at the visible amount", -claim.room - cap - LOG_Z, -DEPTH)
    yield equal("and the largest, e^(-b+2z)/Z_0, at the blind amount", -claim.blind + cap - LOG_Z, -DEPTH)
    yield equal("without a bias 2z = |tau| at the largest cap", 2 * claim.largest_cap, DEPTH)


def certified(claim: Claim) -> Iterator[Step]:
    """The bounds in rows on whole domains, the published cases, and the numerical theory."""
    # over e^G, so that nothing overflows
    bound = sp.exp((claim.spreads - 1) * SPREAD)
    words = "e^G Z_0 > T with one other key of e^(-b) = w e^(-b_d) and t = e^(G y)"
    box = {"spread": ("1/10", 20), "w": ("1/1000", 10), "y": (-1, 1)}
    yield positive(words, (bound - sp.exp(-SPREAD)) + RATIO * (bound - sp.exp(SPREAD * (Y - 1))), box)
    row = sp.log(SHARE * sp.exp(claim.raised) + (1 - SHARE) * sp.exp(claim.clamp))
    words = (
        "a weight under the safe clamp is above e^tau where a share of the N keys has b = 0 and the others the clamp"
    )
    domain = {"depth": (87, 104), "spread": (0, 40), "log_n": ("7/10", 40), "share": ("1/1000000", "999/1000")}
    yield positive(words, claim.clamp - SPREAD + DEPTH - LOG_N - row, domain)
    words = "z (tanh x - tanh y) < 2z: the spread of capped logits, over z"
    yield positive(words, claim.cap_spread - sp.tanh(X) + sp.tanh(Y), {"x": (-20, 20), "y": (-20, 20)})
    # the row that is worst: the key at -z, all others at z; 1/100 nat before the limit
    own = sp.exp(sp.Rational(1, 100) - claim.room - LOG_Z)
    room = DEPTH - claim.room - 2 * CAP - LOG_Z + sp.Rational(1, 100) - sp.log(1 - own * (1 - sp.exp(-2 * CAP)))
    words = "a key .01 nats before the limit is visible in the worst row of capped logits"
    yield positive(words, room, {"depth": (87, 104), "z": ("1/10", 20), "log_z": ("1/10", 6)})
    yield from numeric(claim)


def ceiling(ball: arb) -> int:
    """The least whole number at or above what a ball holds."""
    found = ball.ceil().unique_fmpz()
    if found is None:
        raise ArithmeticError(f"{ball} holds several whole numbers or none")
    return int(found)


def log_sum(m: arb, n: int, c: arb) -> arb:
    """Logarithm of Z of n keys at equal logits under ALiBi with a clamp: a geometric sum, then equal weights."""
    free = min(n, ceiling(-c / m))
    return ((1 - (-m * free).exp()) / (1 - (-m).exp()) + (n - free) * c.exp()).log()


def published(claim: Claim) -> Iterator[Step]:
    """Clamps of ALiBi at equal logits against flushing, and caps against three thresholds."""
    n, cases = 32768, {}
    with ctx.workprec(200):
        tau = -enclosed(FLUSHED)()
        at = {"depth": -tau, "spread": arb(0), "log_n": arb(n).log()}
        c = enclosed(claim.clamp)(**at)
        for exponent in ("-1/2", "-1", "-8"):
            m = enclosed(sp.Integer(2) ** sp.Rational(exponent))()
            log_z = log_sum(m, n, c)
            hidden = max(0, n - ceiling((-tau - log_z) / m))
            weight = float((c - log_z) / arb(2).log())
            words = f"m = 2^({exponent}), clamp {float(c):.2f}: the {hidden} keys that it is for"
            cases[f"{words} have weights, 2^{weight:.2f} at least, above 2^-126"] = c - log_z > tau
        for name, limit, safe in zip(("flushed", "bf16", "fp32"), (FLUSHED, BF16, FP32), claim.fifty, strict=True):
            cases[f"{name}: 2 * 50 < {float(limit):.2f} is {safe}"] = (enclosed(limit)() > 100) == safe
    yield decided("N = 32768 keys of equal logits under the safe clamp; a cap of 50 is safe in fp32 alone", cases)


def numeric(claim: Claim) -> Iterator[Step]:
    """The certificates of the code."""
    points = grid(m=(2.0**-0.5, 2.0**-4), spread=(0.0, 10.5), depth=(87.25, 103.9), n=(2048, 5000))
    clamp = claim.clamp.subs(LOG_N, sp.log(sp.Symbol("n")))
    yield agrees(
        "blindness.certify: safe_clamp",
        lambda m, spread, depth, n: certify(Alibi(m), -depth, int(n), spread=spread).safe_clamp,
        clamp,
        points,
        relative_to=DEPTH,
    )
    yield agrees(
        "blindness.certify: slack under a clamp of -60",
        lambda m, spread, depth, n: certify(Clamp(Alibi(m), -60.0), -depth, int(n), spread=spread).slack,
        lambda m, spread, depth, n: depth - 60 - spread - log_sum(m, int(float(n)), arb(-60)),
        points,
        relative_to=DEPTH,
    )
    places = grid(m=(2.0**-0.5, 2.0**-4), z=(4.25, 20.0), depth=(87.25, 103.9))
    for name, amount in (("visible_below", claim.room), ("blind_from", claim.blind)):
        for kind in ("weights", "numerators"):
            words = f"blindness.certify: {name}, the first whole distance, {kind} under a soft cap"
            exact = first(amount if kind == "weights" else amount.subs(LOG_Z, 0))
            yield agrees(words, capped(name, normalised=kind == "weights"), exact, places, tolerance=0.0)


def capped(name: str, *, normalised: bool) -> Callable[..., float]:
    """A distance of the code's certificate for 5000 keys under a soft cap."""

    def distance(m: float, z: float, depth: float) -> float:
        return float(getattr(certify(Alibi(m), -depth, 5000, softcap=z, normalised=normalised), name)[0])

    return distance


def first(amount: sp.Expr) -> Callable[..., arb]:
    """The least whole distance at which ALiBi reaches an amount, in a row of 5000 keys."""
    function = enclosed(amount)

    def distance(m: arb, z: arb, depth: arb) -> arb:
        # the clamp lies beyond the row
        return arb(ceiling(function(depth=depth, z=z, log_z=log_sum(m, 5000, -5000 * m)) / m))

    return distance


THEOREM = Theorem(
    name="visibility_certificates",
    statement=Statement(
        "If the logits of a row of N >= 2 keys differ by at most G, penalties are b >= 0 and Z_0 is the sum of e^(-b), "
        "then e^(-b-G)/Z_0 <= p <= e^(-b+G)/Z_0. A clamp c >= tau + G + log N leaves every weight above e^tau. A soft "
        "cap z gives G = 2z: visible for b < |tau| - 2z - log Z_0, blind for b >= |tau| + 2z - log Z_0; without a bias "
        "numerators are safe for z < |tau|/2.",
        r"\frac{e^{-b(d)-G}}{Z_0}\le p_d\le\frac{e^{-b(d)+G}}{Z_0},\quad c\ge\tau+G+\log N,\quad"
        r"b<|\tau|-2z-\log Z_0\Rightarrow p_d>e^\tau",
    ),
    hypotheses=(
        "c < 0 and b >= 0: a bias that raises logits by up to r needs r more",
        "one rounding of the weight, zero at and below tau",
        "for numerators: b - min b in place of b and Z_0 = 1, log N = 0",
    ),
    source="[derived, docs/theory.md (15.21), (15.24)]",
    grade=Grade.BOUND,
    claim={
        "spreads": 1,
        "clamp": -DEPTH + SPREAD + LOG_N,
        "raised": sp.Integer(0),
        "cap_spread": sp.Integer(2),
        "room": DEPTH - 2 * CAP - LOG_Z,
        "blind": DEPTH + 2 * CAP - LOG_Z,
        "largest_cap": DEPTH / 2,
        "fifty": (False, False, True),
    },
    symbolic=symbolic,
    certified=certified,
    mutants=(
        Mutant("the spread left out", {"spreads": 0}, "other keys may be G above"),
        Mutant("clamp at -87 for weights", {"clamp": sp.Integer(-87)}, "published: its .34 nats go to the row's sum"),
        Mutant("clamp without log N", {"clamp": -DEPTH + SPREAD}, "right for numerators only"),
        Mutant("clamp without the spread", {"clamp": -DEPTH + LOG_N}, "right for equal logits only"),
        Mutant("a bias that raises logits", {"raised": sp.Rational(1, 2)}, "then Z_0 may be above N"),
        Mutant("cap with a spread z", {"cap_spread": sp.Integer(1)}, "capped logits lie in (-z, z)"),
        Mutant("cap without log Z", {"room": DEPTH - 2 * CAP}, "right for numerators, not for weights"),
        Mutant("blind from |tau| on", {"blind": DEPTH - LOG_Z}, "a key 2z above the others is not"),
        Mutant("cap up to |tau|", {"largest_cap": DEPTH}, "two logits differ by up to 2z"),
        Mutant("a cap of 50 in bfloat16", {"fifty": (False, True, True)}, "100 nats against 92.88"),
    ),
)
