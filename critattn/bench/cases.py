"""The cases, their targets, and the run over all of them."""

import importlib.util
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from critattn import gradient, tokens
from critattn.attention import Attention
from critattn.bench import alternatives, step
from critattn.bench.timing import Alone, Timing, alone, alternate, once, peak_memory, resident
from critattn.continuation import Curves
from critattn.curves import continue_curve
from critattn.measurement import measure, measure_batch
from critattn.scaling import LogN
from critattn.theory import simplex
from critattn.thresholds import half_weight, log_n_softmax

MOMENTS = ("self_weight", "entropy", "participation_ratio")
MEANS = (*MOMENTS, "angle_ratio_of_means")
PAIRS = (*MEANS, "angle_ratio")
GAMMAS = np.linspace(0, 4, 64)
MANY = np.linspace(0, 4, 1024)
N, D = 4096, 64
# a call of about a millisecond is timed this many times over
CALLS = 20


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
        floor_ratio: seconds over what the exponentials and matrix products alone would take at the machine's rates.
    """

    work: str
    figure: float | None
    unit: str
    target: str
    met: bool | None
    seconds: float
    other_seconds: float | None = None
    note: str = ""
    floor_ratio: float | None = None


def training_steps(*, quick: bool = False) -> Iterator[Outcome]:
    """Training steps of the preset `small` against the same model in torch; none without the packages that train."""
    repeats = _repeats(quick)
    if any(importlib.util.find_spec(name) is None for name in ("equinox", "optax")):
        return
    from critattn.training import presets, torch_twin, variants

    for name in ("softmax-rope", "lssar-p15"):
        times = torch_twin.step_times(presets.preset("small"), variant=variants.named(name), repeats=repeats)
        if times is not None:
            note = f"CPU seconds {times.cpu_seconds:.3g}, torch {times.torch_cpu_seconds:.3g}"
            timing = Timing(times.seconds, times.torch_seconds, times.ratio, repeats)
            unit = "x torch, softmax with SDPA"
            yield _at_most(f"training step, preset small, {name}", times.ratio, 2.0, timing, unit=unit, note=note)


def run(*, quick: bool = False, tell: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Run every case.

    Args:
        quick: 3 alternations rather than 7, and sizes up to 4096 and 10^6 only.
        tell: called with a line after each case.

    Returns:
        JSON-ready: rates of the machine, the table of targets, one attention step against its alternatives, seconds
        against n, and the same step on an accelerator, None where there is none.
    """
    repeats = _repeats(quick)
    rates = _rates(repeats)
    found: dict[str, Any] = {"rates": rates, "targets": []}
    costs: dict[str, list[tuple[int, float]]] = {}
    for outcome in itertools.chain(_cases(repeats, rates), training_steps(quick=quick), _growth(costs, quick)):
        found["targets"].append(asdict(outcome))
        tell(f"{outcome.work}: {_shown(outcome)}")
    return found | {"step": step.on_host(repeats), "cost_against_n": costs, "accelerator": step.on_accelerator(repeats)}


def _repeats(quick: bool) -> int:
    return 3 if quick else 7


def _shown(outcome: Outcome) -> str:
    figure = "-" if outcome.figure is None else f"{outcome.figure:.3g}"
    return f"{figure} {outcome.unit} (target {outcome.target})"


def _rates(repeats: int) -> dict[str, float]:
    product, exponential = (
        min(alternate(function, None, repeats).seconds for function in functions)
        for functions in (alternatives.gemms(N, N, N), alternatives.exponentials(4_000_000))
    )
    return {"gemm_gflops": 2 * N**3 / product / 1e9, "exp_per_second": 4e6 / exponential}


