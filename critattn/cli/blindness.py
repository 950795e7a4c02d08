"""`critattn blindness`: from which distance keys are invisible, in a slope schedule or a named model."""

import math
from functools import partial
from typing import Any

import click

from critattn.cli.common import Command, Count, Number, Settings, emit, lines, table
from critattn.errors import DomainError, SpecError

STANDALONE = "errata"
SHORT_ROW = 65_536
COUNTED_ROWS = 1 << 20
LARGEST_CAP = 1e300
SOURCES = ("heads", "slopes", "model")
PER_HEAD = ("slopes", "blindness_distances", "log10_distances", "visible_below", "certainly_blind_from")
COLUMNS = ("head", "slope", "distance", "log10 distance", "certainly visible below", "certainly blind from")
POSITION_COLUMNS = ("head", "slope", "distinct", "max_error", "total_variation", "resolution")


@click.command(cls=Command)
@click.option("--heads", type=Count(), help="Number of heads of an ALiBi schedule.")
@click.option("--slopes", "slopes", metavar="FILE", help="Slopes from FILE: numbers in .txt, .csv, .json or .npy.")
@click.option("--model", metavar="NAME", help="A named model, such as bloom-560m.")
@click.option("--bias-max", type=Number(), help="--heads: exponent B of the last slope 2^-B.  [default: 8]")
@click.option("--rule", help="--heads: press, mpt, ggml or naive.  [default: press]")
@click.option("--length", type=Count(), default=2048, show_default=True, help="Keys N of the row.")
@click.option("--format", "format_name", default="bf16", show_default=True, help="Number format of the weights.")
@click.option("--threshold", help="zero, subnormal or normal.  [default: zero]")
@click.option("--flush", is_flag=True, help="Subnormals are flushed: --threshold normal.")
@click.option("--convention", help="min, rounded or normalised.  [default: min]")
@click.option("--published", is_flag=True, help="As arXiv 2608.03994: --threshold normal --convention rounded.")
@click.option("--log-distance", is_flag=True, help="The bias is -m ln(1 + d).")
@click.option("--clamp", type=Number(), help="The bias falls no lower than this, below 0, in nats.")
@click.option("--softcap", type=Number(), help="Cap z of the logits before the bias, in nats.")
@click.option(
    "--logit-gap", type=Number(), help="Logit of the key above that of the query's own, in nats.  [default: 0]"
)
@click.option("--scale", type=Number(), help="Factor of the bias.  [default: 1, or 1/sqrt(d) where the model has it]")
@click.option("--certify", is_flag=True, help="Whether every key is visible, for all logits within --spread.")
@click.option(
    "--spread", type=Number(0.0), help="--certify: largest gap of two logits.  [default: 0, or 2z of --softcap]"
)
@click.option("--positions", is_flag=True, help="What rounding of positions does to the weights of the last row.")
@click.option(
    "--recipe", help="--positions: absolute, relative, bloom, falcon or mpt.  [default: absolute, or the model's]"
)
@click.option(
    "--errata", is_flag=True, help="Published figures, the convention behind each, and what the definition gives."
)
@click.pass_obj
def command(settings: Settings, **options: Any) -> None:
    """Distances from which the additive bias of a head makes keys invisible, and the share of a row that is.

    A weight is zero where e - s b(d) <= tau: tau the threshold of the format (zero: exp rounds to 0; subnormal: the
    smallest subnormal; normal: the smallest normal number, for hardware that flushes), b the bias, s its scale, e the
    logit gap. The conventions: min, the least whole distance; rounded, the nearest whole number; normalised, the
    weights after division by their sum.

    Example: critattn blindness --model falcon-rw-7b --published

    Example: critattn blindness --heads 16 --format fp16 --certify --spread 8 --clamp -10
    """
    if options[STANDALONE]:
        from critattn.cli.blindness_errata import show

        _alone()
        return show(settings)
    _check(options)
    found = _found(options)
    if options["certify"]:
        found["certificate"] = _certificate(options, found)
    if options["positions"] or _has_recipe(options, found):
        found["positions"] = _positions(options, found)
    return emit(settings, found, lambda: _people(found))


