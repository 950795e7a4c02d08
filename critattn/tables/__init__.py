"""Tables by name: datasets that need no store, for the figures of closed forms and of number formats.

Every table is made in a few seconds. All but `format_thresholds`, which is measured where it is made, are the same on
every machine up to rounding. Each says in its attributes what it is.
"""

import difflib
from collections.abc import Callable
from typing import Any

import xarray

from critattn import provenance
from critattn.errors import SpecError
from critattn.tables import closed_forms, number_formats

PREFIX = "table:"
TABLES: dict[str, Callable[[], xarray.Dataset]] = {
    "blind_heads": number_formats.blind_heads,
    "blind_matrix": number_formats.blind_matrix,
    "family": closed_forms.family,
    "format_thresholds": number_formats.format_thresholds,
    "position_rounding": number_formats.position_rounding,
    "relu_power_weights": closed_forms.relu_power_weights,
    "scaling_laws": closed_forms.scaling_laws,
    "softplus_entropy": closed_forms.softplus_entropy,
}


def names() -> tuple[str, ...]:
    """Names of the tables, sorted."""
    return tuple(sorted(TABLES))


def make(name: str) -> xarray.Dataset:
    """The table of that name.

    Attributes of the result: `table` (its name), `title`, and `environment`, the versions that made it.

    Raises:
        SpecError: for an unknown name, with the closest one.
    """
    if name not in TABLES:
        close = difflib.get_close_matches(name, TABLES, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise SpecError(f"no table {name[:80]!r}; {hint}there is {', '.join(names())}")
    function = TABLES[name]
    facts: dict[str, Any] = {"table": name, "title": (function.__doc__ or "").splitlines()[0]}
    return function().assign_attrs(facts | {"environment": provenance.versions()})


def named(source: str) -> str | None:
    """The table that a figure's DATA asks for; None where it asks for a study."""
    return source.removeprefix(PREFIX) if source.startswith(PREFIX) else None
