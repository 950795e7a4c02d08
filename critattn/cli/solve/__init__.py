"""`critattn solve`: closed forms and root solvers; a list or a range among the options gives lists."""

import click

from critattn.cli.common import Group
from critattn.cli.solve.normalisers import (
    entmax_command,
    power_command,
    relu_power_command,
    sigmoid_command,
    softplus_command,
)
from critattn.cli.solve.random_tokens import near_simplex_command, random_energy_command
from critattn.cli.solve.simplex import simplex_command


@click.group(cls=Group)
def command() -> None:
    """Closed forms and root solvers.

    Example: critattn solve simplex --n 8 --d 12 --rho 0.3 --gamma 1.2
    """


for _model in (
    simplex_command,
    near_simplex_command,
    random_energy_command,
    softplus_command,
    relu_power_command,
    entmax_command,
    power_command,
    sigmoid_command,
):
    command.add_command(_model)
