"""What figures of trained heads say of their data: the model, its texts, what was read, the command that reads it."""

import json
import re
from typing import Any

import xarray

from critattn.plotting.data import counts_phrase

HASHED = re.compile(r"-[0-9a-f]{8}$")
PREFIX, SCALE = "inspect-", "-scale"
# texts of an inspection that asks for none
TEXTS = ("topics", "stdlib", "licence")


def spec_of(data: xarray.Dataset) -> dict[str, Any]:
    """What was asked for: model, family, texts, lengths, windows, rows; empty where the data do not say."""
    return json.loads(data.attrs.get("spec", "{}"))


def model_phrase(data: xarray.Dataset) -> str:
    """The model by the name of its store and that of its weights, as `smollm2 (SmolLM2-135M-Instruct.Q4_1, llama)`."""
    spec = spec_of(data)
    weights, short = spec.get("model", "a model"), _short(data)
    facts = [name for name in (weights if short != weights else "", spec.get("config", {}).get("family", "")) if name]
    return f"{short} ({', '.join(facts)})" if facts else short


def texts_phrase(data: xarray.Dataset) -> str:
    """Texts and windows, as `texts topics, stdlib and licence, 2 windows of each`."""
    names = [str(name) for name in data["text"].values]
    listed = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    windows = data.sizes["window"]
    each = "" if len(names) == 1 else " of each"
    return f"text{'s' if len(names) > 1 else ''} {listed}, {windows} window{'s' if windows > 1 else ''}{each}"


def reading_sentence(data: xarray.Dataset, *, means: bool = True) -> str:
    """Sentences for captions: which heads were read, on what, at which rows.

    Args:
        data: of an inspection.
        means: over windows and texts; else each window counts.
    """
    layers, heads, rows = data.sizes["layer"], data.sizes["head"], spec_of(data).get("rows", "some")
    each = f"All {heads} heads" if layers == 1 else f"All {heads} heads of each of {layers} layers"
    over = ", then the mean over windows and texts" if means else ""
    return (
        f"{each} of {model_phrase(data)}; {texts_phrase(data)}, {counts_phrase(data)}: all lengths of a window end "
        f"with the same {rows} query rows. The value of a head is the median over these rows{over}."
    )


def command_sentence(data: xarray.Dataset) -> str:
    """A sentence for captions: the command that makes the data."""
    spec, short = spec_of(data), _short(data)
    listed = {
        "--length": data["n"].values if "n" in data.dims else (),
        "--layers": data["layer"].values if _some_layers(data) else (),
        "--windows": (spec.get("windows"),),
        "--rows": (spec.get("rows"),),
        "--gradient-probes": (spec.get("probes"),),
        "--law": (spec.get("law"),),
        "--factors": data["factor"].values if "factor" in data.dims else (),
    }
    options = [f"{key} {_joined(values)}" for key, values in listed.items() if any(one is not None for one in values)]
    texts = [str(name) for name in data["text"].values]
    options += [] if texts == list(TEXTS) else [f"--text {name}" for name in texts]
    options += ["--sweep-scale"] if spec.get("kind") == "intervention" else []
    return f"Data: {' '.join(['critattn inspect', short, *options])}."


def _some_layers(data: xarray.Dataset) -> bool:
    """Whether the layers are not those from the first on; the data do not say how many the model has."""
    return "layer" in data.dims and data["layer"].values.tolist() != list(range(data.sizes["layer"]))


def _joined(values: Any) -> str:
    return ",".join(f"{one:g}" if isinstance(one, float) else str(one) for one in values)


def _label(data: xarray.Dataset) -> str:
    return str(data.attrs.get("name", "")).removesuffix(SCALE)


def _short(data: xarray.Dataset) -> str:
    """What a person calls the model: from the name of the store, else of the weights."""
    label = _label(data)
    if not label.startswith(PREFIX):
        return spec_of(data).get("model", "a model")
    return HASHED.sub("", label.removeprefix(PREFIX))
