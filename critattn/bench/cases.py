"""The cases, their targets, and the run over all of them."""

import resource
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from critattn import gradient, tokens
from critattn.attention import Attention
from critattn.bench import alternatives
from critattn.bench.timing import Timing, alternate, once
from critattn.curves import continue_curve
from critattn.measurement import measure
from critattn.protocols import precision
from critattn.scaling import LogN
from critattn.theory import simplex
from critattn.thresholds import half_weight, log_n_softmax

MOMENTS = ("self_weight", "entropy", "participation_ratio")
MEANS = (*MOMENTS, "angle_ratio_of_means")
PAIRS = (*MEANS, "angle_ratio")
GAMMAS = np.linspace(0, 4, 64)
MANY = np.linspace(0, 4, 1024)
N, D = 4096, 64


@dataclass(frozen=True)
class Outcome:
    """One row of the table.

    Attributes:
        work: what was done.
        figure: the measured ratio, slope, rate or time.
        unit: what the figure is.
        target: the bound on it, for people.
        met: whether it holds; None where there was nothing to compare with.
        seconds: median time of the package.
        other_seconds: median time of what it is compared with.
        note: a sentence.
    """

    work: str
    figure: float | None
    unit: str
    target: str
    met: bool | None
    seconds: float
    other_seconds: float | None = None
    note: str = ""


