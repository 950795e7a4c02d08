"""Published distances and thresholds."""

import math

import numpy as np

from critattn import biases
from critattn.blindness.distances import blindness_distance, log10_distance
from critattn.blindness.errata import readings
from critattn.blindness.errata.readings import Erratum, Reading


def thresholds() -> Erratum:
    """Thresholds of underflow in the text, against those of the formats."""

    def pair(kind: str) -> tuple[float, float]:
        return readings.tau("fp32", kind), readings.tau("bf16", kind)

    values = pair("subnormal")
    cut = tuple(math.trunc(100 * one) / 100 for one in values)
    return Erratum(
        "thresholds",
        "thresholds of underflow in the text, float32 and bfloat16",
        (-103.27, -92.18),
        "nats",
        1e-12,
        Reading("ln of the smallest subnormal, cut to two decimals", cut),
        (
            Reading("ln of the smallest subnormal", values, "critattn formats"),
            Reading(
                "exp rounds to 0", (readings.tau("fp32", "zero"), readings.tau("bf16", "zero")), "critattn formats"
            ),
            Reading(
                "smallest normal number",
                (readings.tau("fp32", "normal"), readings.tau("bf16", "normal")),
                "critattn formats",
            ),
        ),
        "exp of the smallest subnormal's logarithm rounds to that subnormal; zero begins ln 2 below it, or at the "
        "smallest normal number where subnormals are flushed.",
    )


def bloom() -> Erratum:
    """Distances of BLOOM-560m."""
    return Erratum(
        "bloom",
        "BLOOM-560m: distances of the steepest and the flattest head",
        (124.0, 22358.0),
        "positions",
        1e-12,
        readings.published(16),
        (readings.defined(16), readings.defined(16, "fp32"), readings.zero(16), readings.zero(16, "fp32")),
        "The printed distances follow the normal threshold, not the smallest subnormal of the definition.",
    )


def falcon() -> Erratum:
    """Distances of Falcon-RW, whose bias is scaled with the scores."""
    scaled = Reading(
        "the model's order, bias times 1/sqrt(64), in the printed convention",
        readings.ends(64, scale=0.125),
        f"{readings.COMMAND} --model falcon-rw-7b --published",
    )
    return Erratum(
        "falcon-rw",
        "Falcon-RW: distances of the steepest and the flattest head",
        (95.0, 22358.0),
        "positions",
        1e-12,
        readings.published(64),
        (readings.defined(64), scaled),
        "The published code multiplies scores and biases together by 1/sqrt(d): the slopes at work are m/8.",
    )


def falcon_heads() -> Erratum:
    """Heads of Falcon-RW in two tables."""
    return Erratum(
        "falcon-heads",
        "Falcon-RW: 71 heads in one table; distance 95 in another",
        (95.0,),
        "positions",
        1e-12,
        Reading("64 heads, as above", (readings.ends(64)[0],), f"{readings.COMMAND} --heads 64 --published"),
        (Reading("71 heads, as above", (readings.ends(71)[0],), f"{readings.COMMAND} --heads 71 --published"),),
        "The two tables agree for 64 heads only, 4096/64.",
    )


def mpt() -> Erratum:
    """Distances of MPT, which follow from no rule of underflow."""
    slopes = biases.alibi_slopes(32)
    misread = tuple(float(np.rint(8 / m)) for m in (slopes.max(), slopes.min()))
    return Erratum(
        "mpt",
        "MPT: distances of the steepest and the flattest head",
        (10.0, 2000.0),
        "positions",
        0.025,
        Reading("bias of 8 nats, rounded; 2048 printed as about 2,000 (an inference)", misread),
        (readings.published(32), readings.defined(32), readings.zero(32)),
        "No rule of underflow gives these. In the published code 8 is the exponent of the last slope (alibi_bias_max); "
        "the bias has no clamp, and clip_qkv bounds queries, keys and values.",
    )


def storywriter() -> Erratum:
    """The model with another exponent of the slopes."""
    default = readings.ends(32)[1]
    wide = Reading(
        "bias-max 16 of MPT-7B-StoryWriter (mosaicml/llm-foundry issue 172)",
        (readings.ends(32, convention="min", bias_max=16.0)[1],),
        f"{readings.COMMAND} --model mpt-7b-storywriter --flush",
    )
    return Erratum(
        "default-slopes",
        "all models with ALiBi use the default slopes: distance of the flattest head",
        (22358.0,),
        "positions",
        1e-12,
        Reading("bias-max 8", (default,), f"{readings.COMMAND} --model mpt-7b --published"),
        (wide,),
        "One published model has another exponent.",
    )


def alibi() -> Erratum:
    """Nine distances of ALiBi, which show the rounding."""
    slopes = np.sort(biases.alibi_slopes(readings.HEADS))[::-1]

    def distances(kind: str, convention: str) -> tuple[float, ...]:
        return tuple(
            blindness_distance(biases.Alibi(slopes), readings.tau("bf16", kind), convention=convention).tolist()
        )

    command = f"{readings.COMMAND} --heads 9"
    return Erratum(
        "alibi",
        "ALiBi of nine heads, sorted",
        (124.0, 175.0, 349.0, 699.0, 1397.0, 2795.0, 5590.0, 11179.0, 22358.0),
        "positions",
        1e-12,
        Reading(
            "eight powers of 2 and 2^-0.5; normal threshold, rounded",
            distances("normal", "rounded"),
            f"{command} --published",
        ),
        (
            Reading("least whole d at the normal threshold", distances("normal", "min"), f"{command} --flush"),
            Reading(
                "least whole d at the smallest subnormal of bf16, as defined",
                distances("subnormal", "min"),
                f"{command} --threshold subnormal",
            ),
        ),
        "The least whole d differs from the printed one at 350, 1398, 11180 and 22359, which shows the rounding.",
    )


