"""`critattn sweep`: run or resume a study, or a sweep given by options."""

import contextlib
import dataclasses
import re
import shlex
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from critattn import scaling, storage
from critattn.cli.common import Command, Settings, emit, lines, progress, table
from critattn.errors import SpecError
from critattn.sweeps import Forecast, Refinement, SweepSpec, load_study, run_sweep, store_path
from critattn.sweeps.axes import CATEGORICAL
from critattn.sweeps.refining import MAX_POINTS, check_refinable, refine_sweep
from critattn.sweeps.spec import SCORES_ONLY

REFINEMENT_KEYS = ("rounds", "points", "largest_change", "converged", "reason")
OF_WEIGHTS = "self_weight,entropy,participation_ratio"
CURVE = f"{OF_WEIGHTS},angle_ratio"
THRESHOLD = "half_weight"
# option -> (table of the spec, key)
PLACES = {
    "n": ("axes", "n"),
    "d": ("axes", "d"),
    "rho": ("axes", "rho"),
    "tau": ("axes", "tau"),
    "gamma": ("axes", "gamma"),
    "p": ("axes", "p"),
    "replicates": ("axes", "replicates"),
    "tokens": ("tokens", "kind"),
    "fix_common": ("tokens", "fix_common"),
    "file": ("tokens", "path"),
    "tensor": ("tokens", "tensor"),
    "rows": ("tokens", "rows"),
    "normaliser": ("attention", "normaliser"),
    "mask": ("attention", "mask"),
    "law": ("attention", "law"),
    "length": ("attention", "length"),
    "identity_weight": ("attention", "identity_weight"),
    "attention_weight": ("attention", "attention_weight"),
    "layers": ("attention", "layers"),
    "alpha": ("attention", "alpha"),
    "stage_one": ("attention", "stage_one"),
    "bias": ("attention", "bias"),
    "bias_factor": ("attention", "bias_factor"),
    "offset_free_rows": ("attention", "offset_free_rows"),
    "qk_norm": ("attention", "qk_norm"),
}
IN_P = "half_weight_p"
TOP = ("sample_rows",)