def run(*, quick: bool = False, tell: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Run every case.

    Args:
        quick: 3 alternations rather than 7, and sizes up to 4096 and 10^6 only.
        tell: called with a line after each case.

    Returns:
        JSON-ready: rates of the machine, the table of targets, one attention step against its alternatives, and
        seconds against n.
    """
    repeats = 3 if quick else 7
    outcomes = []
    for outcome in _cases(repeats, quick):
        outcomes.append(asdict(outcome))
        tell(f"{outcome.work}: {_shown(outcome)}")
    costs = {name: _costs(name, quick) for name in ("exact", "sampled")}
    for name, points in costs.items():
        outcome = _slope(name, points)
        outcomes.append(asdict(outcome))
        tell(f"{outcome.work}: {_shown(outcome)}")
    return {"rates": _rates(repeats), "targets": outcomes, "step": _step(repeats), "cost_against_n": costs}


def _shown(outcome: Outcome) -> str:
    figure = "-" if outcome.figure is None else f"{outcome.figure:.3g}"
    return f"{figure} {outcome.unit} (target {outcome.target})"


def _rates(repeats: int) -> dict[str, float]:
    product = alternate(alternatives.gemm(N, N, N), None, repeats).seconds
    exponential = alternate(alternatives.exponentials(4_000_000), None, repeats).seconds
    return {"gemm_gflops": 2 * N**3 / product / 1e9, "exp_per_second": 4e6 / exponential}


def _cases(repeats: int, quick: bool) -> Iterator[Outcome]:
    drawn = tokens.near_simplex(0, N, D, rho=0.5, fix_common=True)
    vectors = np.asarray(drawn.vectors, dtype=np.float32)
    beta = float(2 * np.log(N))
    sdpa = alternatives.sdpa(vectors, beta, GAMMAS.size)
    yield _sweep("64 gammas, row moments", drawn, MOMENTS, bound=0.25, other=sdpa, repeats=repeats)
    yield _sweep("64 gammas, and ratio of means", drawn, MEANS, bound=0.4, other=sdpa, repeats=repeats)
    yield _sweep("64 gammas, and mean of ratios over all pairs", drawn, PAIRS, bound=0.7, other=sdpa, repeats=repeats)
    yield _sweep("1024 gammas, ratio of means", drawn, MEANS, bound=0.05, other=sdpa, repeats=repeats, gammas=MANY)
    yield _small_gradient(repeats)
    yield _large_gradient(drawn, repeats)
    yield _closed_form(repeats)
    yield _million()


def _sweep(
    work: str,
    drawn: tokens.Tokens,
    wanted: tuple[str, ...],
    *,
    bound: float,
    other: Callable[[], Any] | None,
    repeats: int,
    gammas: np.ndarray = GAMMAS,
) -> Outcome:
    nodes: list[int] = []

    def ours() -> list[np.ndarray]:
        curves = continue_curve(log_n_softmax, drawn, wanted, interval=(0.0, 4.0), tolerance=1e-5, dtype="float32")
        nodes.append(max(curves[name].nodes.size for name in wanted))
        return [curves[name](gammas) for name in wanted]

    timing = alternate(ours, other, repeats)
    # the calls of the alternative are timed 64 at a time
    ratio = None if timing.ratio is None else timing.ratio * GAMMAS.size / gammas.size
    note = f"{nodes[-1]} nodes" + ("" if other else "; torch is not installed: nothing to compare with")
    return _at_most(f"sweep, {work}, n = {N}, d = {D}", ratio, bound, timing, unit="x SDPA", note=note)


def _at_most(work: str, ratio: float | None, bound: float, timing: Timing, *, unit: str, note: str = "") -> Outcome:
    met = None if ratio is None else ratio <= bound
    return Outcome(work, ratio, unit, f"at most {bound:g}", met, timing.seconds, timing.other_seconds, note)


def _small_gradient(repeats: int) -> Outcome:
    drawn = tokens.near_simplex(0, 256, 16, rho=0.5)
    layer = Attention(LogN(2.0))
    dense = alternatives.jacobian_norm(np.asarray(drawn.vectors, np.float32), float(2 * np.log(256)))
    timing = alternate(lambda: gradient.frobenius_norm_squared(layer, drawn, dtype="float32"), dense, min(repeats, 3))
    speed = None if timing.ratio is None else 1 / timing.ratio
    return Outcome(
        "exact gradient norm, n = 256, d = 16",
        speed,
        "x faster than jacfwd",
        "at least 1000",
        None if speed is None else speed >= 1000,
        timing.seconds,
        timing.other_seconds,
    )


def _large_gradient(drawn: tokens.Tokens, repeats: int) -> Outcome:
    layer = Attention(LogN(2.0))
    # scores, four moments, three inner products, and the second moments of the rows
    columns = D * (D + 1) // 2 + 8 * D
    products = alternatives.gemm(N, N, columns)
    timing = alternate(lambda: gradient.frobenius_norm_squared(layer, drawn, dtype="float32"), products, repeats)
    work = f"exact gradient norm, n = {N}, d = {D}"
    return _at_most(work, timing.ratio, 2.0, timing, unit="x its matrix products")


def _closed_form(repeats: int) -> Outcome:
    gammas = np.linspace(0, 4, 1_000_000)
    timing = alternate(lambda: simplex.angle_ratio(gammas, 0.5, np.log(4096)), None, repeats)
    rate = gammas.size / timing.seconds
    return Outcome(
        "closed-form angle ratio of a simplex", rate, "points/s", "at least 1e6", rate >= 1e6, timing.seconds
    )


def _million() -> Outcome:
    stream = tokens.stream_near_simplex(0, 10**6, D, rho=0.5, fix_common=True)
    found = []
    seconds = once(lambda: found.append(half_weight(stream, sample_rows=512, dtype="float32")))
    threshold = found[0]
    relative = (threshold.standard_error or np.nan) / (threshold.critical or np.nan)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    note = f"gamma {threshold.critical:.4f}, relative s.e. {relative:.2%}, peak memory of the run {memory:.1f} GB"
    met = seconds < 60 and relative < 0.005
    work = "half-weight point, n = 10^6, d = 64, 512 rows"
    return Outcome(work, seconds, "s", "at most 60", met, seconds, None, note)


def _costs(kind: str, quick: bool) -> list[tuple[int, float]]:
    layer = Attention(LogN(2.0))
    points = []
    if kind == "exact":
        for n in (1024, 2048, 4096) if quick else (1024, 2048, 4096, 8192, 16384):
            drawn = tokens.near_simplex(0, n, D, rho=0.5)
            points.append((n, alternate(lambda t=drawn: measure(layer, t, MEANS, dtype="float32"), None, 3).seconds))
        return points
    for n in (10**5, 10**6) if quick else (10**5, 10**6, 10**7):
        stream = tokens.stream_near_simplex(0, n, D, rho=0.5)
        points.append(
            (n, alternate(lambda t=stream: measure(layer, t, MEANS, sample_rows=64, dtype="float32"), None, 1).seconds)
        )
    return points


def _slope(kind: str, points: list[tuple[int, float]]) -> Outcome:
    sizes, seconds = np.log(np.array(points, dtype=float)).T
    slope = float(np.polyfit(sizes, seconds, 1)[0])
    expected = 2.0 if kind == "exact" else 1.0
    work = f"seconds against n, {kind}, n = {points[0][0]} to {points[-1][0]}"
    return Outcome(work, slope, "slope", f"{expected:g} +- 0.1", abs(slope - expected) <= 0.1, points[-1][1])


def _step(repeats: int) -> dict[str, float | None]:
    """Seconds of one attention step at n = 4096, d = 64, float32, for the package and its alternatives."""
    import jax
    import jax.numpy as jnp

    from critattn.attention import attention_step, block_rows

    beta = float(2 * np.log(N))
    vectors = np.asarray(tokens.near_simplex(0, N, D, rho=0.5).vectors, np.float32)
    with precision("float32"):
        rows = block_rows(N, 4)
        layer, device = Attention(LogN(2.0)), jnp.asarray(vectors)
        ours = jax.jit(lambda x: attention_step(layer, x, block_rows=rows))
        functions = {
            "critattn": lambda: ours(device),
            "torch SDPA": alternatives.sdpa(vectors, beta, 1),
            "naive JAX": alternatives.naive_jax(vectors, beta),
            "naive numpy": alternatives.naive_numpy(vectors, beta),
        }
        return {
            name: None if function is None else alternate(function, None, repeats).seconds
            for name, function in functions.items()
        }
