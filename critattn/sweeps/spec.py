"""What a sweep is: tokens, layer, axes, observables; checked as a whole before anything is computed."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from critattn import layers, observables, thresholds
from critattn.attention import MEMORY_BYTES
from critattn.continuation import MAX_NODES, default_tolerance, node_counts
from critattn.errors import SpecError
from critattn.protocols import DTYPES
from critattn.storage import canonical_json, content_hash
from critattn.sweeps import choices, fields
from critattn.sweeps.axes import AXIS_READERS, OPTIONAL_AXES
from critattn.sweeps.axes import Axes as Axes
from critattn.sweeps.layer import ATTENTION_READERS, LOG_D, OPTIONAL, AttentionSpec, above, check_layer
from critattn.tokens import MAX_ENTRIES, STREAM_ABOVE

Mode = Literal["curve", "depth", "threshold"]
KINDS = ("simplex", "near-simplex", "random-scores", "opposed", "near-opposed", "file")
# Which axes each kind of tokens has; a file brings its own n and d.
TOKEN_AXES = {
    "simplex": ("n", "d", "rho"),
    "near-simplex": ("n", "d", "rho"),
    "random-scores": ("n", "rho", "tau"),
    "opposed": ("n", "d", "rho"),
    "near-opposed": ("n", "d", "rho"),
    "file": (),
}
RANDOM_KINDS = ("near-simplex", "random-scores", "near-opposed")
# kinds without tokens that are queries, keys and values at once, and what they have in their place
SCORES_ONLY = {
    "random-scores": "random-scores have none behind them",
    "opposed": "opposed have queries that differ from keys",
    "near-opposed": "near-opposed have queries that differ from keys",
}
OPPOSED = ("opposed", "near-opposed")
# a curve is continued where that saves 40 % of the measurements at least
MAX_SHARE = 0.6
SCORE_NEEDS = ("logits", "weights")
UNSTREAMED_NEEDS = ("gradient", "operator")


@dataclass(frozen=True)
class TokenSpec:
    """What the tokens are.

    Attributes:
        kind: simplex, near-simplex, random-scores, opposed, near-opposed or file.
        unit_norm: near-simplex: divide each token by its norm.
        fix_common: near-simplex: rescale the common direction to norm 1.
        norm: simplex: common norm.
        path: file: where it is.
        tensor: file: which array of it.
        rows: file: which rows, start:stop.
    """

    kind: str = "near-simplex"
    unit_norm: bool = True
    fix_common: bool = False
    norm: float = 1.0
    path: str | None = None
    tensor: str | None = None
    rows: str | None = None


@dataclass(frozen=True)
class SweepSpec:
    """A sweep: every combination of the axes, measured with the same layer family and observables.

    Attributes:
        observables: names of observables (a gamma axis, or layers) or of thresholds (no gamma axis).
        tokens: what the tokens are.
        attention: what the layer is.
        axes: the points.
        seed: seed of the tokens, >= 0.
        dtype: float32 or float64.
        memory_bytes: bound on the working memory of a block of rows.
        sample_rows: rows to measure, drawn without replacement, with standard errors; None measures all.
        exact_grid: compute every gamma of a curve, whatever it costs.
        tolerance: error allowed where gammas are interpolated, as a fraction of a curve's range; by default 1e-6 in
            float64 and 1e-5 in float32.
        title: a few words for people; no part of the identity.
        description: sentences for people; no part of the identity.
    """

    observables: tuple[str, ...]
    tokens: TokenSpec
    attention: AttentionSpec
    axes: Axes
    seed: int = 0
    dtype: str = "float64"
    memory_bytes: int = MEMORY_BYTES
    exact_grid: bool = False
    tolerance: float | None = None
    sample_rows: int | None = None
    title: str = ""
    description: str = ""

    @classmethod
    def from_table(cls, table: Mapping[str, Any], *, quick: bool = False) -> "SweepSpec":
        """The spec of a parsed study file, or of a table made from options.

        Args:
            table: keys as in `simulations/*.toml`.
            quick: let the axes of the `[quick]` table replace those of `[axes]`.

        Raises:
            SpecError: for an unknown key, a wrong value, or values that do not go together.
        """
        read = fields.read_table("", table, READERS)
        if "observables" not in read:
            raise SpecError("observables: is missing; allowed: a list of names")
        axes = {**read.pop("axes", {}), **(read.pop("quick", {}) if quick else {})}
        read.pop("quick", None)
        read.pop("kind", None)
        axes, layer = choices.settled(axes, read.pop("attention", {}))
        parts = {"tokens": TokenSpec(**read.pop("tokens", {})), "attention": AttentionSpec(**layer)}
        spec = cls(**read, **parts, axes=Axes(**axes))
        check(spec)
        return spec

    @classmethod
    def from_identity(cls, identity: Mapping[str, Any]) -> "SweepSpec":
        """The spec whose identity a store keeps; the content hash of a token file is left out.

        Raises:
            SpecError: where it is no identity of a spec.
        """
        table: dict[str, Any] = {key: value for key, value in identity.items() if not isinstance(value, Mapping)}
        for part in ("tokens", "attention", "axes"):
            kept = {key: value for key, value in dict(identity.get(part, {})).items() if value not in (None, [], ())}
            table[part] = {key: value for key, value in kept.items() if key != "sha256"}
        return cls.from_table(table)

    @property
    def mode(self) -> Mode:
        """`depth` with layers, `threshold` without an axis of gammas or laws, else `curve`."""
        if self.attention.layers:
            return "depth"
        return "curve" if self.axes.gamma or self.axes.law else "threshold"

    def with_grid(self, *, exact: bool = False, tolerance: float | None = None) -> "SweepSpec":
        """The spec with `exact_grid` and `tolerance` where they are given.

        Raises:
            SpecError: for a tolerance outside (0, 1).
        """
        given = {} if tolerance is None else fields.read_table("", {"tolerance": tolerance}, READERS)
        return dataclasses.replace(self, exact_grid=self.exact_grid or exact, **given)

    def streamed(self, n: int) -> bool:
        """Tokens are made block by block: Gaussian ones of which rows are sampled, where there are very many."""
        return self.tokens.kind == "near-simplex" and self.sample_rows is not None and n > STREAM_ABOVE

    @property
    def sampling(self) -> dict[str, Any]:
        """The sample of rows, as keyword arguments."""
        return {"sample_rows": self.sample_rows, "seed": self.seed}

    @property
    def interpolation_tolerance(self) -> float:
        """The tolerance, or the default of the dtype."""
        return default_tolerance(self.dtype) if self.tolerance is None else self.tolerance

    @property
    def node_limit(self) -> int:
        """Most gammas that a continued curve may compute: the largest nested number within 0.6 of the grid, or 0.

        It is 0, so that every point is computed, with `exact_grid`, along fewer than 55 gammas, which 17 nodes would
        rarely do for, along p, and for a study that is none of curves.
        """
        if self.exact_grid or self.mode != "curve" or self.axes.p:
            return 0
        counts = [count for count in node_counts(MAX_NODES)[2:] if count <= MAX_SHARE * len(self.axes.gamma)]
        return counts[-1] if counts else 0

    def identity(self) -> dict[str, Any]:
        """All that decides about the numbers, JSON-ready; titles are left out, and options that are not given."""
        table: dict[str, Any] = {**dataclasses.asdict(self), "tolerance": self.interpolation_tolerance}
        absent = ("title", "description", *(() if self.sample_rows else ("sample_rows",)))
        layer, axes = table["attention"], table["axes"]
        table["attention"] = {key: layer[key] for key in layer if key not in OPTIONAL or layer[key] is not None}
        if axes["normaliser"]:
            del table["attention"]["normaliser"]
        table["axes"] = {key: axes[key] for key in axes if key not in OPTIONAL_AXES or axes[key]}
        return {key: value for key, value in table.items() if key not in absent}

    def canonical(self) -> str:
        """Canonical JSON of the identity."""
        return canonical_json(self.identity())

    @property
    def hash(self) -> str:
        """sha256 of the canonical JSON."""
        return content_hash(self.identity())


def check(spec: SweepSpec) -> None:
    """Refuse a spec whose parts do not go together.

    Raises:
        SpecError: with the key, its value and what is allowed.
    """
    choices.check(spec)
    for one in choices.every(spec):
        _check_alone(one)


def _check_alone(spec: SweepSpec) -> None:
    check_layer(spec.attention)
    _check_axes(spec)
    _check_observables(spec)
    _check_exponents(spec)
    if spec.tokens.kind == "file" and not spec.tokens.path:
        raise SpecError("tokens.path: is missing; allowed: a .npy, .npz, .csv or .safetensors file")
    if spec.tokens.kind != "file" and (spec.tokens.path or spec.tokens.tensor or spec.tokens.rows):
        raise SpecError(
            f"tokens.path, tensor and rows: allowed only with tokens.kind = 'file', not {spec.tokens.kind!r}"
        )
    if spec.tokens.fix_common and spec.tokens.kind != "near-simplex":
        raise SpecError(f"tokens.fix_common: allowed only with tokens.kind = 'near-simplex', not {spec.tokens.kind!r}")
    if spec.axes.replicates > 1 and spec.tokens.kind not in RANDOM_KINDS:
        raise SpecError(f"axes.replicates = {spec.axes.replicates}: allowed: 1 where tokens are not random")
    if spec.tokens.kind != "file":
        _check_ranges(spec)
    if spec.sample_rows is not None:
        _check_sample(spec, spec.sample_rows)


def _check_axes(spec: SweepSpec) -> None:
    wanted = TOKEN_AXES[spec.tokens.kind]
    for name in ("n", "d", "rho", "tau"):
        there = bool(getattr(spec.axes, name))
        if name in wanted and not there:
            raise SpecError(f"axes.{name}: is missing; {spec.tokens.kind} tokens need {', '.join(wanted)}")
        if there and name not in wanted:
            allowed = ", ".join(wanted) or "none of n, d, rho, tau"
            raise SpecError(f"axes.{name}: is no axis of tokens.kind = {spec.tokens.kind!r}; allowed: {allowed}")
    if spec.attention.layers and not spec.axes.gamma:
        raise SpecError("axes.gamma: is missing; a sweep in depth needs it")
    if spec.attention.layers and spec.tokens.kind in SCORES_ONLY:
        raise SpecError(f"attention.layers: no tokens to iterate, {SCORES_ONLY[spec.tokens.kind]}; allowed: 0")


def _check_observables(spec: SweepSpec) -> None:
    known = {
        "curve": tuple(observables.names()),
        "depth": tuple(layers.LAYER_RECORDS),
        "threshold": (*thresholds.NAMES, *thresholds.IN_P),
    }[spec.mode]
    along = "along laws" if spec.axes.law else "along gamma"
    why = {"curve": along, "depth": "in depth", "threshold": "without a gamma axis"}[spec.mode]
    for name in spec.observables:
        if name not in known:
            raise SpecError(f"observables: {name!r} is unknown {why}; allowed: {', '.join(known)}")
    if spec.tokens.kind in SCORES_ONLY:
        _check_scores_suffice(spec)


def _check_exponents(spec: SweepSpec) -> None:
    layer, searched = spec.attention, set(spec.observables) & set(thresholds.IN_P)
    if (spec.axes.p or searched) and not layer.has_exponent:
        where = "axes.p" if spec.axes.p else f"observables: {min(searched)!r}"
        raise SpecError(f"{where}: {layer.normaliser} has no exponent; allowed with attention.normaliser that has one")
    if spec.axes.p and spec.mode != "curve":
        raise SpecError("axes.p: needs a gamma axis and attention.layers = 0; attention.p is the exponent without one")
    if layer.p is not None and (spec.axes.p or searched):
        raise SpecError(f"attention.p: {layer.p:g}; allowed without a p axis and without a search in p")
    if layer.gamma is not None and not searched:
        raise SpecError(f"attention.gamma: {layer.gamma}; allowed with {', '.join(thresholds.IN_P)}; else axes.gamma")
    if searched and spec.tokens.kind == "random-scores" and layer.gamma in (None, LOG_D):
        raise SpecError("attention.gamma: random scores have no dimension for log d; allowed: a number")


def _check_scores_suffice(spec: SweepSpec) -> None:
    for name in spec.observables:
        if spec.mode == "curve":
            suffices = observables.get(name).needs in SCORE_NEEDS
        else:
            suffices = name not in ("half_angle", "common_ratio", "effective_rho")
        if not suffices:
            raise SpecError(f"observables: {name!r} needs tokens; {SCORES_ONLY[spec.tokens.kind]}")


def _check_ranges(spec: SweepSpec) -> None:
    for n in spec.axes.n:
        for d in (n,) if isinstance(spec.axes.d, str) else spec.axes.d:
            if n * d > MAX_ENTRIES and not spec.streamed(n):
                raise SpecError(f"axes.d: {d} at n = {n}; allowed in a simulation: n d up to {MAX_ENTRIES:.3g}")
        lowest = -1.0 / (n - 1) if n > 1 else -1.0
        low = {"simplex": lowest, "random-scores": -1.0}.get(spec.tokens.kind, 0.0)
        for rho in spec.axes.rho:
            if spec.tokens.kind in OPPOSED:
                if not -1 < rho <= 0:
                    raise SpecError(f"axes.rho: {rho:g}; allowed for {spec.tokens.kind} tokens: in (-1, 0]")
            elif not low <= rho < 1:
                raise SpecError(f"axes.rho: {rho:g} at n = {n}; allowed: in [{low:.6g}, 1)")
        _check_dimensions(spec, n, lowest)
    if any(tau < 0 for tau in spec.axes.tau):
        raise SpecError(f"axes.tau: {min(spec.axes.tau):g}; allowed: >= 0")


def _check_dimensions(spec: SweepSpec, n: int, lowest: float) -> None:
    flat = all(rho == lowest for rho in spec.axes.rho)
    needs = {
        "simplex": (max(n - 1 if flat else n, 1), f"a simplex of {n} tokens", " (or d = 'n')"),
        "opposed": (n + 1, f"{n} opposed queries and keys", ""),
        "near-opposed": (2, "near-opposed tokens", ""),
    }
    needed, what, other = needs.get(spec.tokens.kind, (1, "", ""))
    for d in (n,) if isinstance(spec.axes.d, str) else spec.axes.d:
        if d < needed:
            raise SpecError(f"axes.d: {d} at n = {n}; {what} needs d >= {needed}{other}")


def _check_sample(spec: SweepSpec, rows: int) -> None:
    if spec.axes.n and rows > min(spec.axes.n):
        raise SpecError(f"sample_rows: {rows}; allowed: 2 to the smallest n = {min(spec.axes.n)}")
    if spec.mode == "depth":
        raise SpecError("sample_rows: every layer needs all tokens; allowed with attention.layers = 0")
    if spec.mode == "threshold":
        for name in spec.observables:
            if name not in thresholds.SAMPLED:
                allowed = ", ".join(thresholds.SAMPLED)
                raise SpecError(f"observables: {name!r} needs all rows; allowed with sample_rows: {allowed}")
    if not any(spec.streamed(n) for n in spec.axes.n):
        return
    if spec.attention.mask != "bidirectional":
        raise SpecError(f"attention.mask: {spec.attention.mask!r}; allowed above n = {STREAM_ABOVE}: bidirectional")
    for name in spec.observables if spec.mode == "curve" else ():
        if observables.get(name).needs in UNSTREAMED_NEEDS:
            raise SpecError(f"observables: {name!r} needs all tokens at once; allowed up to n = {STREAM_ABOVE}")


def _fraction(value: Any) -> float:
    checked = fields.number(value)
    if not 0 < checked < 1:
        raise SpecError(f"{checked:g}; allowed: above 0 and below 1")
    return checked


TOKEN_READERS = {
    "kind": fields.choice(KINDS),
    "unit_norm": fields.flag,
    "fix_common": fields.flag,
    "norm": above(0),
    "path": fields.text,
    "tensor": fields.text,
    "rows": fields.text,
}
READERS: dict[str, fields.Reader] = {
    "kind": fields.choice(("sweep",)),
    "title": fields.text,
    "description": fields.text,
    "seed": fields.whole(0),
    "dtype": fields.choice(DTYPES),
    "observables": fields.names,
    "memory_bytes": fields.whole(1_000_000),
    "exact_grid": fields.flag,
    "tolerance": _fraction,
    "sample_rows": fields.whole(2),
    "tokens": lambda table: fields.read_table("tokens", table, TOKEN_READERS),
    "attention": lambda table: fields.read_table("attention", table, ATTENTION_READERS),
    "axes": lambda table: fields.read_table("axes", table, AXIS_READERS),
    "quick": lambda table: fields.read_table("quick", table, AXIS_READERS),
}
