"""Reading every head of a trained model over texts and lengths, one window of text after the other, into a store."""

import contextlib
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from critattn.datasets import Axis, Column, Layout, Unit
from critattn.errors import SpecError
from critattn.models import forward, texts
from critattn.models.forward import Model
from critattn.models.head_table import BLOCKS, SINKS, HeadTable, summarise
from critattn.models.kept import Kept, Progress, identity_of
from critattn.models.probes import FORMATS, ROWS
from critattn.models.readings import TextReading, median, read_layer, reading_names
from critattn.models.sensitivity import effective_rho, gradient_norm
from critattn.models.texts import Text
from critattn.models.tokenise import Tokeniser
from critattn.models.views import LayerView
from critattn.protocols import precision

Values = NDArray[np.float64]
Windows = tuple[np.ndarray, ...]
STREAMS = ("hidden", "input", "queries", "keys")
RHO = tuple(f"rho_{stream}{kind}" for stream in STREAMS for kind in ("", "_centred"))
GRADIENT = "gradient_norm"
LEAST_LENGTH = 16


@dataclass(frozen=True)
class Plan:
    """What is read of a model.

    Attributes:
        lengths: keys n of a window, ascending.
        windows: windows of each text.
        rows: query rows at the end of each window, the same tokens at every length.
        layers: which layers; all where empty.
        probes: Hutchinson probes of each head's gradient norm; 0 leaves it out.
        seed: of these probes.
    """

    lengths: tuple[int, ...] = (128, 256, 512)
    windows: int = 2
    rows: int = ROWS
    layers: tuple[int, ...] = ()
    probes: int = 4
    seed: int = 0

    def checked(self, model: Model) -> "Plan":
        """The plan with its layers spelt out.

        Raises:
            SpecError: for lengths that the model does not have, layers that are not there, and counts below 1.
        """
        config = model.config
        limit = config.max_length
        if not self.lengths or not _whole(self.lengths) or list(self.lengths) != sorted(set(self.lengths)):
            raise SpecError(f"lengths {list(self.lengths)}: allowed: different whole numbers, ascending")
        if not self.lengths[0] >= LEAST_LENGTH:
            raise SpecError(f"length {self.lengths[0]}: allowed: {LEAST_LENGTH} to {limit}")
        if config.learned_positions and self.lengths[-1] > limit:
            raise SpecError(f"length {self.lengths[-1]}: allowed: {LEAST_LENGTH} to {limit}, the model's positions")
        for name, value, least in (("windows", self.windows, 1), ("rows", self.rows, 1), ("probes", self.probes, 0)):
            if value < least or (name == "probes" and value == 1):
                allowed = "0, or 2 and more" if name == "probes" else "at least 1"
                raise SpecError(f"{name} {value}: allowed: {allowed}")
        layers = self.layers or tuple(range(config.layers))
        wrong = [layer for layer in layers if not 0 <= layer < config.layers]
        if wrong or not _whole(layers) or len(set(layers)) != len(layers):
            raise SpecError(f"layers {list(self.layers)}: allowed: different numbers from 0 to {config.layers - 1}")
        rows = min(self.rows, self.lengths[0] // 2)
        lengths = tuple(int(n) for n in self.lengths)
        return Plan(lengths, self.windows, rows, tuple(sorted(int(one) for one in layers)), self.probes, self.seed)


def _whole(numbers: Sequence[int]) -> bool:
    return all(int(number) == number for number in numbers)


def layout(model: Model, plan: Plan, chosen: Sequence[Text]) -> Layout:
    """Axes and observables of an inspection: a unit of work is one window of one text at one length."""
    names = tuple(text.name for text in chosen)
    unit = (
        Axis("text", tuple(float(code) for code in range(len(names))), "text", names=names),
        Axis("window", tuple(float(code) for code in range(plan.windows)), "window of the text"),
        Axis("n", tuple(float(n) for n in plan.lengths), "tokens n"),
    )
    block = (
        Axis("layer", tuple(float(layer) for layer in plan.layers), "layer"),
        Axis("head", tuple(float(head) for head in range(model.config.heads)), "head"),
        Axis("sink", (0.0, 1.0), "key 0", names=SINKS),
    )
    return Layout(unit, block, tuple(Column(name, _unit(name)) for name in observables(plan)))


def observables(plan: Plan) -> tuple[str, ...]:
    """Names of what is kept of each head."""
    return (*reading_names(FORMATS), *RHO, *((GRADIENT,) if plan.probes else ()))


def _unit(name: str) -> str:
    return "nats" if name in ("spread", "top_gap", "gap", "entropy") else ""


def identity(
    model: Model, plan: Plan, chosen: Sequence[Text], *, windows: Sequence[Windows] | None = None
) -> dict[str, Any]:
    """What decides about the numbers, JSON-ready: configuration, weights and texts by their checksums.

    Args:
        model: the model.
        plan: as `Plan.checked` returns it.
        chosen: texts.
        windows: the tokens that are read of each text; a store knows by them that the tokeniser is the same.
    """
    return identity_of("inspection", model, plan, chosen, windows=windows)


def inspect(
    model: Model,
    encoder: Tokeniser,
    chosen: Sequence[Text],
    plan: Plan,
    *,
    store: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Any:
    """Read every head of a model over texts, windows and lengths, or what is missing of it in a store.

    All lengths of a window end with the same tokens, whose rows are read: what changes with n is the number of keys
    before them. The value of a unit is the median over these rows, its standard error that of medians of four blocks
    of rows; `rho_*` are mean cosines over the whole window; `gradient_norm` is the squared Frobenius norm of the
    Jacobian of the head's output by its normalised input over n times the width, by Hutchinson's estimator.

    Args:
        model: the model.
        encoder: its tokeniser.
        chosen: texts.
        plan: lengths, windows, rows.
        store: folder of the results; None keeps them in memory.
        progress: called with (units done, units in all).

    Returns:
        An `xarray.Dataset` over text, window, n, layer, head and sink (key 0 kept or dropped).

    Raises:
        SpecError: for a plan that the model does not allow, no text, or one too short; nothing is computed then.
        StoreError: where the store cannot be written or holds something else.
        KeyboardInterrupt: after Ctrl-C, once the window in hand is kept.
    """
    plan = plan.checked(model)
    # every text before anything is computed or kept: the last of them may be too short
    windows = tuple(_windows(encoder, text, plan) for text in _some(chosen))
    kept = Kept.open(layout(model, plan, chosen), identity(model, plan, chosen, windows=windows), store)

    def read(group: Sequence[Unit]) -> list[tuple[Unit, Values, float]]:
        return _read(model, plan, windows[group[0][0]][group[0][1]], group, encoder)

    kept.fill(_together, read, progress)
    return kept.read()


def head_table(data: Any) -> HeadTable:
    """Means over texts with intervals, of a dataset of `inspect`; the parts of one text are its windows."""
    names = [str(name) for name in data.data_vars if f"{name}_se" in data]
    readings = []
    for index, text in enumerate(data["text"].values):
        stacked = [data[name].isel(text=index).transpose("n", "layer", "head", "sink", "window") for name in names]
        values = np.stack([array.values for array in stacked])
        readings.append(TextReading(str(text), tuple(names), tuple(int(n) for n in data["n"].values), values))
    return replace(summarise(readings), layers=tuple(int(layer) for layer in data["layer"].values))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with precision("float32"), np.errstate(all="ignore"):
        yield


def _some(chosen: Sequence[Text]) -> Sequence[Text]:
    if not chosen:
        raise SpecError("texts: there is none; allowed: one text or more")
    return chosen


def _windows(encoder: Tokeniser, text: Text, plan: Plan) -> Windows:
    room = plan.lengths[-1] - len(encoder.before) - len(encoder.after)
    return texts.excerpts(encoder.encode, text, room, plan.windows)


def _together(units: Iterable[Unit]) -> list[Sequence[Unit]]:
    """Units of one window: their lengths share a pass over the weights."""
    groups: dict[tuple[int, int], list[Unit]] = {}
    for unit in units:
        groups.setdefault((unit[0], unit[1]), []).append(unit)
    return [*groups.values()]


def _read(
    model: Model, plan: Plan, window: np.ndarray, group: Sequence[Unit], encoder: Tokeniser
) -> list[tuple[Unit, Values, float]]:
    """The block of values of each unit, (layers, heads, sinks, observables, statistics), and its share of the time."""
    begun = time.perf_counter()
    lengths = [plan.lengths[unit[2]] for unit in group]
    framing = len(encoder.before) + len(encoder.after)
    sequences = [encoder.framed(window[len(window) - (n - framing) :]) for n in lengths]
    shape = (len(plan.layers), model.config.heads, len(SINKS), len(observables(plan)), 2)
    blocks = [np.full(shape, np.nan) for _ in group]
    places = {layer: place for place, layer in enumerate(plan.layers)}

    def visit(number: int, view: LayerView) -> None:
        n, behind = lengths[number], len(encoder.after)
        rows = np.arange(n - behind - plan.rows, n - behind)
        blocks[number][places[view.index]] = _layer(view, rows, plan, sequences[number])

    with _quiet():
        forward.run(model, sequences, visit=visit, layers=plan.layers)
    seconds = (time.perf_counter() - begun) / len(group)
    return [(unit, values, seconds) for unit, values in zip(group, blocks, strict=True)]


def _layer(view: LayerView, rows: np.ndarray, plan: Plan, tokens: np.ndarray) -> Values:
    """(heads, sinks, observables, statistics) of one layer."""
    found = read_layer(view, rows)
    parts = np.stack([median(part) for part in np.array_split(found, min(BLOCKS, len(rows)), axis=-1)])
    errors = parts.std(axis=0, ddof=1) / np.sqrt(len(parts)) if len(parts) > 1 else np.full(parts.shape[1:], np.nan)
    statistics = np.moveaxis(np.stack([median(found), errors], axis=-1), 0, 2)
    made = [statistics, _alike(view)]
    if plan.probes:
        made.append(_gradients(view, plan, tokens))
    return np.concatenate(made, axis=2)


def _alike(view: LayerView) -> Values:
    """Effective rho of what enters the block, of queries and keys: (heads, sinks, 2 x streams, statistics)."""
    group = view.config.heads // view.config.kv_heads
    streams = (view.hidden, view.attention_input, view.queries, view.keys)
    values = np.full((view.config.heads, len(SINKS), len(RHO), 2), np.nan)
    for place, stream in enumerate(streams):
        array = np.asarray(stream)
        for drop in range(len(SINKS)):
            found = effective_rho(array[..., drop:, :])
            for kind, numbers in enumerate(found):
                own = np.repeat(numbers, group) if place == len(streams) - 1 else numbers
                values[:, drop, 2 * place + kind, 0] = own
    return values


def _gradients(view: LayerView, plan: Plan, tokens: np.ndarray) -> Values:
    """The gradient norm of each head, (heads, sinks, 1, statistics): of the layer as it is, key 0 kept."""
    values = np.full((view.config.heads, len(SINKS), 1, 2), np.nan)
    # probes of their own for every window and length: errors of the same sign in all would not average out
    seed = jax.random.fold_in(jax.random.key(plan.seed), zlib.crc32(tokens.astype("<i4").tobytes()))
    for head in range(view.config.heads):
        key = jax.random.fold_in(jax.random.fold_in(seed, view.index), head)
        found = gradient_norm(view.head_map(head), view.attention_input, key, probes=plan.probes)
        values[head, 0, 0] = np.array([found.value, found.standard_error], np.float64) / view.attention_input.size
    return values
