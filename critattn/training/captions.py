"""What figures of training studies say of their data: sizes, text, seeds, what is missing, the command."""

import json
from typing import Any

import xarray

from critattn.training.corpus import LIBRARY


def setting_of(data: xarray.Dataset) -> dict[str, Any]:
    """Study, measures, preset and corpora of a dataset of `collected.dataset`."""
    return json.loads(data.attrs["spec"])


def length_of(data: xarray.Dataset) -> int:
    """T, the training length in bytes."""
    return setting_of(data)["preset"]["shape"]["length"]


def trained_sentence(data: xarray.Dataset) -> str:
    """A sentence for captions: which models, trained how and on what; a second one where the texts differ."""
    setting = setting_of(data)
    preset = setting["preset"]
    shape, share = preset["shape"], preset["prompt_share"]
    prompts = f", {share:.0%} of them retrieval prompts" if share else ""
    layers, heads = (f"{shape[key]} {key[:-1] if shape[key] == 1 else key}" for key in ("layers", "heads"))
    return (
        f"Byte-level decoders of {layers}, width {shape['width']} and {heads}, trained at T = {shape['length']:,} "
        f"bytes for {preset['steps']:,} steps of {preset['batch']} sequences{prompts}, on {_texts(setting)}."
        f"{_different(setting)}"
    )


def _texts(setting: dict[str, Any]) -> str:
    """What was trained on, as the records name it."""
    return " and ".join(map(_text, setting.get("sources") or [LIBRARY]))


def _text(source: str) -> str:
    if source.startswith(LIBRARY):
        return f"the sources of {source} and the topics of its help"
    return f"the *.py files of a folder {source!r}"


def _different(setting: dict[str, Any]) -> str:
    count = len(setting["corpora"])
    if count < 2:
        return ""
    return f" The runs are of {count} different texts; differences between them may be those of the texts."


def seeds_sentence(data: xarray.Dataset, *, bands: str = "") -> str:
    """A sentence for captions: seeds, what the bands are, and runs that are not there.

    Args:
        data: of a study.
        bands: what shows the interval, such as `Bands`; empty where nothing does.
    """
    seeds, lost = data["seed"].values.tolist(), data.attrs["units_missing"]
    listed = ", ".join(map(str, seeds))
    interval = f" {bands}: Student's 95 % interval of the mean." if bands else ""
    means = (
        f"Means over seeds {listed}.{interval}"
        if len(seeds) > 1
        else f"One run each, seed {listed}: without an interval, differences between variants may be those of seeds."
    )
    return f"{means} {lost} of {data.attrs['units']} runs are not there." if lost else means


def command_sentence(data: xarray.Dataset) -> str:
    """A sentence for captions: the command that makes or shows the data."""
    setting = setting_of(data)
    made_by = data.attrs.get("command", f"critattn extrapolate {setting['study']}")
    return f"Data: {made_by}, preset {setting['preset']['name']}."
