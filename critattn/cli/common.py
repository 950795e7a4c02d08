"""What every command shares: settings, base classes, JSON and tables, progress, grids of arguments."""

import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from critattn.cli.options import Count, Grid, Number

__all__ = [
    "Command",
    "Count",
    "Grid",
    "Group",
    "Number",
    "Settings",
    "duration",
    "emit",
    "lines",
    "mapped",
    "outer",
    "plain",
    "progress",
    "table",
    "working",
]

SCHEMA_VERSION = 1


@dataclass
class Settings:
    """The global options of one run, shared by nested commands: an option counts wherever it stands.

    Attributes:
        quiet: no progress, no warnings.
        verbose: 0 warnings, 1 information, 2 everything in the log on stderr.
        debug: show tracebacks.
        seed: seed of everything random, >= 0.
        dtype: "float32", "float64", or None for the command's own choice.
        as_json: one JSON object on stdout and nothing else.
        given: names of the global options that were on the command line.
        begun: work has begun, so that a failing store is exit 1 rather than 2.
        go_on: the command that continues after an interrupt.
    """

    quiet: bool = False
    verbose: int = 0
    debug: bool = False
    seed: int = 0
    dtype: str | None = None
    as_json: bool = False
    given: set[str] = field(default_factory=set)
    begun: bool = False
    go_on: str = "the same command starts again"

    def dtype_or(self, default: str) -> str:
        """The dtype asked for, else the default of the command."""
        return self.dtype or default

    def begin(self, go_on: str) -> None:
        """Work that writes begins: from here a failing store or file is exit 1; Ctrl-C says how to go on."""
        self.begun, self.go_on = True, go_on


def _merge(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    given = param.name and ctx.get_parameter_source(param.name) is click.core.ParameterSource.COMMANDLINE
    if given and param.name:
        settings = ctx.ensure_object(Settings)
        settings.given.add(param.name)
        setattr(settings, param.name, value)
    return value


def _show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"critattn {installed_version()}")
        ctx.exit()


def installed_version() -> str:
    """The version of the installed package; a bare checkout without metadata says so."""
    from importlib import metadata

    try:
        return metadata.version("critattn")
    except metadata.PackageNotFoundError:
        return "0+checkout"


class GlobalOption(click.Option):
    """An option accepted by the root and by every command, collected in `Settings`."""


def _global_options() -> list[click.Parameter]:
    def option(*names: str, **how: Any) -> GlobalOption:
        return GlobalOption(names, **{"expose_value": False, "callback": _merge, **how})

    return [
        option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else."),
        option("--seed", type=click.IntRange(0, 2**63 - 1), help="Seed of everything random.  [default: 0]"),
        option("--dtype", type=click.Choice(["float32", "float64"]), help="Precision."),
        option("-q", "--quiet", is_flag=True, help="No progress and no warnings."),
        option("-v", "--verbose", count=True, help="Log on stderr; twice for more."),
        option("--debug", is_flag=True, help="Show the traceback of an error."),
        option("--version", is_flag=True, is_eager=True, callback=_show_version, help="Show the version."),
    ]


def _split_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    own, shared = [], []
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
        if record is not None:
            (shared if isinstance(param, GlobalOption) else own).append(record)
    for title, records in (("Options", own), ("Global options (before or after the command)", shared)):
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


class Command(click.Command):
    """A command that takes the global options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(_global_options())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The command's own options first, then the global ones."""
        _split_options(self, ctx, formatter)


class Group(click.Group):
    """A group that takes the global options, and so do the commands made by its decorators."""

    command_class = Command
    group_class = type

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(_global_options())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The group's own options, the global ones, then the commands."""
        _split_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)


@contextlib.contextmanager
def working(settings: Settings, go_on: str) -> Iterator[None]:
    """Mark a stretch of work that writes: from here a failing store or file is exit 1.

    Args:
        settings: the settings of this run.
        go_on: what to type to continue after Ctrl-C, such as `critattn sweep collapse`.
    """
    settings.begin(go_on)
    yield
    settings.begun = False


def plain(value: Any) -> Any:
    """A JSON-ready copy: arrays and numpy scalars become lists and numbers, NaN and infinities null."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, Sequence | set | frozenset):
        return [plain(item) for item in value]
    return str(value)


def emit(settings: Settings, payload: Mapping[str, Any], people: Any = None) -> None:
    """Write a result to stdout: JSON with --json, else a table for people.

    Args:
        settings: the settings of this run.
        payload: the stable keys and their values; `schema_version` is added.
        people: what a person sees: a rich renderable, text, or a function that makes one; by default the
            payload as a table of two columns.
    """
    if settings.as_json:
        text = json.dumps({"schema_version": SCHEMA_VERSION, **plain(payload)}, allow_nan=False)
        click.echo(text)
        return
    shown: Any = people() if callable(people) else people
    render(table(("quantity", "value"), payload.items()) if shown is None else shown)


def render(shown: Any) -> None:
    """Write text or a rich renderable to stdout; piped output is never cut to a terminal's width."""
    if isinstance(shown, str):
        click.echo(shown)
        return
    from rich.console import Console

    if sys.stdout is None:
        return
    Console(width=None if sys.stdout.isatty() else 200, highlight=False).print(shown)