def _has_recipe(options: dict[str, Any], found: dict[str, Any]) -> bool:
    """A named model is compared with its recipe unasked, where that describes it and costs little."""
    as_made = not options["log_distance"] and options["clamp"] is None and not options["own_scale"]
    return found["model"] is not None and as_made and options["length"] <= SHORT_ROW


def _alone() -> None:
    context = click.get_current_context()
    line = click.core.ParameterSource.COMMANDLINE
    given = [name for name in context.params if name != STANDALONE and context.get_parameter_source(name) is line]
    if given:
        raise click.UsageError(f"--errata stands alone; leave out --{given[0].removesuffix('_name').replace('_', '-')}")


def _check(options: dict[str, Any]) -> None:
    """Refuse options that contradict each other, and fill in what one of them implies."""
    given = [name for name in SOURCES if options[name] is not None]
    if len(given) != 1:
        found = " and ".join(f"--{name}" for name in given) or "none"
        raise click.UsageError(f"{found} given; allowed: one of --heads, --slopes FILE and --model")
    for name, owner in (("bias_max", "heads"), ("rule", "heads"), ("spread", "certify"), ("recipe", "positions")):
        owned = options[owner] is not None and options[owner] is not False
        if options[name] is not None and not owned:
            raise click.UsageError(f"--{name.replace('_', '-')} is for --{owner}")
    if options["flush"]:
        _imply(options, "flush", "threshold", "normal")
    if options["published"]:
        _imply(options, "published", "threshold", "normal")
        _imply(options, "published", "convention", "rounded")
    options["threshold"] = options["threshold"] or "zero"
    options["convention"] = options["convention"] or "min"
    options["logit_gap"] = 0.0 if options["logit_gap"] is None else options["logit_gap"]
    _check_numbers(options)


def _imply(options: dict[str, Any], flag: str, name: str, value: str) -> None:
    if options[name] not in (None, value):
        raise click.UsageError(
            f"--{name} {options[name]} and --{flag} contradict each other: that means --{name} {value}"
        )
    options[name] = value


def _check_numbers(options: dict[str, Any]) -> None:
    if options["clamp"] is not None and options["clamp"] >= 0:
        raise SpecError(f"--clamp {options['clamp']:g}: allowed: below 0")
    for name in ("softcap", "scale", "bias_max"):
        if options[name] is not None and options[name] <= 0:
            raise SpecError(f"--{name.replace('_', '-')} {options[name]:g}: allowed: above 0")
    cap = options["softcap"]
    if cap is not None and abs(options["logit_gap"]) >= 2 * cap:
        raise SpecError(f"--logit-gap {options['logit_gap']:g}: allowed with --softcap {cap:g}: within ±{2 * cap:g}")
    if cap is not None and cap > LARGEST_CAP:
        raise SpecError(f"--softcap {cap:g}: allowed: up to {LARGEST_CAP:g}")
    for name in ("log_distance", "clamp"):
        if options["positions"] and options[name]:
            raise click.UsageError(f"--positions is for linear biases, not for --{name.replace('_', '-')}")
    if options["positions"] and options["scale"] is not None:
        raise click.UsageError("--positions has the scale of its --recipe; leave out --scale")


def _slopes(options: dict[str, Any]) -> tuple[Any, Any]:
    """The slopes, and the facts of the model where there is one."""
    from critattn import biases, families

    if options["slopes"] is not None:
        from critattn.cli.slopes_file import read_slopes

        return read_slopes(options["slopes"]), None
    if options["model"] is not None:
        try:
            family = families.get(options["model"])
        except SpecError as error:
            raise SpecError(f"--model: {error}") from None
        return biases.alibi_slopes(family.heads, family.bias_max, rule=family.rule), family
    bias_max = 8.0 if options["bias_max"] is None else options["bias_max"]
    try:
        return biases.alibi_slopes(options["heads"], bias_max, rule=options["rule"] or "press"), None
    except (DomainError, SpecError) as error:
        raise SpecError(f"--heads {options['heads']}: {error}") from None


