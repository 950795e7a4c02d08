"""Option types of the command line: numbers, counts, grids."""

from collections.abc import Callable
from typing import Any

import click

from critattn.errors import SpecError
from critattn.grids import parse_count, parse_counts, parse_grid, parse_number


class ParsedType(click.ParamType):
    """A click type that hands the text to a parser of `critattn.grids`."""

    def __init__(self, name: str, parse: Callable[[object], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The parsed value.

        Raises:
            click.BadParameter: with the one line of the parser.
        """
        if isinstance(value, tuple):
            return value
        try:
            return self._parse(value)
        except SpecError as error:
            self.fail(str(error), param, ctx)


class Number(ParsedType):
    """A finite float, optionally within [minimum, maximum]."""

    def __init__(self, minimum: float | None = None, maximum: float | None = None) -> None:
        super().__init__("number", parse_number)
        self.minimum, self.maximum = minimum, maximum

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number.

        Raises:
            click.BadParameter: outside the range, for words, NaN and infinities.
        """
        number = super().convert(value, param, ctx)
        below = self.minimum is not None and number < self.minimum
        above = self.maximum is not None and number > self.maximum
        if below or above:
            self.fail(f"{value} is out of range; allowed: {self._allowed()}", param, ctx)
        return number

    def _allowed(self) -> str:
        bounds = [(">=", self.minimum), ("<=", self.maximum)]
        return " and ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)


class Count(ParsedType):
    """A whole number >= 1: an int up to 2**53, a float beyond (`1e300`); with `many` lists and ranges too."""

    def __init__(self, *, many: bool = False) -> None:
        super().__init__("counts" if many else "count", parse_counts if many else parse_count)


class Grid(ParsedType):
    """A number, a list `1,1.5,2` or a range `0:4:81`: a float for one number, a tuple for the others."""

    def __init__(self) -> None:
        super().__init__("grid", parse_grid)