def _geometric(first: float, last: float) -> tuple[float, ...]:
    return tuple(float(np.rint(one)) for one in np.geomspace(first, last, readings.HEADS))


def schedules() -> tuple[Erratum, ...]:
    """The schedules made for wanted distances: Steep, Safe, Explicit."""
    steep = (128.0, 152.0, 181.0, 215.0, 256.0, 304.0, 362.0, 431.0, 512.0)
    safe = (2048.0, 2233.0, 2435.0, 2656.0, 2896.0, 3158.0, 3444.0, 3756.0, 4096.0)
    text = Reading("twice the context, as in the text", (2.0 * readings.CONTEXT,))
    nothing = "Slopes -tau/delta give these distances at the threshold tau that made them; another moves all of them."
    return (
        Erratum(
            "steep",
            "Steep, nine heads",
            steep,
            "positions",
            1e-12,
            Reading("128 x 4^(k/8), rounded", _geometric(128, 512)),
            (),
            nothing,
        ),
        Erratum(
            "safe",
            "Safe, nine heads",
            safe,
            "positions",
            1e-12,
            Reading("2048 x 2^(k/8), rounded", _geometric(2048, 4096)),
            (),
            nothing,
        ),
        Erratum(
            "explicit",
            "Explicit, nine heads: first and last distance of the table",
            (32.0, 8192.0),
            "positions",
            1e-12,
            Reading("32 x 2^k, k = 0..8", (32.0, 32.0 * 2 ** (readings.HEADS - 1))),
            (text,),
            "Nine powers of two from 32 end at 8192, twice what the text says.",
        ),
    )


def log_distance() -> Erratum:
    """First distance under a logarithm of the distance."""

    def first(format: str, kind: str) -> tuple[float]:
        return (float(blindness_distance(biases.LogDistance(2**-0.5), readings.tau(format, kind))[0]),)

    command = f"{readings.COMMAND} --heads 9 --log-distance"
    return Erratum(
        "log-distance",
        "logarithmic distance: first head",
        (4.37e53,),
        "positions",
        0.005 / 4.37,
        Reading("e^(-tau/m) - 1, m = 2^-0.5, normal threshold", first("bf16", "normal"), f"{command} --flush"),
        (
            Reading(
                "smallest subnormal of bf16, as defined", first("bf16", "subnormal"), f"{command} --threshold subnormal"
            ),
            Reading(
                "smallest subnormal of fp32",
                first("fp32", "subnormal"),
                f"{command} --format fp32 --threshold subnormal",
            ),
        ),
        "Six per cent of the threshold are three orders of magnitude of the distance.",
    )


def log_marks() -> Erratum:
    """Heads marked as beyond 10^9 under the logarithm."""
    slopes = np.sort(biases.alibi_slopes(readings.HEADS))[::-1]
    logs = log10_distance(biases.LogDistance(slopes), readings.tau("bf16", "normal"))
    command = f"{readings.COMMAND} --heads 9 --log-distance --flush"
    return Erratum(
        "log-marks",
        "logarithmic distance: heads marked as beyond 10^9, of nine",
        (9.0,),
        "heads",
        1e-12,
        Reading("decimal logarithms above 9", (float(np.sum(logs > 9)),)),
        (Reading("the logarithms themselves", tuple(logs.tolist()), command),),
        "Consistent. No boundary between one star and two is stated.",
    )


def explicit_log() -> Erratum:
    """Explicit with the logarithm: slopes kept from the linear bias, or those of the text."""
    wanted, tau = 32.0 * 2.0 ** np.arange(readings.HEADS), readings.tau("bf16", "normal")
    kept = log10_distance(biases.LogDistance(biases.robust_slopes(wanted, tau)), tau)
    text = biases.robust_slopes(wanted, tau, log_distance=True)
    made = blindness_distance(biases.LogDistance(text), tau)
    return Erratum(
        "explicit-log",
        "Explicit with logarithmic distance: heads marked as beyond 10^9, of nine",
        (9.0,),
        "heads",
        1e-12,
        Reading("slopes -tau/delta of the linear bias kept under ln(1 + d)", (float(np.sum(kept > 9)),)),
        (
            Reading("decimal logarithms of those distances", tuple(kept.tolist())),
            Reading("distances of the text's slopes -tau/ln(1 + delta)", tuple(made.tolist())),
            Reading("the text's slopes, first and last", (float(text[0]), float(text[-1]))),
            Reading("weight of the neighbour, 2^-m, first and last", (2 ** -float(text[0]), 2 ** -float(text[-1]))),
        ),
        "By the text the distances are 32 to 8192, with heads that see little besides the query's own key.",
    )
