"""Published shares of entries, and published mitigations."""

from critattn import biases
from critattn.blindness.certification import certify
from critattn.blindness.distances import blindness_distance
from critattn.blindness.errata import readings
from critattn.blindness.errata.readings import Erratum, Reading
from critattn.blindness.fractions import blind_fraction


def _share(kind: str, over: str, *, format: str = "bf16", length: int = readings.CONTEXT) -> float:
    slopes = biases.alibi_slopes(16)
    found = blindness_distance(biases.Alibi(slopes), readings.tau(format, kind))
    return 100 * blind_fraction(found, length, over="row" if over == "row" else "matrix")


def row_share() -> Erratum:
    """Share of the pairs of head and distance of a row."""
    command = f"{readings.COMMAND} --heads 16"
    return Erratum(
        "share-of-entries",
        "share of the entries at 2048 that 16 heads cannot see",
        (36.6,),
        "per cent",
        0.05 / 36.6,
        Reading(
            "last row of 2048 keys, normal threshold, least whole d", (_share("normal", "row"),), f"{command} --flush"
        ),
        (
            Reading(
                "distances 0 to 2048",
                (_share("normal", "row", length=readings.CONTEXT + 1),),
                f"{command} --flush --length 2049",
            ),
            Reading("causal matrix, normal threshold", (_share("normal", "matrix"),), f"{command} --flush"),
            Reading(
                "last row, smallest subnormal of bf16",
                (_share("subnormal", "row"),),
                f"{command} --threshold subnormal",
            ),
            Reading("last row, exp rounds to 0 in bf16", (_share("zero", "row"),), command),
            Reading(
                "last row, smallest subnormal of fp32",
                (_share("subnormal", "row", format="fp32"),),
                f"{command} --format fp32 --threshold subnormal",
            ),
        ),
        "It is the share of pairs of head and distance in one row; of the entries of the causal matrix it is 28.5 %.",
    )


def matrix_share() -> Erratum:
    """Share of the entries of one head's matrix."""

    def share(distance: float, over: str, *, continuum: bool = False) -> tuple[float]:
        name = "row" if over == "row" else "matrix"
        return (100 * blind_fraction(distance, readings.CONTEXT, over=name, continuum=continuum),)

    defined = readings.defined(16).values[0]
    return Erratum(
        "share-of-one-head",
        "share outside the window of a head with distance 124 at 2048",
        (88.3,),
        "per cent",
        0.05 / 88.3,
        Reading("causal matrix of one head", share(124, "matrix"), readings.ONE_HEAD),
        (
            Reading("its continuum, (1 - delta/N)^2", share(124, "matrix", continuum=True)),
            Reading("last row of that head", share(124, "row"), readings.ONE_HEAD),
            Reading(f"causal matrix at {defined:.0f}, the distance as defined", share(defined, "matrix")),
        ),
        "A share of a matrix, while the previous one is of a row.",
    )


def clamp() -> Erratum:
    """Weights under the clamp, before and after division."""
    tau, length = readings.tau("bf16", "normal"), 32768
    answer = certify(biases.Clamp(biases.Alibi(2**-0.5), -87.0), tau, length)
    hidden = length - float(answer.blind_from[0])
    spread = certify(biases.Clamp(biases.Alibi(2**-0.5), -87.0), tau, length, normalised=False)
    return Erratum(
        "clamp",
        "clamp at -87, which is to avoid subnormals too: weights below the normal threshold, of 32768 keys at slope "
        "2^-0.5 and equal logits",
        (0.0,),
        "keys",
        1e-12,
        Reading(
            "numerators e^-87, before division by the row's sum",
            (length - min(length, float(spread.visible_below[0])),),
        ),
        (
            Reading(
                "weights, after division by the sum",
                (hidden,),
                f"{readings.ONE_HEAD} --length 32768 --clamp -87 --certify",
            ),
            Reading("nats between -87 and the threshold", (-87.0 - tau,)),
            Reading("ln of the row's sum", (answer.log_sum,)),
            Reading("clamp that is safe at equal logits, tau + ln N", (answer.safe_clamp or 0.0,)),
        ),
        "A numerator has .34 nats to spare; the sum, or any gap of the logits above that, takes them.",
    )


def cap() -> Erratum:
    """The soft cap against the thresholds."""
    taus = [readings.tau("bf16", "normal"), readings.tau("bf16", "zero"), readings.tau("fp32", "zero")]
    return Erratum(
        "soft-cap",
        "soft cap of 50: largest gap of two logits",
        (100.0,),
        "nats",
        1e-12,
        Reading("2z", (2 * 50.0,), f"{readings.COMMAND} --heads 16 --softcap 50"),
        (Reading("largest z without underflow: flushed, bf16, fp32", tuple(-tau / 2 for tau in taus)),),
        "Under 2z < |tau| the logits alone cannot underflow; 50 satisfies it in fp32 without flushing only.",
    )
