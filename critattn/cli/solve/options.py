"""Options that the models share: counts and their logarithms, and a bound on inverse temperatures."""

import math
from collections.abc import Callable
from typing import Any

import click

from critattn.cli.common import Count, Grid
from critattn.errors import SpecError
from critattn.grids import as_tuple

LARGEST_BETA = 1e150


def count_options(letter: str, what: str) -> Callable[[Callable], Callable]:
    """The pair of options `--n` and `--log-n` (or d) for a count and its natural logarithm.

    Args:
        letter: name of the count.
        what: the count in words, for the help.
    """

    def decorate(function: Callable) -> Callable:
        logarithm = click.option(f"--log-{letter}", type=Grid(), help=f"Natural logarithm of {letter}.")
        plain = click.option(f"--{letter}", type=Count(many=True), help=f"{what} (512, 1e300, 64,512).")
        return plain(logarithm(function))

    return decorate


def log_of(letter: str, count: Any, logarithm: Any, *, required: bool = True) -> Any:
    """The logarithm that a pair of options means, a float or a tuple; None where neither is given.

    Raises:
        click.UsageError: for both, or for neither where one is required.
    """
    if count is not None and logarithm is not None:
        raise click.UsageError(f"--{letter} and --log-{letter} are both given; allowed: one of them")
    if count is None and logarithm is None and required:
        raise click.UsageError(f"--{letter} is missing; allowed: --{letter} or --log-{letter}")
    if count is None:
        return logarithm
    return tuple(math.log(one) for one in count) if isinstance(count, tuple) else math.log(count)


def check_beta(option: str, values: Any, log_n: Any = 1.0) -> None:
    """Refuse an inverse temperature whose square, which enters the gradient, is beyond a float."""
    for value in () if values is None else as_tuple(values):
        if not abs(value) * max(as_tuple(log_n)) <= LARGEST_BETA:
            raise SpecError(f"--{option} = {value:g}: allowed: an inverse temperature up to {LARGEST_BETA:g}")


def floats(count: Any) -> Any:
    """A count or counts as floats."""
    return tuple(float(one) for one in count) if isinstance(count, tuple) else float(count)