@click.command(cls=Command)
@click.argument("study", required=False)
@click.option("--n", help="Numbers of tokens: 64,512,1e4.")
@click.option("--d", help="Dimensions, or n for d = n.")
@click.option("--rho", help="Cosines: a number, a list or a range start:stop:points; opposed: scores, --rho=-0.3,-0.1.")
@click.option("--tau", help="Standard deviations of random scores.")
@click.option("--gamma", help="Coefficients of log n, such as 0:4:81; without it thresholds are searched.")
@click.option("--p", help="Exponents of relu-power or power, such as 1:30:30, beside --gamma.")
@click.option("--replicates", type=int, help="Independent draws of each token set.")
@click.option(
    "--tokens", help="simplex, near-simplex, random-scores, opposed, near-opposed or file.  [default: near-simplex]"
)
@click.option("--fix-common", is_flag=True, default=None, help="Near-simplex: fix the common direction's norm.")
@click.option("--file", help="Tokens from this file.")
@click.option("--tensor", help="Which array of the file.")
@click.option("--rows", help="Which rows of the file, start:stop.")
@click.option("--normaliser", help="Map from logits to weights; several: softmax,entmax.  [default: softmax]")
@click.option("--alpha", help="Exponent of entmax.  [default: 1.5]")
@click.option("--stage-one", help="First stage of relu-power.  [default: softplus-l1]")
@click.option("--bias", help="Subtract this from the scores before they are scaled.")
@click.option("--bias-factor", help="B of sigmoid and sigmoid-l1: bias -B log n.  [default: 1]")
@click.option("--offset-free-rows", type=int, help="relu-power with --causal: first rows without offset.")
@click.option("--causal", "mask", flag_value="causal", default=None, help="Causal mask.")
@click.option("--law", help="Scaling law; those of the catalogue take no gamma: ssmax,llama-4.  [default: log-n]")
@click.option("--qk-norm", help="|q||k| under laws of the catalogue.  [default: of the law, such as d]")
@click.option("--length", help="Length that enters log n: sequence or row.  [default: sequence]")
@click.option("--identity-weight", help="a of x' = a x + b ATT.  [default: 0]")
@click.option("--attention-weight", help="b of x' = a x + b ATT.  [default: 1]")
@click.option("--layers", type=int, help="Iterate this many layers.")
@click.option("--sample-rows", type=int, help="Measure this many rows of each token set, with standard errors.")
@click.option("--observables", help=f"Comma-separated names.  [default: {CURVE}]")
@click.option("--exact-grid", is_flag=True, help="Compute every gamma; none is interpolated.")
@click.option(
    "--tolerance",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Error allowed of interpolated gammas, as a fraction of a curve's range.",
)
@click.option("--quick", is_flag=True, help="The study's quick axes, in a store of their own.")
@click.option("--fresh", is_flag=True, help="Compute every unit again.")
@click.option("--store", help="Folder of the stores.  [default: $CRITATTN_STORE or ./runs]")
@click.option("--cluster", "address", help="Run on a Dask cluster: a scheduler's address, or local to start one.")
@click.option("--refine", type=float, help="Add points until neighbouring thresholds differ by less, such as 0.02.")
@click.option("--refine-max", type=int, help=f"Most points that --refine may reach.  [default: {MAX_POINTS}]")
@click.pass_obj
def command(
    settings: Settings,
    *,
    study: str | None,
    exact_grid: bool,
    tolerance: float | None,
    quick: bool,
    fresh: bool,
    store: str | None,
    address: str | None,
    refine: float | None,
    refine_max: int | None,
    **options: Any,
) -> None:
    """Run a study, or what is missing of it; or a sweep of your own, given by options.

    STUDY is a name of `critattn studies`, or a .toml file.

    Example: critattn sweep order_parameters --quick

    Example: critattn sweep --gamma 0:4:41 --n 512 --d 32 --rho 0.5 --replicates 4

    Example: critattn sweep --gamma 0:4:81 --n 1e5,1e6 --d 64 --rho 0.5 --sample-rows 512 --dtype float32

    Example: critattn sweep --normaliser relu-power --gamma 4 --p 1:15:15 --n 512 --d 64 --rho 0.3

    Example: critattn sweep --normaliser relu-power --observables half_weight_p --n 512 --d 16,64 --rho 0.3

    Example: critattn sweep --normaliser softmax,softplus-l1,entmax --gamma 0:6:61 --n 256 --d 32 --rho 0.3

    Example: critattn sweep --law constant,ssmax,llama-4 --n 64,256,1024 --d 64 --rho 0.3

    Example: critattn sweep --tokens opposed --normaliser softplus-l1 --gamma 0:6:61 --n 256 --d 257 --rho=-0.3

    Example: critattn sweep --n 256 --d 4,256 --rho 0.5 --replicates 4 --refine 0.05
    """
    name, spec = _asked_for(study, options, quick=quick)
    spec = with_globals(settings, spec).with_grid(exact=exact_grid, tolerance=tolerance)
    name = name or f"sweep-{spec.hash[:8]}"
    path = store_path(name, quick=quick, root=store)
    plan = Plan(spec, path, fresh=fresh, address=address, refine=refine, refine_max=refine_max)
    how = {"quick": quick, "exact_grid": exact_grid, "tolerance": tolerance, "store": store}
    how |= {"cluster": address, "refine": refine, "refine_max": refine_max}
    emit_run(settings, plan, name, go_on=_again(settings, study, how))


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to run, where and how; refinement is checked at once.

    Attributes:
        spec: the sweep.
        path: its store.
        fresh: compute every unit again.
        address: of a Dask cluster; None runs in this process.
        refine: relative change allowed between neighbouring thresholds; None leaves the axes as they are.
        refine_max: most points that refinement may reach.
    """

    spec: SweepSpec
    path: Path
    fresh: bool = False
    address: str | None = None
    refine: float | None = None
    refine_max: int | None = None

    def __post_init__(self) -> None:
        if self.refine is None:
            if self.refine_max is not None:
                raise click.UsageError("--refine-max needs --refine")
            return
        if self.fresh:
            raise click.UsageError("--fresh and --refine do not go together: delete the stores in place of --fresh")
        try:
            check_refinable(self.spec, self.refine, self.most)
        except SpecError as error:
            raise SpecError(f"--{error}") from None

    @property
    def most(self) -> int:
        """Most points that refinement may reach."""
        return MAX_POINTS if self.refine_max is None else self.refine_max

    def carry_out(self, run: Callable[[SweepSpec, Path], Any]) -> tuple[SweepSpec, Path, Any, Refinement | None]:
        """The sweep with its last axes, its store and data, and how the refinement went."""
        if self.refine is None:
            return self.spec, self.path, run(self.spec, self.path), None
        done = refine_sweep(self.spec, self.path, tolerance=self.refine, max_points=self.most, run=run)
        return done.spec, done.store, done.data, done


def emit_run(settings: Settings, plan: Plan, name: str, *, go_on: str) -> None:
    """Carry out a plan, round by round where it refines, and show what came out."""
    begun = time.perf_counter()
    rounds: list[Tell] = []
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(_executor(plan.address)) if plan.address else None

        def run(spec: SweepSpec, path: Path) -> Any:
            forecast = Forecast()
            rounds.append(Tell(settings, path.name if rounds else name, go_on, forecast))
            how = {"resume": not plan.fresh, "executor": pool, "progress": rounds[-1], "forecast": forecast}
            with rounds[-1].stack:
                return run_sweep(spec, path, **how)

        spec, path, data, refined = plan.carry_out(run)
    found = {
        "study": name,
        "store": str(path),
        "spec_hash": data.attrs["spec_hash"],
        "mode": spec.mode,
        "units": rounds[-1].total,
        "units_reused": rounds[-1].before,
        "seconds": round(time.perf_counter() - begun, 3),
        "observables": summary(data),
        "refinement": refined and {key: getattr(refined, key) for key in REFINEMENT_KEYS},
    }
    emit(settings, found, lambda: _for_people(found))


def _executor(address: str) -> Any:
    from critattn import cluster

    return cluster.executor(address)


class Tell:
    """Follows a run: marks that work has begun, says what was there, moves the bar."""

    def __init__(self, settings: Settings, name: str, go_on: str, forecast: Forecast | None = None) -> None:
        self.settings, self.name, self.go_on = settings, name, go_on
        self.remaining = forecast.seconds if forecast else None
        self.total = self.before = self.done = 0
        self.stack = contextlib.ExitStack()
        self.advance: Callable[..., None] | None = None

    def __call__(self, done: int, total: int) -> None:
        """What `run_sweep` calls with units done and units in all."""
        if self.advance is None:
            self._start(done, total)
        elif done > self.done:
            self.advance(done - self.done)
        self.done = done

    def _start(self, done: int, total: int) -> None:
        self.settings.begin(self.go_on)
        self.before, self.total = done, total
        if done and not self.settings.quiet:
            click.echo(f"{self.name}: {done} of {total} units are there", err=True)
        bar = progress(self.settings, total, self.name, done=done, remaining=self.remaining)
        self.advance = self.stack.enter_context(bar)


def summary(data: Any) -> list[dict[str, Any]]:
    """For each observable of a dataset its name, dimensions, and smallest and largest value."""
    names = [name for name in data.data_vars if f"{name}_se" in data]
    return [
        {"name": name, "sizes": dict(data[name].sizes), "min": data[name].min().item(), "max": data[name].max().item()}
        for name in names
    ]


def _asked_for(study: str | None, options: dict[str, Any], *, quick: bool) -> tuple[str, SweepSpec]:
    given = {name: value for name, value in options.items() if value is not None}
    if study is not None:
        if given:
            option = next(iter(given)).replace("_", "-").replace("mask", "causal")
            raise click.UsageError(f"--{option} is for a sweep of your own; the study {study!r} brings its axes")
        loaded = load_study(study)
        return loaded.name, loaded.spec(quick=quick)
    if not given:
        raise click.UsageError(
            "give a STUDY (see critattn studies), or a sweep: --gamma 0:4:41 --n 512 --d 32 --rho 0.5"
        )
    if quick:
        raise click.UsageError("--quick is for a study; a sweep of your own has no quick axes")
    try:
        return "", SweepSpec.from_table(_table(given))
    except SpecError as error:
        raise SpecError(re.sub(r"\b(axes|tokens|attention)\.(\w+)|\bsample_rows\b", _as_option, str(error))) from None


def _as_option(key: re.Match[str]) -> str:
    options = {place: option for option, place in PLACES.items()}
    options |= {("attention", option): option for option in ("p", "gamma")}
    options |= {("axes", option): option for option in CATEGORICAL}
    option = options.get((key[1], key[2]), key[0])
    return f"--{option.replace('_', '-').replace('mask', 'causal')}"


def _table(given: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"tokens": {}, "attention": {}, "axes": {}}
    for option, value in given.items():
        if option in PLACES:
            section, key = _place(option, given)
            made[section][key] = value
        elif option in TOP:
            made[option] = value
    made["tokens"].setdefault("kind", "file" if "file" in given else "near-simplex")
    made["observables"] = given.get("observables") or _observables(given)
    return made


def _place(option: str, given: Mapping[str, Any]) -> tuple[str, str]:
    """Table and key of an option; p without gammas, and gamma where p is searched, belong to the layer.

    Several normalisers are an axis, and so are laws of the catalogue.
    """
    names = [name.strip() for name in str(given[option]).split(",")]
    catalogued = option == "law" and set(names) - set(scaling.names())
    if catalogued or (option == "normaliser" and len(names) > 1):
        return "axes", option
    searched = IN_P in str(given.get("observables", ""))
    single = (option == "p" and "gamma" not in given) or (option == "gamma" and searched)
    return ("attention", option) if single else PLACES[option]


def _observables(given: dict[str, Any]) -> str:
    if given.get("layers"):
        return "cosine"
    if "gamma" not in given and _place("law", {"law": "log-n", **given})[0] != "axes":
        return THRESHOLD
    return OF_WEIGHTS if given.get("tokens") in SCORES_ONLY else CURVE


def with_globals(settings: Settings, spec: SweepSpec) -> SweepSpec:
    """The spec with --seed and --dtype, where they were given."""
    changes = {name: getattr(settings, name) for name in ("seed", "dtype") if name in settings.given}
    return dataclasses.replace(spec, **changes)


def _again(settings: Settings, study: str | None, how: Mapping[str, Any]) -> str:
    """The command that goes on: all that decides about the data, and where it runs."""
    if study is None:
        return "the same command goes on where it stopped"
    given = {name: getattr(settings, name) for name in ("seed", "dtype") if name in settings.given}
    parts = ["critattn", "sweep", study]
    for name, value in {**how, **given}.items():
        if value is not None and value is not False:
            parts += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join(parts)


def _for_people(found: dict[str, Any]) -> Any:
    rows = [
        (item["name"], " x ".join(f"{dim} {size}" for dim, size in item["sizes"].items()), item["min"], item["max"])
        for item in found["observables"]
    ]
    store = Path(found["store"])
    title = f"{found['study']}: {found['units']} units in {store}, {found['units_reused']} of them reused"
    return lines(table(("observable", "axes", "min", "max"), rows, title=title), *_endings(found, store))


def _endings(found: dict[str, Any], store: Path) -> list[str]:
    """How the refinement went, and which commands show the results."""
    refined = found["refinement"]
    ended = []
    if refined:
        left = refined["reason"] or f"beyond noise neighbours differ by at most {refined['largest_change']:.2g}"
        ended.append(f"refined in {refined['rounds']} rounds to {refined['points']} points: {left}")
    place = "" if store.parent == storage.store_root() else f" --store {shlex.quote(str(store.parent))}"
    name = f"{shlex.quote(store.name)}{place}"
    searched = found["mode"] != "depth" and not any("law" in item["sizes"] for item in found["observables"])
    located = "" if not searched else f"; thresholds: critattn threshold {name}"
    return [*ended, f"See: critattn store show {name}{located}"]