def _found(options: dict[str, Any]) -> dict[str, Any]:
    import dataclasses

    from critattn import blindness

    slopes, family = _slopes(options)
    options["own_scale"] = options["scale"] is not None
    options["scale"] = options["scale"] or (family.scale if family else 1.0)
    bias, tau = _bias(options, slopes), _threshold(options)
    how = {"logit_gap": options["logit_gap"], "scale": options["scale"]}
    distances = blindness.blindness_distance(
        bias, tau, convention=options["convention"], length=options["length"], **how
    )
    found: dict[str, Any] = {"slopes": slopes, "blindness_distances": [_whole(one) for one in distances]}
    found |= {"first": _whole(distances.min()), "last": _whole(distances.max())}
    share = partial(_fraction, options, bias, tau, distances)
    found |= {f"blind_fraction_{over}": share(over) for over in ("row", "matrix")}
    found |= {"threshold_nats": tau, "format": options["format_name"]}
    found |= {name: options[name] for name in ("threshold", "convention", "length", "scale", "logit_gap")}
    found |= {"log_distance": options["log_distance"], "clamp": options["clamp"], "softcap": options["softcap"]}
    found["log10_distances"] = blindness.log10_distance(bias, tau, **how) if options["log_distance"] else None
    found |= _capped(options, bias, tau)
    found["model"] = None if family is None else dataclasses.asdict(family)
    if family is not None and family.two_sided:
        found["blind_fraction_square"] = share("square")
        found["visible_window"] = [_whole(one) for one in blindness.visible_window(distances)]
    return found


def _fraction(options: dict[str, Any], bias: Any, tau: float, distances: Any, over: Any) -> float | None:
    """The share; of a matrix with a sum in each row None where it has too many rows to count."""
    from critattn import blindness

    if options["convention"] != "normalised" or over == "row":
        return blindness.blind_fraction(distances, options["length"], over=over)
    if options["length"] > COUNTED_ROWS:
        return None
    how = {"logit_gap": options["logit_gap"], "scale": options["scale"]}
    return blindness.normalised_fraction(bias, tau, options["length"], over=over, **how)


def _whole(value: float) -> int | float:
    return int(value) if value < 2**53 else float(value)


def _threshold(options: dict[str, Any]) -> float:
    from critattn import formats

    try:
        stated = formats.get(options["format_name"])
    except SpecError as error:
        raise SpecError(f"--format: {error}") from None
    options["format_name"] = stated.name
    try:
        return stated.thresholds().of(options["threshold"])
    except SpecError as error:
        raise SpecError(f"--threshold: {error}") from None


def _bias(options: dict[str, Any], slopes: Any) -> Any:
    from critattn import biases

    bias = biases.LogDistance(slopes) if options["log_distance"] else biases.Alibi(slopes)
    # a clamp acts on the bias as it was made; the scale multiplies both
    return bias if options["clamp"] is None else biases.Clamp(bias, options["clamp"])


def _capped(options: dict[str, Any], bias: Any, tau: float) -> dict[str, Any]:
    """Where keys are certainly visible, and certainly blind, for all logits under the cap."""
    from critattn import blindness

    if options["softcap"] is None:
        return {"visible_below": None, "certainly_blind_from": None}
    gap, names = 2 * options["softcap"], ("visible_below", "certainly_blind_from")
    # a rounded distance is certain of nothing
    convention = "normalised" if options["convention"] == "normalised" else "min"
    how = {"scale": options["scale"], "convention": convention, "length": options["length"]}
    ends = [blindness.blindness_distance(bias, tau, logit_gap=one, **how) for one in (-gap, gap)]
    return {name: [_whole(one) for one in end] for name, end in zip(names, ends, strict=True)}


