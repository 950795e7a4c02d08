"""`critattn extrapolate`: run a training study, and hold it beside the published tables."""

import dataclasses
import shlex
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from critattn.cli import trainings
from critattn.cli.common import Command, Settings, emit, lines, progress
from critattn.cli.extrapolate_tables import QUANTITIES, for_people, gradients, ranking_record
from critattn.errors import CritattnError, SpecError, StoreError

# windows of held-out text on which heads are read
WINDOWS = 8
# of each, at its end
ROWS = 16


@click.command(cls=Command)
@click.argument("study")
@click.option("--quick", is_flag=True, help="The study's quick table: few variants, seconds to minutes each.")
@click.option("--preset", help="Other sizes: smoke, small, small-text or paper.")
@trainings.size_options
@click.option("--seeds", help="Other seeds, such as 0,1,2.")
@click.option("--variants", help="Only some of the study's variants, such as softmax-rope,lssa.")
@click.option("--out", help="Folder of the runs.  [default: training in $CRITATTN_STORE or ./runs]")
@click.option("--corpus", "text", help="Folder of *.py files to train on.  [default: this Python's library]")
@click.option("--no-train", is_flag=True, help="Show what is there, and train nothing.")
@click.option("--csv", help="Write the table to this file as well.")
@click.option("--heads", is_flag=True, help="Also hold the trained heads against the theory of their transitions.")
@click.option("--recorded", is_flag=True, help="Show the results that come with the package, and train nothing.")
@click.pass_obj
def command(settings: Settings, *, study: str, quick: bool, **options: Any) -> None:
    """Train what is missing of a training study, and show loss and retrieval at and beyond the training length.

    STUDY is a name of critattn studies whose kind is training, or a .toml file. Means over seeds with Student's 95 %
    intervals, the order of the variants here beside the published one, and the gradients of queries and keys where the
    study has several gammas. Stopped at any moment, it goes on.

    Example: critattn extrapolate length_extrapolation --recorded

    Example: critattn extrapolate normaliser_ablation --recorded --heads

    Example: critattn extrapolate passkey --quick

    Example: critattn extrapolate alibi_mitigations --seeds 0,1 --variants softmax-alibi,alibi-log
    """
    if options["recorded"] and any(options[name] is not None for name in ("out", "text", "steps")):
        raise click.UsageError("--recorded: takes no --out, --corpus or --steps; --no-train reads another folder")
    trainings.in_float32(settings)
    flags = {name: options.pop(name) for name in trainings.FLAGS}
    options["preset"] = trainings.chosen(options["preset"], **flags)
    asked = Asked(settings, study, quick, options)
    wanted = asked.experiment()
    asked.check_csv()
    diverged = [] if options["recorded"] or options["no_train"] else asked.train(wanted)
    found = asked.payload(wanted, diverged)
    # what stops the heads must not keep the tables back
    failed = asked.add_heads(wanted, found) if options["heads"] else None
    emit(settings, found, lambda: lines(*for_people(found), _see(asked, found)))
    if options["csv"]:
        asked.write_csv(found)
    if diverged:
        named = ", ".join(f"{one['variant']} seed {one['seed']}" for one in diverged)
        raise click.ClickException(f"{len(diverged)} of {found['runs']} runs diverged: {named}")
    if failed is not None:
        raise failed


