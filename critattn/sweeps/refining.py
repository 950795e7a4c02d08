"""Adaptive refinement of a sweep of thresholds: points are added where the threshold changes fastest."""

import dataclasses
import glob
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from critattn.errors import SpecError, StoreError
from critattn.storage import Store, canonical_json
from critattn.sweeps import spec as specs
from critattn.sweeps.analysis import QUANTITIES
from critattn.sweeps.evaluation import layout_of
from critattn.sweeps.running import identity_of, run_sweep
from critattn.sweeps.spec import Axes, SweepSpec

MAX_POINTS = 256
# Differences within this many standard errors are noise, which no point in between would resolve.
NOISE = 2.0
Run = Callable[[SweepSpec, Path], Any]


def _geometric(low: float, high: float) -> float | None:
    middle = round(math.sqrt(low * high))
    return middle if low < middle < high else None


def _arithmetic(low: float, high: float) -> float | None:
    middle = (low + high) / 2
    return middle if low < middle < high else None


# How the middle between two points of an axis is found; other axes are not refined.
MIDDLES: Mapping[str, Callable[[float, float], float | None]] = {
    "n": _geometric,
    "d": _geometric,
    "rho": _arithmetic,
    "tau": _arithmetic,
}


@dataclass(frozen=True)
class Gap:
    """Two neighbours on an axis.

    Attributes:
        axis: n, d, rho or tau.
        low: the smaller point.
        high: the larger point.
        change: largest relative change of a threshold between them over the other axes, in [0, 1].
        middle: the point that would be added; None between neighbouring whole numbers.
    """

    axis: str
    low: float
    high: float
    change: float
    middle: float | None


@dataclass(frozen=True)
class Refinement:
    """A refined sweep.

    Attributes:
        spec: the sweep with all points.
        store: folder of its results.
        data: its dataset.
        rounds: how often points were added.
        points: number of points on the token axes, draws not counted.
        largest_change: largest relative change that is left between neighbours.
        converged: no gap that could be bisected exceeds the tolerance.
        reason: a sentence where a change above the tolerance is left.
    """

    spec: SweepSpec
    store: Path
    data: Any
    rounds: int
    points: int
    largest_change: float
    converged: bool
    reason: str = ""


def refine_sweep(
    spec: SweepSpec, store: Path, *, tolerance: float, max_points: int = MAX_POINTS, run: Run = run_sweep
) -> Refinement:
    """Run a sweep of thresholds, and add points until neighbours differ by less than a tolerance.

    Each round is a sweep of its own, in `<store>-refined-<hash>`: chunks of earlier rounds, or of earlier
    refinements of the same sweep, are copied where seed, tokens, layer and all else but the axes are the same, and
    the rest is computed. What is added follows from the data alone, so that the same call goes on after a kill.

    Args:
        spec: a sweep without a gamma axis.
        store: folder of the first round's results.
        tolerance: relative change allowed between neighbours, in (0, 1).
        max_points: bound on the number of points on the token axes, draws not counted.
        run: runs one round.

    Returns:
        The last round, and whether it converged.

    Raises:
        SpecError: for a sweep without thresholds, or a tolerance or bound out of range.
        StoreError: as `run_sweep`.
    """
    check_refinable(spec, tolerance, max_points)
    path, rounds = Path(store), 0
    while True:
        data = run(spec, path)
        found = gaps(spec, data)
        finer = finer_spec(spec, found, tolerance=tolerance, max_points=max_points)
        if finer is None:
            return _refinement(spec, path, data, rounds=rounds, found=found, tolerance=tolerance)
        spec, rounds = finer, rounds + 1
        path = Path(store).parent / f"{Path(store).name}-refined-{spec.hash[:8]}"
        reuse(spec, path, _earlier(Path(store)))


def check_refinable(spec: SweepSpec, tolerance: float, max_points: int = MAX_POINTS) -> None:
    """Refuse what cannot be refined, before anything is computed.

    Raises:
        SpecError: with what is allowed.
    """
    if not 0 < tolerance < 1:
        raise SpecError(f"refine = {tolerance:g}; allowed: a relative change in (0, 1)")
    if max_points < 1:
        raise SpecError(f"refine-max = {max_points}; allowed: >= 1")
    if spec.mode != "threshold" or not set(spec.observables) & set(QUANTITIES):
        allowed = ", ".join(QUANTITIES)
        raise SpecError(f"refine: needs a sweep without a gamma axis that has one of the observables {allowed}")
    if not any(len(_points_of(spec.axes, axis)) > 1 for axis in MIDDLES):
        raise SpecError(f"refine: needs at least two points on one of the axes {', '.join(MIDDLES)}")


def gaps(spec: SweepSpec, data: Any) -> list[Gap]:
    """All pairs of neighbours on the axes that can be refined.

    The change between thresholds a and b is (|a - b| - 2 s)/max(|a|, |b|), not below 0, with s the standard error of
    a - b over draws (over rows for one draw); it is 1 where only one of them exists.
    """
    found = []
    for axis in MIDDLES:
        points = np.array(_points_of(spec.axes, axis))
        order = np.argsort(points)
        changes = [_change(data, axis, low, high) for low, high in zip(order[:-1], order[1:], strict=True)]
        for low, high, change in zip(points[order][:-1].tolist(), points[order][1:].tolist(), changes, strict=True):
            found.append(Gap(axis, low, high, change, MIDDLES[axis](low, high)))
    return found