def _certificate(options: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    import dataclasses

    from critattn import blindness

    answer = blindness.certify(
        _bias(options, found["slopes"]),
        found["threshold_nats"],
        options["length"],
        spread=options["spread"],
        softcap=options["softcap"],
        scale=options["scale"],
    )
    return dataclasses.asdict(answer)


def _positions(options: dict[str, Any], found: dict[str, Any]) -> list[dict[str, Any]]:
    """One record a head of what rounding does to the last row of equal scores."""
    import dataclasses

    from critattn import blindness

    model = found["model"] or {}
    recipe = options["recipe"] or model.get("recipe", "absolute")
    head_dim, length = model.get("head_dim", 64), options["length"]
    records = []
    for head, slope in enumerate(found["slopes"]):
        error = blindness.position_error(slope, length, found["format"], recipe=recipe, head_dim=head_dim)
        records.append({"head": head, "slope": slope, "recipe": recipe, "length": length, **dataclasses.asdict(error)})
    return records


def _people(found: dict[str, Any]) -> Any:
    names = [name for name in PER_HEAD if found[name] is not None]
    columns = ["head", *(COLUMNS[1 + PER_HEAD.index(name)] for name in names)]
    rows = [(head, *values) for head, values in enumerate(zip(*(found[name] for name in names), strict=True))]
    shown = [*_head_lines(found), table(columns, rows), *_certificate_lines(found)]
    if "positions" in found:
        first = found["positions"][0]
        title = f"rounding of the biases ({first['recipe']}, {found['format']}), last of {first['length']} rows, nats"
        rows = [[one[name] for name in POSITION_COLUMNS] for one in found["positions"]]
        shown.append(table(POSITION_COLUMNS, rows, title=title))
        if any(math.isnan(one["total_variation"]) for one in found["positions"]):
            shown.append(f"-: biases beyond the largest number of {found['format']}; that row has no weights")
    return lines(*shown)


def _head_lines(found: dict[str, Any]) -> list[str]:
    model = found["model"]
    head = [] if model is None else [f"{model['name']}: {model['form']}; {model['dtype_path']}; {model['source']}"]
    kind, scale = found["threshold"], found["scale"]
    head.append(
        f"{found['format']}, threshold {kind} ({found['threshold_nats']:.6f} nats), convention {found['convention']}, "
        f"scale of the bias {scale:g}, logit gap {found['logit_gap']:g}"
    )
    first, last = (_shown(found[name]) for name in ("first", "last"))
    head.append(
        f"blind from {first} (steepest head) to {last} (flattest); of {found['length']} keys, "
        f"{_percent(found['blind_fraction_row'])} of the last row and "
        f"{_percent(found['blind_fraction_matrix'])} of the causal matrix"
    )
    return head


def _percent(share: float | None) -> str:
    return f"an uncounted share (above {COUNTED_ROWS} rows)" if share is None else f"{100 * share:.3f} %"


def _shown(value: float) -> str:
    return "nowhere" if value == float("inf") else f"{value:.6g}" if isinstance(value, float) else str(value)


def _certificate_lines(found: dict[str, Any]) -> list[str]:
    if "certificate" not in found:
        return []
    answer = found["certificate"]
    clamp = answer["safe_clamp"]
    advice = (
        "no clamp helps: the logits alone underflow" if clamp is None else f"a clamp at {clamp:.4f} or above is safe"
    )
    where = [_shown(float(min(answer[name]))) for name in ("visible_below", "blind_from")]
    return [
        f"certificate: {answer['verdict']} for logits within {answer['spread']:g} nats; visible below {where[0]}, "
        f"certainly blind from {where[1]}; slack {answer['slack']:.4f} nats; {advice}"
    ]