@dataclass(frozen=True)
class Asked:
    """What was asked for.

    Attributes:
        settings: the settings of this run.
        study: name or file.
        quick: with its quick table.
        options: of the command.
    """

    settings: Settings
    study: str
    quick: bool
    options: dict[str, Any]

    @property
    def command(self) -> str:
        """What to type to do it, or to go on."""
        given: dict[str, Any] = {"--quick": self.quick or None}
        keys = ("preset", "seeds", "variants", "steps", "out", "text", "no_train", "recorded")
        names = {"text": "--corpus", "no_train": "--no-train"}
        given |= {f"--{key}": self.options[key] or None for key in ("heads", "csv")}
        given |= {names.get(key, f"--{key}"): self.options[key] or None for key in keys}
        given["--seed"] = self.settings.seed if "seed" in self.settings.given else None
        parts = [(key,) if value is True else (key, str(value)) for key, value in given.items() if value is not None]
        return shlex.join(["critattn", "extrapolate", self.study, *(word for part in parts for word in part)])

    def experiment(self) -> Any:
        """The study with what the options change.

        Raises:
            SpecError: for a study, preset, seed or variant that is not there.
        """
        from critattn.training.experiments import experiment
        from critattn.training.presets import preset

        options = self.options
        wanted = experiment(self.study, quick=self.quick)
        sizes = wanted.preset if options["preset"] is None else preset(options["preset"])
        sizes = sizes if options["steps"] is None else sizes.with_steps(options["steps"])
        variants = None if options["variants"] is None else _names(options["variants"])
        return wanted.changed(preset=sizes, seeds=self._seeds(), variants=variants)

    def _seeds(self) -> tuple[int, ...] | None:
        one = "seed" in self.settings.given
        if self.options["seeds"] is None:
            return (self.settings.seed,) if one else None
        if one:
            raise click.UsageError("--seeds and --seed: allowed: one of them")
        return _whole(self.options["seeds"])

    @property
    def folder(self) -> Any:
        """Where the runs lie."""
        from critattn.training.experiments import RECORDED

        return RECORDED if self.options["recorded"] else trainings.root(self.options["out"])

    def train(self, wanted: Any) -> list[dict[str, Any]]:
        """Do the runs that are missing; those that diverged.

        Raises:
            StoreError: where files cannot be read or written, or are of another configuration.
        """
        trainings.need()
        from critattn.training import records

        corpus, folder = trainings.corpus(self.options["text"]), self.folder
        trainings.check_folder(folder, wanted.preset.name)
        runs = wanted.runs(folder)
        absent = records.missing(runs, corpus)
        self.settings.begin(self.command)
        if len(absent) < len(runs) and not self.settings.quiet:
            click.echo(f"{wanted.name}: {len(runs) - len(absent)} of {len(runs)} runs are there", err=True)
        follow = trainings.Follow(self.settings, len(absent))
        with follow.stack:
            lost = records.perform_all(absent, corpus, progress=follow, command=self.command)
        return [{"variant": run.variant.name, "seed": run.seed} for run in lost]

    def payload(self, wanted: Any, diverged: list[dict[str, Any]]) -> dict[str, Any]:
        """The stable keys.

        Raises:
            StoreError: where nothing is there.
        """
        from critattn.training import collected, results
        from critattn.training.ranking import METHOD, rankings

        found = collected.records(wanted, self.folder)
        if not found and not diverged:
            raise self._nothing(wanted)
        data = collected.dataset(wanted, found)
        there = {(one["config"]["variant"]["name"], one["config"]["seed"]) for one in found}
        runs = [(run.variant.name, run.seed) for run in wanted.runs(self.folder)]
        return {
            "study": wanted.name,
            "title": wanted.title,
            "preset": wanted.preset.name,
            "length": wanted.preset.shape.length,
            "seeds": list(wanted.seeds),
            "variants": [one.name for one in wanted.variants],
            "measures": list(wanted.measures),
            "runs": len(runs),
            "missing": [{"variant": name, "seed": seed} for name, seed in runs if (name, seed) not in there],
            "diverged": diverged,
            "table": results.as_json(results.table(found)),
            "ranking": [ranking_record(one) for one in rankings(data)],
            "ranking_interval": METHOD,
            "gradients": gradients(found),
            "heads": [],
            "corpora": sorted({one["config"]["corpus"] for one in found}),
            "folder": str(self.folder),
            "command": self.command,
        }

    def check_csv(self) -> None:
        """Refuse a --csv that cannot be written, before anything is trained.

        Raises:
            StoreError: for a folder, a device, or a file in a folder that cannot be written.
            SpecError: for an empty one.
        """
        from critattn.cli.report import writable
        from critattn.training import results

        if self.options["csv"] is None:
            return
        if not self.options["csv"]:
            raise SpecError("--csv '': names no file; allowed: a file")
        file = Path(self.options["csv"])
        problem = _no_file(file)
        if problem is not None:
            raise StoreError(f"--csv {str(file)!r}: {problem}; allowed: a file")
        try:
            writable(results.behind(file).parent)
        except StoreError as error:
            raise StoreError(str(error).replace("--out", "--csv", 1)) from None

    def write_csv(self, found: dict[str, Any]) -> None:
        """Write the table of a payload to the file of --csv.

        Raises:
            StoreError: where it cannot be written.
        """
        from critattn.training import results

        results.write_csv(Path(self.options["csv"]), (results.Row(**row) for row in found["table"]))

    def add_heads(self, wanted: Any, found: dict[str, Any]) -> CritattnError | None:
        """Put where heads stand into a payload: as recorded, or read now and written beside the runs.

        Returns:
            What stopped the reading or the writing; what was read before is in the payload.
        """
        from critattn.training import heads, verdicts

        there = {(one["variant"], one["seed"]) for one in found["missing"]}
        runs = [run for run in wanted.runs(self.folder) if (run.variant.name, run.seed) not in there]
        read: list[Any] = []
        failed: CritattnError | None = None
        try:
            for lines in map(heads.read, runs) if self.options["recorded"] else self._read_heads(wanted, runs):
                read += lines
            if not read:
                failed = SpecError(f"study {wanted.name!r}: no heads of its runs come with this package")
        except CritattnError as error:
            failed = error
        order = [one.name for one in wanted.variants]
        found["heads"] = verdicts.by_variant(sorted(read, key=lambda one: (order.index(one.variant), one.seed)))
        return failed

    def _read_heads(self, wanted: Any, runs: list[Any]) -> Iterator[list[Any]]:
        """The heads of every run whose weights are there, on held-out text of the training length; writes them.

        Raises:
            StoreError: where no weights are there, or some cannot be read; where heads cannot be written.
        """
        trainings.need()
        from critattn.training import heads, validation
        from critattn.training.evaluation import blocks

        there = [run for run in runs if run.file(".npz").exists()]
        if not there:
            raise StoreError(
                f"study {wanted.name!r}: no weights are there in {str(self.folder)!r}; a run is trained again "
                "where its record is deleted"
            )
        corpus = trainings.corpus(self.options["text"])
        n = wanted.preset.shape.length
        texts = list(blocks(corpus.held_out, n - 1, WINDOWS).astype("int32"))
        with progress(self.settings, len(there), "heads") as advance:
            for run in there:
                known = heads.known(run, corpus.sha256)
                made = known or validation.of_run(run, texts, corpus.sha256, rows=min(ROWS, n // 2))
                yield made
                if not known:
                    heads.write(run, made)
                advance()

    def _nothing(self, wanted: Any) -> Exception:
        shown = dict.fromkeys(("recorded", "no_train", "heads", "csv"))
        how = f"train with: {dataclasses.replace(self, options={**self.options, **shown}).command}"
        if not self.options["recorded"]:
            return StoreError(f"study {wanted.name!r}: nothing is there in {str(self.folder)!r}; {how}")
        sizes = f"of the preset {wanted.preset.name!r}"
        if any((self.folder / wanted.preset.name).glob("*-seed*.json")):
            chosen = f" for {', '.join(one.name for one in wanted.variants)}" if self.options["variants"] else ""
            seeds = f"{'seed' if len(wanted.seeds) == 1 else 'seeds'} {', '.join(map(str, wanted.seeds))}"
            sizes = f"{sizes}{chosen} with {seeds}"
        return SpecError(f"study {wanted.name!r}: no results {sizes} come with this package; {how}")


def _no_file(path: Path) -> str | None:
    """Why a path is nothing to write a table to, None where it can be one; a link stands for what is behind it."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return f"cannot be written: {error.strerror}"
    if stat.S_ISDIR(mode):
        return "is a folder"
    return None if stat.S_ISREG(mode) else "is no regular file"


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",")))


def _whole(text: str) -> tuple[int, ...]:
    from critattn.training.presets import MOST_SEED

    parts = [part.lstrip("0") or "0" for part in _names(text) if part.isdecimal()]
    # the length first: int() refuses thousands of digits with an error of its own
    small = (len(part) <= len(str(MOST_SEED)) and int(part) <= MOST_SEED for part in parts)
    if len(parts) < len(_names(text)) or not all(small):
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        raise click.UsageError(f"--seeds {shown!r}: allowed: whole numbers from 0 to {MOST_SEED}, such as 0,1,2")
    return tuple(dict.fromkeys(int(part) for part in parts))


def _see(asked: Asked, found: dict[str, Any]) -> str:
    """The commands that draw it, where the figures find these results."""
    usual = ("preset", "seeds", "variants", "steps", "out")
    other = any(asked.options[key] for key in usual) or "seed" in asked.settings.given
    if other or asked.study.endswith(".toml") or found["missing"]:
        return f"runs: {found['folder']}"
    flag = " --quick" if asked.quick else ""
    retrieved = any(row["quantity"] in QUANTITIES for row in found["table"])
    drawn = {
        "loss_against_length": True,
        "retrieval_against_distance": retrieved,
        "ranking": found["ranking"],
        "gradient_in_training": found["gradients"],
        "trained_transitions": found["heads"],
    }
    names = " ".join(name for name, there in drawn.items() if there)
    return f"runs: {found['folder']}; figures: critattn figures {names} --experiment {found['study']}{flag}"