def table(columns: Sequence[str], rows: Any, *, title: str | None = None) -> Any:
    """A rich table of rows; numbers get six digits, None and NaN a dash.

    Args:
        columns: the headings.
        rows: an iterable of sequences, one value a column.
        title: a line above the table.
    """
    from rich import box
    from rich.console import Group as Lines
    from rich.table import Table
    from rich.text import Text

    made = Table(*columns, box=box.SIMPLE, show_header=any(columns))
    for row in rows:
        made.add_row(*(Text(cell(value)) for value in row))
    return made if title is None else Lines(Text(title), made)


def lines(*shown: Any) -> Any:
    """Texts and rich renderables, one below the other."""
    from rich.console import Group as Lines
    from rich.text import Text

    return Lines(*(Text(one) if isinstance(one, str) else one for one in shown))


def cell(value: Any) -> str:
    """The text of one value in a table."""
    value = plain(value)
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(cell(item) for item in value[:6]) + (", ..." if len(value) > 6 else "")
    return str(value)


@contextlib.contextmanager
def progress(
    settings: Settings,
    total: int,
    description: str,
    *,
    done: int = 0,
    remaining: Callable[[], float | None] | None = None,
    note: Callable[[], str] | None = None,
) -> Iterator[Callable[..., None]]:
    """A progress bar on stderr; silent when stderr is no terminal, and with -q.

    Args:
        settings: the settings of this run.
        total: steps in all.
        description: what is at work.
        done: steps that were there before; they do not enter the remaining time.
        remaining: gives the remaining seconds, None where not yet known; by default all steps count alike.
        note: gives a few words for the end of the bar.

    Yields:
        A function that advances the bar by a number of steps (one by default).
    """
    if settings.quiet or sys.stderr is None or not sys.stderr.isatty():
        yield lambda steps=1: None
        return
    from rich import progress as bars

    *others, left = bars.Progress.get_default_columns()
    last = left if remaining is None else _column(lambda: duration(remaining()), style="progress.remaining")
    columns = [*others, last, bars.MofNCompleteColumn(), *([] if note is None else [_column(note)])]
    with bars.Progress(*columns, console=_stderr_console(), transient=True) as bar:
        task = bar.add_task(description, total=total, completed=done)
        yield lambda steps=1: bar.advance(task, steps)


def _column(words: Callable[[], str], *, style: str = "") -> Any:
    from rich import progress as bars
    from rich.text import Text

    class Words(bars.ProgressColumn):
        max_refresh = 0.5

        def render(self, task: Any) -> Text:
            return Text(words(), style=style)

    return Words()


def duration(seconds: float | None) -> str:
    """Seconds as h:mm:ss; dashes where not known."""
    if seconds is None:
        return "-:--:--"
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def _stderr_console() -> Any:
    from rich.console import Console

    return Console(stderr=True)


def outer(**values: Any) -> dict[str, Any]:
    """Arrays that broadcast to the outer product of the lists among `values`; numbers stay scalars.

    Each tuple gets an axis of its own, in the order given: a closed form called with the result returns a
    scalar for scalars, a list for one list, nested lists for several. None stays None.
    """
    import numpy as np

    lists = [name for name, value in values.items() if isinstance(value, tuple)]
    shaped = {}
    for name, value in values.items():
        if isinstance(value, tuple):
            after = len(lists) - 1 - lists.index(name)
            value = np.asarray(value, dtype=float).reshape((-1,) + (1,) * after)
        shaped[name] = value
    return shaped


def mapped(function: Callable[..., float | None], **values: Any) -> Any:
    """Call a scalar function at each point of the outer product of the lists among `values`.

    Returns:
        A number (or None) when all values are scalars, else an array with NaN where the function gave None.
    """
    import numpy as np

    shaped = outer(**values)
    lists = {name: value for name, value in shaped.items() if isinstance(value, np.ndarray)}
    if not lists:
        return function(**values)
    points = np.broadcast_arrays(*lists.values())
    result = np.empty(points[0].shape)
    for index in np.ndindex(result.shape):
        point = {name: float(array[index]) for name, array in zip(lists, points, strict=True)}
        found = function(**{**values, **point})
        result[index] = np.nan if found is None else found
    return result
