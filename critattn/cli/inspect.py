"""`critattn inspect`: a trained model's heads on the phase diagram."""

import re
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from critattn.cli.common import Command, Number, Settings, emit
from critattn.cli.inspect_lines import for_people
from critattn.errors import SpecError

LENGTHS = (128, 256, 512, 1024)
PROTEIN_LENGTHS = (32, 64, 104)
# lengths over the training length at which blind pairs of ALiBi are counted besides
BEYOND = (4, 16)
FACTORS = (0.5, 0.7, 0.85, 1.0, 1.2, 1.4, 1.7, 2.0)


@click.command(cls=Command)
@click.argument("name", metavar="MODEL")
@click.option("--text", "texts", multiple=True, help="topics, stdlib, licence or a UTF-8 file.  [default: those three]")
@click.option(
    "--length", "lengths", help="Lengths n, such as 128,1024.  [default: 128,256,512,1024, as far as it goes]"
)
@click.option("--windows", type=int, help="Windows of each text.  [default: 2]")
@click.option("--rows", type=int, help="Query rows at the end of each window.  [default: 16]")
@click.option("--layers", help="Layers to read, such as 0,5,29.  [default: all]")
@click.option("--gradient-probes", type=int, help="Probes of each head's gradient norm; 0: none.  [default: 2]")
@click.option("--advise", is_flag=True, help="Recommend a scaling law for --target-length (a heuristic).")
@click.option("--target-length", type=Number(), help="--advise: the longest row wanted.")
@click.option("--train-length", type=Number(), help="--advise: the length whose operating point is kept.")
@click.option("--sweep-scale", is_flag=True, help="Perplexity with the logits multiplied by --factors.")
@click.option("--factors", help="--sweep-scale: positive factors t.  [default: 0.5,0.7,0.85,1,1.2,1.4,1.7,2]")
@click.option("--law", help="--sweep-scale: a law of the catalogue besides the factors, such as ssmax.")
@click.option("--html", "page", help="Write one self-contained page with the map of heads and the table.")
@click.option("--store", help="Folder of the stores.  [default: $CRITATTN_STORE or ./runs]")
@click.pass_obj
def command(settings: Settings, *, name: str, **options: Any) -> None:
    """Read every attention head of a trained model: below, near or above its own critical temperature.

    MODEL is a folder or file of weights (safetensors, GGUF, torch), or smollm2, minilm, antiberty where these are
    installed (critattn models), or a decoder trained here: trained:NAME or its npz file. For each layer, head and
    length: t_c, the factor on the logits at which the typical row has half of its weight on one key (below 1 it has
    more than that already), its prediction from the statistics of the scores, entropies, the sink, effective rho,
    gradient norm, and what number formats lose.

    Example: critattn inspect minilm --length 64,128,256

    Example: critattn inspect trained:lssar-p15

    Example: critattn inspect smollm2 --advise --target-length 16384

    Example: critattn inspect smollm2 --sweep-scale --length 128,512 --html smollm2.html
    """
    from critattn.models import fidelity

    _check(options)
    page = None if options["page"] is None else _page(options["page"])
    model, encoder = _opened(name)
    job = _Job(settings, name, model, encoder, options)
    data = job.read()
    gate = fidelity.check(model)
    found = job.payload(data, gate)
    if page is not None:
        from critattn.cli.inspect_page import write

        write(page, found, data)
        found["page"] = str(page)
    emit(settings, found, lambda: for_people(found))
    if gate.passed is False:
        raise click.ClickException(f"{name}: {gate.text}")


def _opened(name: str) -> tuple[Any, Any]:
    """A model and its tokeniser; only a decoder trained here needs the packages that train."""
    from critattn.models import opening

    if opening.located(name).suffix != opening.DECODER:
        return opening.opened(name)
    from critattn.cli import trainings

    trainings.need("reading a decoder trained here")
    from critattn.training import inspected

    return inspected.opened(name)


def _check(options: dict[str, Any]) -> None:
    """Refuse options that do not go together."""
    for option, owner in (
        ("target_length", "advise"),
        ("train_length", "advise"),
        ("factors", "sweep_scale"),
        ("law", "sweep_scale"),
    ):
        if options[option] is not None and not options[owner]:
            raise click.UsageError(f"--{option.replace('_', '-')} is for --{owner.replace('_', '-')}")
    if options["advise"] and options["target_length"] is None:
        raise click.UsageError("--advise needs --target-length")


def _page(given: str) -> Path:
    path = Path(given)
    if path.suffix.lower() not in (".html", ".htm"):
        raise click.UsageError(f"--html {given!r}: allowed: a file that ends in .html")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise click.UsageError(f"--html {given!r}: {'is a folder' if path.is_dir() else 'its folder is not there'}")
    return path