def finer_spec(spec: SweepSpec, found: Iterable[Gap], *, tolerance: float, max_points: int) -> SweepSpec | None:
    """The sweep of the next round; None where nothing is left to add.

    Gaps are bisected in the order of their change, down to half the largest one, while the points stay in bounds.
    """
    wide = [(gap.change, gap.axis, gap.middle) for gap in found if gap.middle is not None and gap.change > tolerance]
    largest = max((change for change, _, _ in wide), default=0.0)
    axes = spec.axes
    for change, axis, middle in sorted(wide, key=lambda item: -item[0]):
        wider = _with_point(axes, axis, middle)
        if change >= largest / 2 and count_points(wider) <= max_points:
            axes = wider
    if axes == spec.axes:
        return None
    finer = dataclasses.replace(spec, axes=axes)
    specs.check(finer)
    return finer


def count_points(axes: Axes) -> int:
    """Number of points on the token axes; draws are not counted."""
    return math.prod(max(1, len(_points_of(axes, axis))) for axis in MIDDLES)


def reuse(spec: SweepSpec, path: Path, sources: Iterable[Store]) -> int:
    """Copy to the store of a sweep, made where there is none, the chunks that other stores have of the same points.

    Args:
        spec: the sweep.
        path: folder of its store.
        sources: other stores; those whose spec differs in more than the token axes are passed over.

    Returns:
        How many chunks were copied, checksums verified.

    Raises:
        StoreError: where the store cannot be written.
    """
    target = Store.create(path, name=path.name, spec=identity_of(spec), layout=layout_of(spec))
    missing = {canonical_json(target.layout.point(unit)): unit for unit in target.missing_units()}
    copied = 0
    for source in sources:
        if source.path == target.path or _rest(source.spec) != _rest(target.spec):
            continue
        journal = source.journal()
        for unit in source.layout.units():
            place = canonical_json(source.layout.point(unit))
            block = source.read_unit(unit) if place in missing else None
            if block is not None:
                origin = {**journal.get(unit, {}), "copied_from": source.name}
                target.write_unit(missing.pop(place), block, origin=origin)
                copied += 1
    return copied


def _refinement(
    spec: SweepSpec, path: Path, data: Any, *, rounds: int, found: list[Gap], tolerance: float
) -> Refinement:
    worst = max(found, key=lambda gap: gap.change)
    wide = [gap for gap in found if gap.change > tolerance and gap.middle is not None]
    points = count_points(spec.axes)
    reason = ""
    if wide:
        reason = f"no more points allowed: {points} are there; {_sentence(max(wide, key=lambda gap: gap.change))}"
    elif worst.change > tolerance:
        reason = f"nothing is left between neighbouring points; {_sentence(worst)}"
    return Refinement(spec, path, data, rounds, points, worst.change, not wide, reason)


def _sentence(gap: Gap) -> str:
    return f"the threshold changes by {gap.change:.2g} between {gap.axis} = {gap.low:g} and {gap.high:g}"


def _points_of(axes: Axes, axis: str) -> tuple[float, ...]:
    points = getattr(axes, axis)
    return () if isinstance(points, str) else points


def _with_point(axes: Axes, axis: str, point: float) -> Axes:
    return dataclasses.replace(axes, **{axis: tuple(sorted((*_points_of(axes, axis), point)))})


def _change(data: Any, axis: str, low: int, high: int) -> float:
    return max(_largest(*_located(data, name), data[name].dims.index(axis), low, high) for name in _quantities(data))


def _quantities(data: Any) -> list[str]:
    return [name for name in QUANTITIES if name in data]


def _located(data: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Thresholds over the token axes, infinite where there is none, and their standard errors."""
    values, errors = data[name], data[f"{name}_se"]
    if "replicate" in values.dims:
        draws = values.sizes["replicate"]
        last = values.transpose(..., "replicate").values
        errors = errors.isel(replicate=0).values if draws == 1 else np.std(last, axis=-1, ddof=1) / math.sqrt(draws)
        values = np.mean(last, axis=-1)
    errors = np.nan_to_num(np.asarray(errors))
    return np.where(np.isfinite(values), values, np.inf), errors


def _largest(values: np.ndarray, errors: np.ndarray, axis: int, low: int, high: int) -> float:
    a, b = (np.take(values, place, axis) for place in (low, high))
    noise = NOISE * np.hypot(*(np.take(errors, place, axis) for place in (low, high)))
    there = np.isfinite(a) & np.isfinite(b)
    a, b, one = np.where(there, a, 1.0), np.where(there, b, 1.0), np.isfinite(a) ^ np.isfinite(b)
    scale = np.maximum(np.abs(a), np.abs(b))
    change = np.maximum(np.abs(a - b) - noise, 0.0) / np.where(scale > 0, scale, 1.0)
    return float(np.max(np.where(one, 1.0, change)))


def _earlier(store: Path) -> Iterator[Store]:
    refined = sorted(store.parent.glob(f"{glob.escape(store.name)}-refined-*"))
    for folder in (store, *refined):
        try:
            yield Store.open(folder)
        except StoreError:
            continue


def _rest(identity: Mapping[str, Any]) -> str:
    """All of an identity but the axes that a unit's point says."""
    axes = {name: points for name, points in identity["axes"].items() if name not in (*MIDDLES, "replicates")}
    return canonical_json({**identity, "axes": axes})
