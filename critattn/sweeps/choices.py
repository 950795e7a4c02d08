"""Axes of names, normalisers and laws: what of a study is left at one of their points, and which names go."""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from critattn import normalisers, scaling, streaming
from critattn.attention import Attention
from critattn.errors import DomainError, SpecError
from critattn.sweeps.axes import CATEGORICAL
from critattn.sweeps.layer import OPTIONS, check_layer

if TYPE_CHECKING:
    from critattn.sweeps.spec import SweepSpec


def settled(axes: Mapping[str, Any], layer: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tables of axes and layer, where an axis of one normaliser is the normaliser of the layer.

    Raises:
        SpecError: where both are given.
    """
    names = axes.get("normaliser", ())
    if names and "normaliser" in layer:
        raise SpecError(f"axes.normaliser: attention.normaliser = {layer['normaliser']!r} is given too; allowed: one")
    if len(names) != 1:
        return dict(axes), dict(layer)
    rest = {name: points for name, points in axes.items() if name != "normaliser"}
    return rest, {**layer, "normaliser": names[0]}


def alone(spec: "SweepSpec", names: Mapping[str, str]) -> "SweepSpec":
    """The study of one normaliser and one law on the same tokens.

    Args:
        spec: the study.
        names: a name for each of its axes of names.

    Returns:
        A study without normaliser axis, and with an axis of one law where it has laws.
    """
    if "normaliser" in names:
        spec = dataclasses.replace(
            spec,
            axes=dataclasses.replace(spec.axes, normaliser=()),
            attention=spec.attention.alone(names["normaliser"]),
        )
    if "law" in names:
        spec = dataclasses.replace(spec, axes=dataclasses.replace(spec.axes, law=(names["law"],)))
    return spec


def every(spec: "SweepSpec") -> list["SweepSpec"]:
    """The study of each pair of normaliser and law; the study itself where it has no such axis."""
    axes = given(spec)
    return [alone(spec, dict(zip(axes, point, strict=True))) for point in itertools.product(*axes.values())]


def given(spec: "SweepSpec") -> dict[str, tuple[str, ...]]:
    """Names along the axes of names that the study has, in the order of its layout."""
    return {name: getattr(spec.axes, name) for name in CATEGORICAL if getattr(spec.axes, name)}


def named(spec: "SweepSpec", point: Mapping[str, float]) -> dict[str, str]:
    """Names at a point of the layout, whose numbers are codes."""
    return {axis: names[int(point[axis])] for axis, names in given(spec).items()}


def check(spec: "SweepSpec") -> None:
    """Refuse names that cannot be compared, and options that none of them has.

    Raises:
        SpecError: with the key, its value and what is allowed.
    """
    if spec.axes.normaliser:
        _check_options(spec)
    if spec.axes.law:
        for name in spec.axes.law:
            _check_law(spec, name)
        _check_beside(spec)
    elif spec.attention.qk_norm is not None:
        raise SpecError(f"attention.qk_norm: {spec.attention.qk_norm:g}; allowed with axes.law, whose laws act on q.k")
    if given(spec) and any(spec.streamed(n) for n in spec.axes.n):
        _check_streams(spec)


def _check_options(spec: "SweepSpec") -> None:
    layers = {name: spec.attention.alone(name) for name in spec.axes.normaliser}
    for option in (*OPTIONS, "bias"):
        wanted = getattr(spec.attention, option)
        if wanted is not None and all(getattr(layer, option) is None for layer in layers.values()):
            taking = [name for name in normalisers.names() if option == "bias" or option in normalisers.options(name)]
            takes = "one that a common shift changes" if option == "bias" else ", ".join(taking)
            raise SpecError(f"attention.{option}: none of {', '.join(layers)} has it; allowed with normaliser {takes}")
    for layer in layers.values():
        check_layer(layer)


def _check_beside(spec: "SweepSpec") -> None:
    """A law sets beta of each row by itself: nothing else may."""
    laws = f"axes.law = {spec.axes.law[0]!r}"
    if spec.axes.gamma:
        raise SpecError(f"{laws} has no coefficient gamma to sweep; allowed without axes.gamma, which goes with log-n")
    if spec.axes.p:
        raise SpecError(f"axes.p: allowed beside axes.gamma; with axes.law: attention.p = {spec.axes.p[0]:g}")
    if spec.attention.layers:
        raise SpecError(f"attention.layers: {spec.attention.layers}; allowed with axes.law: 0")
    if spec.attention.law is not None:
        raise SpecError(f"attention.law: {spec.attention.law!r}; allowed without axes.law")
    if spec.attention.length != "sequence":
        raise SpecError(f"attention.length: {spec.attention.length!r} is for log-n; each law of axes.law has its own n")
    if spec.tokens.kind == "random-scores":
        raise SpecError(f"{laws}: needs the dimension of tokens, which random-scores have not; allowed: axes.gamma")


def _check_law(spec: "SweepSpec", name: str) -> None:
    where = f"axes.law = {name!r}"
    if name in scaling.names():
        raise SpecError(f"{where}: takes gamma; allowed as attention.law, with axes.gamma")
    law = scaling.entry(name)
    if law.law is None:
        raise SpecError(f"{where}: is no factor per row: {law.reason}")
    if law.examples:
        missing = ", ".join(law.examples)
        raise SpecError(
            f"{where}: needs {missing}, which its source leaves open; critattn measure --law --set takes it"
        )
    largest = max(spec.axes.n, default=1)
    if law.largest_n is not None and largest > law.largest_n:
        raise SpecError(f"{where} at n = {largest}: allowed: n up to {law.largest_n}, where its table ends")


def _check_streams(spec: "SweepSpec") -> None:
    for one in every(spec):
        try:
            streaming.check(layer_of(one, 2.0))
        except DomainError as error:
            raise SpecError(f"axes.n: {max(spec.axes.n)} tokens are made block by block; {error}") from None


def layer_of(spec: "SweepSpec", d: float) -> Attention:
    """A layer of a study of one normaliser: under its law in d dimensions, else at gamma = 1."""
    return spec.attention.under(spec.axes.law[0], d) if spec.axes.law else spec.attention(1.0)
