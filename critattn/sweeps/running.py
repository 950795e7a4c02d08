"""Running a sweep: the missing units, one chunk after the other, in this process or through an executor."""

import contextlib
import dataclasses
import hashlib
import os
import time
from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from critattn import provenance, tensorfiles
from critattn.datasets import Unit, to_dataset
from critattn.errors import StoreError
from critattn.interrupts import patience
from critattn.storage import Store, canonical_json, content_hash
from critattn.sweeps import evaluation
from critattn.sweeps.evaluation import layout_of
from critattn.sweeps.forecast import Forecast
from critattn.sweeps.spec import SweepSpec

Progress = Callable[[int, int], None]
# A unit, and whether this run computed it.
Finished = Generator[tuple[Unit, bool], None, None]


def run_sweep(
    spec: SweepSpec,
    store: str | os.PathLike[str] | None = None,
    *,
    resume: bool = True,
    executor: Executor | None = None,
    progress: Progress | None = None,
    forecast: Forecast | None = None,
) -> Any:
    """Run a sweep, or what is missing of it.

    Args:
        spec: what to measure.
        store: folder of the results store; it is made where there is none. None keeps the result in memory only.
        resume: keep the units that are there; False computes all of them again.
        executor: where units are computed (`submit(function, *arguments)` gives a future); units write their own
            chunks, so workers need to see the store. None computes in this process.
        progress: called with (units done, units in all), first with what was there.
        forecast: told of each unit before `progress`; it knows the remaining time.

    Returns:
        An `xarray.Dataset` with one variable an observable and `<name>_se` beside it.

    Raises:
        StoreError: before any computing where the store cannot be written or holds a different study; later where a
            chunk could not be written, or is not there after all.
        CritattnError: where tokens cannot be made.
        KeyboardInterrupt: after Ctrl-C, once the units in hand are written; a second Ctrl-C does not wait.
    """
    sink = _Memory(spec) if store is None else _open(spec, Path(store))
    units = sink.missing() if resume else list(sink.layout.units())
    total = len(list(sink.layout.units()))
    tell, expect = progress or (lambda done, total: None), forecast or Forecast()
    expect.start(sink.layout, units)
    tell(total - len(units), total)
    finished = _here(spec, units, sink) if executor is None else _there(spec, units, sink, executor)
    with patience() as stopped, contextlib.closing(finished):
        for done, (unit, computed) in enumerate(finished, total - len(units) + 1):
            expect.finish(unit, computed=computed)
            tell(done, total)
            if stopped.is_set():
                raise KeyboardInterrupt
    return sink.read()


def work(spec: SweepSpec, unit: Unit, store: Store) -> Unit:
    """Compute one unit and write its chunk; what a worker of a cluster is given."""
    start = time.perf_counter()
    block = evaluation.evaluate(spec, unit)
    store.write_unit(unit, block, seconds=time.perf_counter() - start)
    return unit


class _Memory:
    """Keeps the blocks of a run that has no store."""

    def __init__(self, spec: SweepSpec) -> None:
        self.spec = spec
        self.layout = layout_of(spec)
        self.values = np.full(self.layout.shape, np.nan)

    def missing(self) -> list[Unit]:
        return list(self.layout.units())

    def has(self, unit: Unit) -> bool:
        return False

    def task(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return evaluation.evaluate, ()

    def keep(self, unit: Unit, result: Any) -> None:
        self.values[unit] = result

    def read(self) -> Any:
        identity = identity_of(self.spec)
        attributes = {
            "name": self.spec.title or "sweep",
            "spec": canonical_json(identity),
            "spec_hash": content_hash(identity),
            "made": canonical_json(provenance.environment()),
            "units": len(list(self.layout.units())),
            "units_missing": 0,
        }
        return to_dataset(self.layout, self.values, attributes)


class _OnDisk:
    """Lets units write their own chunks."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.layout = store.layout
        self.absent: set[Unit] = set()

    def missing(self) -> list[Unit]:
        units = self.store.missing_units()
        self.absent = {unit for unit in units if not self.store.chunk_file(unit).exists()}
        return units

    def has(self, unit: Unit) -> bool:
        """Another process has written the unit since this one looked."""
        return unit in self.absent and self.store.chunk_file(unit).exists()

    def task(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # Workers elsewhere have a working folder of their own.
        return work, (dataclasses.replace(self.store, path=self.store.path.absolute()),)

    def keep(self, unit: Unit, result: Any) -> None:
        return None

    def read(self) -> Any:
        data = self.store.read()
        lost = data.attrs["units_missing"]
        if lost:
            raise StoreError(
                f"store {str(self.store.path)!r}: {lost} computed units are not there or damaged; check the disk, and "
                "that all workers see this folder; the same command computes them again"
            )
        return data


def identity_of(spec: SweepSpec) -> dict[str, Any]:
    """The identity of the spec, with the content of a token file in place of trust in its name."""
    identity = spec.identity()
    if spec.tokens.kind == "file":
        kept = spec.tokens
        array = tensorfiles.load_array(kept.path or "", tensor=kept.tensor, rows=kept.rows)
        identity["tokens"] = {**identity["tokens"], "sha256": hashlib.sha256(array.tobytes()).hexdigest()}
    return identity


def _open(spec: SweepSpec, folder: Path) -> _OnDisk:
    return _OnDisk(Store.create(folder, name=folder.name, spec=identity_of(spec), layout=layout_of(spec)))


def _here(spec: SweepSpec, units: list[Unit], sink: "_Memory | _OnDisk") -> Finished:
    function, more = sink.task()
    for unit in units:
        there = sink.has(unit)
        if not there:
            sink.keep(unit, function(spec, unit, *more))
        yield unit, not there


def _there(spec: SweepSpec, units: list[Unit], sink: "_Memory | _OnDisk", executor: Executor) -> Finished:
    function, more = sink.task()
    placed = _placed(spec)
    futures: dict[Future[Any], Unit] = {executor.submit(function, placed, unit, *more): unit for unit in units}
    try:
        for future in as_completed(futures):
            # Let go of it: a cluster computes again what a dead worker held and somebody may still ask for.
            unit = futures.pop(future)
            sink.keep(unit, future.result())
            yield unit, True
    finally:
        for future in futures:
            future.cancel()


def _placed(spec: SweepSpec) -> SweepSpec:
    """The spec with the whole path of its token file; names of files never decide about random keys."""
    if not spec.tokens.path:
        return spec
    return dataclasses.replace(spec, tokens=dataclasses.replace(spec.tokens, path=os.path.abspath(spec.tokens.path)))
