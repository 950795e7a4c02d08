"""Tables of what number formats do to attention: blind heads, rounded positions, thresholds measured here."""

import numpy as np
import xarray

from critattn import biases, blindness, families, formats
from critattn.formats import measured, operations

MODEL = "bloom-560m"
NAMES = ("fp32", "bf16", "fp16", "e4m3")
LENGTH = 2048
SIDE = 128
COUNTS = tuple(2**power for power in range(7, 15))
HEADS = (0, 3, 7, 15)
# (label, recipe, format) of the way a bias is formed
RECIPES = (
    ("+m j, bf16", "absolute", "bf16"),
    ("+m j, fp16", "absolute", "fp16"),
    ("-m(i-j), bf16", "relative", "bf16"),
)


def _slopes() -> np.ndarray:
    family = families.get(MODEL)
    return biases.alibi_slopes(family.heads, family.bias_max)


def _distances(slopes: np.ndarray, name: str) -> np.ndarray:
    return blindness.blindness_distance(biases.Alibi(slopes), formats.get(name).thresholds().zero)


def blind_heads() -> xarray.Dataset:
    """Biases of ALiBi heads against distance, and the distance and share at which each head is blind, by format.

    Variables `bias` (head, distance), `threshold` (format), `blindness_distance` (format, head) and `blind_fraction`
    (format, head), the share of the causal matrix of `length` tokens; equal scores, numerators rounded to nearest.
    """
    slopes, distance = _slopes(), np.geomspace(1, 1e5, 201)
    found = np.array([_distances(slopes, name) for name in NAMES])
    shares = [[blindness.blind_fraction(one, LENGTH, over="matrix") for one in row] for row in found]
    return xarray.Dataset(
        {
            "bias": (("head", "distance"), -slopes[:, None] * distance),
            "threshold": ("format", [formats.get(name).thresholds().zero for name in NAMES]),
            "blindness_distance": (("format", "head"), found),
            "blind_fraction": (("format", "head"), shares),
            "slope": ("head", slopes),
        },
        coords={"head": np.arange(len(slopes)), "distance": distance, "format": list(NAMES), "n": [LENGTH]},
        attrs={"model": MODEL},
    )


def blind_matrix() -> xarray.Dataset:
    """Share of the heads that are blind at each entry of a causal attention matrix, by format.

    Variable `blind_share` (format, query, key), NaN above the diagonal; every (length/side)-th query and key.
    """
    positions = np.arange(0, LENGTH, LENGTH // SIDE)
    distance = positions[:, None] - positions[None, :]
    slopes = _slopes()
    shares = [(distance[..., None] >= _distances(slopes, name)).mean(axis=-1) for name in NAMES]
    return xarray.Dataset(
        {"blind_share": (("format", "query", "key"), np.where(distance < 0, np.nan, shares))},
        coords={"format": list(NAMES), "query": positions, "key": positions, "n": [LENGTH]},
        attrs={"model": MODEL},
    )


def position_rounding() -> xarray.Dataset:
    """Total variation between the last row with rounded biases and the exact one, equal scores, against its length.

    Variable `total_variation` (recipe, head, n), `slope` (head), and `onset` (head): the position from which +m j in
    bf16 loses content of one nat.
    """
    slopes = _slopes()[list(HEADS)]
    values = [
        [[blindness.position_error(m, n, name, recipe=recipe).total_variation for n in COUNTS] for m in slopes]
        for _, recipe, name in RECIPES
    ]
    return xarray.Dataset(
        {
            "total_variation": (("recipe", "head", "n"), values),
            "slope": ("head", slopes),
            "onset": ("head", [blindness.resolution_onset(m, 1.0) for m in slopes]),
        },
        coords={"recipe": [label for label, *_ in RECIPES], "head": list(HEADS), "n": list(COUNTS)},
        attrs={"model": MODEL},
    )


def format_thresholds() -> xarray.Dataset:
    """The logit at which exp, softmax and attention first give zero, measured here, beside the stated thresholds.

    Variables `first_zero` (operation, format), NaN where an operation does not take a format, `kind` (operation,
    format), and the stated `zero`, `subnormal` and `normal` (format).
    """
    names = ("fp32", "bf16", "fp16")
    found = [one for backend in operations.available() for one in measured.measure_backend(backend, names)]
    labels = list(dict.fromkeys(f"{one.backend} {one.operation}" for one in found))
    zeros = np.full((len(labels), len(names)), np.nan)
    kinds = np.full(zeros.shape, "", dtype=object)
    for one in found:
        place = labels.index(f"{one.backend} {one.operation}"), names.index(one.format)
        if one.first_zero is not None:
            zeros[place], kinds[place] = one.first_zero, one.kind
    stated = [formats.get(name).thresholds() for name in names]
    return xarray.Dataset(
        {
            "first_zero": (("operation", "format"), zeros),
            "kind": (("operation", "format"), kinds.astype(str)),
            **{kind: ("format", [one.of(kind) for one in stated]) for kind in formats.KINDS},
        },
        coords={"operation": labels, "format": list(names)},
        attrs={"versions": ", ".join(f"{name} {operations.version(name)}" for name in operations.available())},
    )