def whole(option: str, text: str | None) -> tuple[int, ...]:
    """Whole numbers of a comma-separated option; empty where it was not given."""
    if text is None:
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise click.UsageError(f"{option} {text!r}: allowed: whole numbers, such as 0,5") from None


def positive(option: str, text: str) -> tuple[float, ...]:
    """Positive numbers of a comma-separated option.

    Raises:
        UsageError: for anything else.
    """
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(0 < one < float("inf") for one in found):
        raise click.UsageError(f"{option} {text!r}: allowed: positive numbers, such as 0.5,1,2")
    return found


class _Job:
    """One inspection: what was asked for, and its parts."""

    def __init__(self, settings: Settings, name: str, model: Any, encoder: Any, options: dict[str, Any]) -> None:
        from critattn.models import texts

        self.settings, self.name, self.model, self.encoder, self.options = settings, name, model, encoder, options
        self.protein = encoder.kind == "amino acids"
        given = options["texts"]
        self.texts = texts.texts(given) if given else texts.proteins() if self.protein else texts.texts()
        self.plan = self._plan().checked(model)
        self.own = any(options[key] is not None for key in ("lengths", "windows", "rows", "layers", "gradient_probes"))
        self.label = self._label()
        # what is asked for afterwards is refused before the long work
        self.train, self.factors = self._advisable(), self._sweepable()

    def _plan(self) -> Any:
        from critattn.models.inspection import Plan

        given, config = self.options, self.model.config
        usual = PROTEIN_LENGTHS if self.protein else LENGTHS
        fitting = tuple(n for n in usual if n <= config.max_length) or (config.max_length,)
        fitting = self.model.usual_lengths or fitting
        return Plan(
            lengths=whole("--length", given["lengths"]) or fitting,
            windows=(1 if self.protein else 2) if given["windows"] is None else given["windows"],
            rows=16 if given["rows"] is None else given["rows"],
            layers=whole("--layers", given["layers"]),
            probes=2 if given["gradient_probes"] is None else given["gradient_probes"],
            seed=self.settings.seed,
        )

    def _label(self) -> str:
        """The store's name: of the model alone where all is as by default, else with a hash of what differs."""
        from critattn.models.inspection import identity
        from critattn.storage import content_hash

        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(self.name).stem or self.model.name).strip("-.").lower()
        usual = not (self.own or self.options["texts"] or "seed" in self.settings.given)
        known = content_hash(identity(self.model, self.plan, self.texts))[:8]
        return f"inspect-{stem}" if usual else f"inspect-{stem}-{known}"

    @property
    def title(self) -> str:
        """The model as a person knows it: the name of a package, else that of its folder or file."""
        return self.model.name if Path(self.name).exists() else self.name

    @property
    def place(self) -> Path:
        """The folder of the store."""
        from critattn.storage import store_root

        root = store_root() if self.options["store"] is None else Path(self.options["store"])
        return root / self.label

    def read(self) -> Any:
        """The dataset, computed or from the store."""
        from critattn.cli.sweep import Tell
        from critattn.models.inspection import inspect

        tell = Tell(self.settings, self.label, f"critattn inspect {shlex.quote(self.name)} with the same options")
        with tell.stack:
            return inspect(self.model, self.encoder, self.texts, self.plan, store=self.place, progress=tell)

    def payload(self, data: Any, gate: Any) -> dict[str, Any]:
        """The stable keys, and what else was asked for."""
        from critattn.models import inspection, phases

        config, plan = self.model.config, self.plan
        means = inspection.head_table(data)
        return {
            "model": self.title,
            "family": config.family,
            "layers": config.layers,
            "heads": config.heads,
            "length": list(plan.lengths),
            "texts": [{"name": text.name, "source": text.source, "sha256": text.sha256} for text in self.texts],
            "windows": plan.windows,
            "rows": plan.rows,
            "intervals_over": means.between,
            "store": str(self.place),
            "fidelity": asdict(gate),
            "summary": phases.summary(means, plan.layers),
            "growth": self._growth(means),
            "advice": self._advice(means) if self.options["advise"] else None,
            "scale": self._scale() if self.options["sweep_scale"] else None,
            "trained": self._trained(),
            "head_table": [one for n in plan.lengths for one in phases.head_records(means, n, plan.layers)],
        }

    def _trained(self) -> dict[str, Any] | None:
        """A decoder trained here against the theory of its own normaliser, at its training length."""
        if not hasattr(self.model, "variant"):
            return None
        from critattn.models.texts import excerpts
        from critattn.training.localisation import LEAST_ROWS
        from critattn.training.validation import summary

        n = self.model.shape.length

        def windows(length: int, count: int) -> list[Any]:
            return [one for text in self.texts for one in excerpts(self.encoder.encode, text, length, count)]

        shortest = min(len(text.content) for text in self.texts)
        longer = [windows(times * n, 1) for times in BEYOND if times * n < shortest]
        rows = max(LEAST_ROWS, min(self.plan.rows, n // 2))
        return summary(self.model, windows(n, self.plan.windows), rows=rows, longer=longer)

    def _growth(self, means: Any) -> list[dict[str, Any]]:
        """The growth of t_c and Delta of the model's median head, key 0 kept and dropped."""
        from critattn.models.growth import curves_of, grow, median

        made = []
        if len(means.lengths) < 2:
            return made
        for quantity, statistic in (("t_c", "critical_multiplier"), ("Delta", "gap")):
            for sink in ("kept", "dropped"):
                curves = curves_of(means, statistic, sink=sink)
                name = f"median {quantity}, key 0 {sink}"
                grown = grow(median(curves.reshape(-1, *curves.shape[2:])), means.lengths, quantity=name)
                fits = [
                    {
                        "form": one.form.name,
                        "formula": one.form.formula,
                        "coefficients": one.coefficients,
                        "intervals": one.intervals,
                        "difference": one.difference,
                        "weight": one.weight,
                    }
                    for one in grown.fits
                ]
                made.append({"quantity": quantity, "sink": sink, "sentence": grown.sentence, "fits": fits})
        return made

    def _advisable(self) -> float | None:
        """The training length of --advise."""
        if not self.options["advise"]:
            return None
        if self.model.normaliser != "softmax":
            raise SpecError(f"--advise: {self.title} makes weights by {self.model.normaliser}; allowed: softmax")
        lengths, target, train = self.plan.lengths, self.options["target_length"], self.options["train_length"]
        limit = self.model.config.max_length
        if train is None:
            train = float(limit if limit < target else lengths[-1])
        if len(lengths) < 2:
            raise SpecError(f"--advise: needs two lengths or more, has --length {lengths[0]}")
        if not 2 <= train < target:
            raise SpecError(
                f"--target-length {target:g}: allowed: above the training length {train:g} (--train-length)"
            )
        return train

    def _sweepable(self) -> tuple[float, ...]:
        """The factors of --sweep-scale."""
        from critattn.scaling.catalogue import entry

        if not self.options["sweep_scale"]:
            return ()
        if not self.model.config.causal:
            raise SpecError(f"--sweep-scale: {self.title} is an encoder, without a loss of the next token")
        if self.model.normaliser != "softmax":
            raise SpecError(f"--sweep-scale: {self.title} makes weights by {self.model.normaliser}; allowed: softmax")
        if self.options["law"] is not None:
            entry(self.options["law"])
        given = self.options["factors"]
        return FACTORS if given is None else positive("--factors", given)

    def _advice(self, means: Any) -> dict[str, Any]:
        from critattn.models.advice import advise
        from critattn.models.growth import curves_of

        made = advise(
            curves_of(means),
            means.lengths,
            train_length=self.train or 0.0,
            target_length=self.options["target_length"],
            causal=self.model.config.causal,
            dim=self.model.config.head_dim,
        )
        keys = ("law", "parameters", "factor", "wanted", "interval", "train_length", "target_length", "no_change")
        more = ("growing", "falling", "heads", "left_out", "mark", "reasons")
        return {key: getattr(made, key) for key in (*keys, *more)}

    def _scale(self) -> dict[str, Any]:
        """Points and best factors; beside a law also the loss without it."""
        law = self.options["law"]
        swept = self._swept(self.factors, law)
        best = [asdict(one) for one in swept.best]
        made = {"law": swept.law, "parameters": swept.parameters, "points": _points(swept), "best": best}
        plain = None if law is None else _points(self._swept((1.0,), None))
        return {**made, "without_law": plain}

    def _swept(self, factors: tuple[float, ...], law: str | None) -> Any:
        from critattn.cli.sweep import Tell
        from critattn.models.scale_runs import ScalePlan, run_scale, scale_sweep
        from critattn.storage import content_hash

        plan = ScalePlan(self.plan.lengths, self.plan.windows, self.plan.rows, factors, law).checked(self.model)
        label = f"{self.label}-scale"
        if law is not None or plan.factors != FACTORS:
            label += f"-{content_hash([plan.factors, law])[:8]}"
        tell = Tell(self.settings, label, f"critattn inspect {shlex.quote(self.name)} with the same options")
        with tell.stack:
            store = self.place.with_name(label)
            return scale_sweep(run_scale(self.model, self.encoder, self.texts, plan, store=store, progress=tell))


def _points(swept: Any) -> list[dict[str, Any]]:
    return [
        {
            "n": one.length,
            "factor": one.factor,
            "loss": asdict(one.loss),
            "difference": asdict(one.difference),
            "perplexity": asdict(one.perplexity),
            "beyond": one.beyond,
        }
        for one in swept.points
    ]