def _cases(repeats: int, rates: Mapping[str, float]) -> Iterator[Outcome]:
    drawn = tokens.near_simplex(0, N, D, rho=0.5, fix_common=True)
    vectors = np.asarray(drawn.vectors, dtype=np.float32)
    beta = float(2 * np.log(N))
    sdpa = alternatives.sdpa(vectors, beta, GAMMAS.size)
    yield _sweep("64 gammas, row moments", drawn, MOMENTS, bound=0.25, other=sdpa, repeats=repeats, rates=rates)
    yield _sweep("64 gammas, and ratio of means", drawn, MEANS, bound=0.4, other=sdpa, repeats=repeats, rates=rates)
    yield _sweep(
        "64 gammas, and mean of ratios over all pairs",
        drawn,
        PAIRS,
        bound=0.7,
        other=sdpa,
        repeats=repeats,
        rates=rates,
    )
    yield _sweep(
        "1024 gammas, ratio of means", drawn, MEANS, bound=0.05, other=sdpa, repeats=repeats, rates=rates, gammas=MANY
    )
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
    rates: Mapping[str, float],
    gammas: np.ndarray = GAMMAS,
) -> Outcome:
    measured: list[Curves] = []

    def ours() -> list[np.ndarray]:
        measured.append(
            continue_curve(log_n_softmax, drawn, wanted, interval=(0.0, 4.0), tolerance=1e-5, dtype="float32")
        )
        return [measured[-1][name](gammas) for name in wanted]

    timing = alternate(ours, other, repeats)
    # the calls of the alternative are timed 64 at a time
    ratio = None if timing.ratio is None else timing.ratio * GAMMAS.size / gammas.size
    curves = measured[-1]
    note = f"{curves.nodes.size} gammas measured"
    note += "" if curves.converged else ", not converged"
    note += "" if other else "; torch is not installed: nothing to compare with"
    outcome = _at_most(f"sweep, {work}, n = {N}, d = {D}", ratio, bound, timing, unit="x SDPA", note=note)
    return replace(outcome, floor_ratio=timing.seconds / _floor(curves, rates))


def _floor(curves: Curves, rates: Mapping[str, float]) -> float:
    """Seconds of the exponentials and matrix products that the curves' nodes need, at the machine's own rates."""
    products = [2 * N**2 * D * curves[name].nodes.size for name in ("angle_ratio_of_means",) if name in curves]
    # each pair once
    products += [N**2 * D * curves[name].nodes.size for name in ("angle_ratio",) if name in curves]
    products.append(2 * N**2 * D)
    return N**2 * curves.nodes.size / rates["exp_per_second"] + sum(products) / rates["gemm_gflops"] / 1e9


def _at_most(work: str, ratio: float | None, bound: float, timing: Timing, *, unit: str, note: str = "") -> Outcome:
    met = None if ratio is None else ratio <= bound
    return Outcome(work, ratio, unit, f"at most {bound:g}", met, timing.seconds, timing.other_seconds, note)


def _small_gradient(repeats: int) -> Outcome:
    drawn = tokens.near_simplex(0, 256, 16, rho=0.5)
    layer = Attention(LogN(2.0))
    dense = alternatives.jacobian_norm(np.asarray(drawn.vectors, np.float32), float(2 * np.log(256)))

    def ours() -> None:
        for _ in range(CALLS):
            gradient.frobenius_norm_squared(layer, drawn, dtype="float32")

    timing = alternate(ours, dense, min(repeats, 3), settle=True)
    speed = None if timing.ratio is None else CALLS / timing.ratio
    return Outcome(
        "exact gradient norm, n = 256, d = 16",
        speed,
        "x faster than jacfwd",
        "at least 1000",
        None if speed is None else speed >= 1000,
        timing.seconds / CALLS,
        timing.other_seconds,
    )


def _large_gradient(drawn: tokens.Tokens, repeats: int) -> Outcome:
    layer = Attention(LogN(2.0))
    # scores, four moments, three inner products, and the second moments of the rows
    columns = D * (D + 1) // 2 + 8 * D
    products = alternatives.gemms(N, N, columns)[0]
    timing = alternate(lambda: gradient.frobenius_norm_squared(layer, drawn, dtype="float32"), products, repeats)
    work = f"exact gradient norm, n = {N}, d = {D}"
    memory = alone(large_gradient).bytes
    note = f"peak memory above the tokens {memory / 1e9:.2f} GB in a process of its own (target below 1 GB)"
    outcome = _at_most(work, timing.ratio, 2.0, timing, unit="x its matrix products", note=note)
    return replace(outcome, met=None if outcome.met is None else outcome.met and memory < 1e9)


def large_gradient() -> Alone:
    """The exact gradient norm at n = 4096, d = 64, with its memory above that of the tokens."""
    drawn, layer = tokens.near_simplex(0, N, D, rho=0.5), Attention(LogN(2.0))
    before = resident()
    seconds = once(lambda: gradient.frobenius_norm_squared(layer, drawn, dtype="float32"))
    return Alone(seconds, peak_memory() - before)


def _closed_form(repeats: int) -> Outcome:
    gammas = np.linspace(0, 4, 1_000_000)
    timing = alternate(lambda: simplex.angle_ratio(gammas, 0.5, np.log(4096)), None, repeats)
    rate = gammas.size / timing.seconds
    return Outcome(
        "closed-form angle ratio of a simplex", rate, "points/s", "at least 1e6", rate >= 1e6, timing.seconds
    )


def _million() -> Outcome:
    found = alone(half_weight_of_a_million)
    note = f"gamma {found.critical:.4f}, relative s.e. {found.error:.2%}, peak memory {found.bytes / 1e9:.2f} GB"
    met = found.seconds < 60 and found.error < 0.005 and found.bytes < 2e9
    work = "half-weight point, n = 10^6, d = 64, 512 rows"
    target = "at most 60, to 0.5 %, in 2 GB"
    return Outcome(work, found.seconds, "s", target, met, found.seconds, None, note)


def half_weight_of_a_million() -> Alone:
    """The half-weight point of 10^6 tokens from 512 rows, compilation included."""
    stream = tokens.stream_near_simplex(0, 10**6, D, rho=0.5, fix_common=True)
    found = []
    seconds = once(lambda: found.append(half_weight(stream, sample_rows=512, dtype="float32")))
    critical, error = found[0].critical or np.nan, found[0].standard_error or np.nan
    return Alone(seconds, peak_memory(), critical, error / critical)


def _growth(costs: dict[str, list[tuple[int, float]]], quick: bool) -> Iterator[Outcome]:
    """Slopes of seconds against n; the points are filed in `costs`."""
    for kind, measured in (("exact", _exact_costs), ("sampled", _sampled_costs)):
        costs[kind] = measured(quick)
        yield _slope(kind, costs[kind])


def _exact_costs(quick: bool) -> list[tuple[int, float]]:
    layers = log_n_softmax(jnp.asarray(GAMMAS[::4]))
    points = []
    for n in (1024, 2048, 4096) if quick else (1024, 2048, 4096, 8192, 16384):
        drawn = tokens.near_simplex(0, n, D, rho=0.5)
        timing = alternate(lambda t=drawn: measure_batch(layers, t, MEANS, dtype="float32"), None, 3)
        points.append((n, timing.seconds))
    return points


def _sampled_costs(quick: bool) -> list[tuple[int, float]]:
    layer = Attention(LogN(2.0))
    points = []
    for n in (10**5, 10**6) if quick else (10**5, 10**6, 10**7):
        stream = tokens.stream_near_simplex(0, n, D, rho=0.5)
        timing = alternate(lambda t=stream: measure(layer, t, MEANS, sample_rows=16, dtype="float32"), None, 1)
        points.append((n, timing.seconds))
    return points


def _slope(kind: str, points: list[tuple[int, float]]) -> Outcome:
    sizes, seconds = np.log(np.array(points, dtype=float)).T
    slope = float(np.polyfit(sizes, seconds, 1)[0])
    expected = 2.0 if kind == "exact" else 1.0
    work = f"seconds against n, {kind}, n = {points[0][0]} to {points[-1][0]}"
    return Outcome(work, slope, "slope", f"{expected:g} +- 0.1", abs(slope - expected) <= 0.1, points[-1][1])
