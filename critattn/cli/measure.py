"""`critattn measure`: one attention layer on tokens from a file or a generator."""

from typing import Any

import click

from critattn.cli.common import Command, Count, Number, Settings, emit, table
from critattn.errors import SpecError

SHOWN = (
    "angle_ratio",
    "angle_ratio_of_means",
    "excluded_pairs",
    "output_cosine",
    "self_weight",
    "entropy",
    "participation_ratio",
    "largest_weight",
    "row_mass",
    "effective_rho",
)
# generated queries that differ from keys: only weights are measured
OPPOSED = ("opposed", "near-opposed")
GRADIENT = ("gradient_norm_squared", "gradient_norm")
DEAD = "dead_row_fraction"
# options of normalisers, by their names in Python
CHOICES = ("p", "stage_one", "alpha", "bias_factor", "offset_free_rows")
EXACT_OPERATIONS = 1e11
OPERATOR_SIZE = 65_536
PROBES = 4


@click.command(cls=Command)
@click.argument("file", required=False)
@click.option("--tensor", help="Which array of a .npz or .safetensors file.")
@click.option("--rows", help="Which rows of the file, start:stop.")
@click.option(
    "--tokens",
    type=click.Choice(["near-simplex", "simplex", *OPPOSED]),
    help="Generate tokens instead of a FILE; opposed: queries that differ from keys, --rho -0.3.",
)
@click.option("--n", type=Count(), help="Generated tokens: how many.")
@click.option("--d", type=Count(), help="Generated tokens: dimension.")
@click.option("--rho", type=Number(), help="Generated tokens: common cosine, or score.")
@click.option("--fix-common", is_flag=True, help="Near-simplex: fix the norm of the common direction.")
@click.option("--gamma", type=Number(), help="Coefficient of log n.")
@click.option("--beta", type=Number(), help="Inverse temperature, in place of gamma.")
@click.option("--normaliser", default="softmax", show_default=True, help="Map from logits to weights.")
@click.option("--p", type=Number(), help="Exponent of relu-power and power.  [default: 3]")
@click.option("--stage-one", help="First stage of relu-power.  [default: softplus-l1]")
@click.option(
    "--offset-free-rows", type=Count(), help="relu-power with --causal: first rows without offset (published: 3)."
)
@click.option("--alpha", type=Number(), help="Exponent of entmax.  [default: 1.5]")
@click.option("--bias", type=Number(), help="Subtract this from the scores before they are scaled.")
@click.option("--bias-factor", type=Number(), help="B of sigmoid and sigmoid-l1: bias -B log n.  [default: 1]")
@click.option("--law", metavar="NAME", help="A law of `critattn scaling`.  [default with --gamma: log-n]")
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help="A parameter of the law; may be repeated.")
@click.option("--qk-norm", type=Number(0.0), help="|q||k| of the law.  [default: d, or 1 for L2-normalised q and k]")
@click.option("--causal", is_flag=True, help="Causal mask.")
@click.option("--length", type=click.Choice(["sequence", "row"]), help="Length in log n, with --causal.")
@click.option("--identity-weight", type=Number(), default=0.0, show_default=True, help="a of x' = a x + b ATT.")
@click.option("--attention-weight", type=Number(), default=1.0, show_default=True, help="b of x' = a x + b ATT.")
@click.option("--no-normalise", is_flag=True, help="Let the layer see x itself, not x/|x|.")
@click.option("--sample-rows", type=Count(), help="Measure this many rows, with standard errors.")
@click.option("--exact", is_flag=True, help="The exact gradient norm, whatever it costs.")
@click.option("--operator-norm", is_flag=True, help="The operator norm, also above n d = 65,536.")
@click.pass_obj
def command(settings: Settings, **options: Any) -> None:
    """Measure every observable of one layer on the tokens of FILE, exactly.

    FILE is .npy, .npz, .csv or .safetensors and holds n x d numbers. Above 1e11 operations the costly term of the
    gradient norm is estimated, with its standard error.

    Example: critattn measure tokens.npy --gamma 1.2

    Example: critattn measure model.safetensors --tensor embed.weight --rows 1996:3020 --gamma 1.2

    Example: critattn measure --tokens near-simplex --n 1024 --d 64 --rho 0.5 --gamma 2.2 --json

    Example: critattn measure --tokens opposed --n 256 --d 257 --rho -0.3 --normaliser softplus-l1 --gamma 2.2

    Example: critattn measure tokens.npy --law ssmax --set s=0.5 --causal
    """
    from critattn.cli.measure_law import temperature

    _check_options(options)
    normaliser = _normaliser(options)
    source = _tokens(options, settings.seed)
    scaled = temperature(options, source.n, source.d, settings.dtype_or("float64"))
    found = {"n": source.n, "d": source.d, **scaled.keys, **_described(normaliser)}
    found |= _observables(settings, options, source, _layer(options, normaliser, scaled.transforms))
    found |= _half_weight(settings, options, source, found, (normaliser, scaled))
    emit(settings, found, lambda: _for_people(found, source.label))


def _check_options(options: dict[str, Any]) -> None:
    from critattn.cli.measure_law import check_options

    if (options["file"] is None) == (options["tokens"] is None):
        raise click.UsageError("give either a FILE or --tokens near-simplex --n N --d D --rho R")
    check_options(options)
    generated = ("n", "d", "rho")
    missing = [name for name in generated if options["tokens"] and options[name] is None]
    if missing:
        raise click.UsageError(f"--{missing[0]} is missing; --tokens {options['tokens']} needs --n, --d and --rho")
    for name in generated:
        if options["file"] is not None and options[name] is not None:
            raise click.UsageError(f"--{name} is for generated tokens; a FILE brings its own")
    if options["fix_common"] and options["tokens"] != "near-simplex":
        raise click.UsageError("--fix-common is for --tokens near-simplex; others have no common direction")
    for name in ("no_normalise", "operator_norm") if options["tokens"] in OPPOSED else ():
        if options[name]:
            option = name.replace("_", "-")
            raise click.UsageError(
                f"--{option} is for tokens that are queries, keys and values, not {options['tokens']}"
            )
    if options["offset_free_rows"] is not None and not options["causal"]:
        raise click.UsageError("--offset-free-rows is for --causal; without a mask no row is among the first")


def _normaliser(options: dict[str, Any]) -> Any:
    from critattn import normalisers

    name = options["normaliser"]
    given = {choice: options[choice] for choice in CHOICES if options[choice] is not None}
    known = normalisers.options(name)
    for choice in given:
        if choice not in known:
            takes = ", ".join(other for other in normalisers.names() if choice in normalisers.options(other))
            raise click.UsageError(f"--{choice.replace('_', '-')} is for --normaliser {takes}; not for {name}")
    _check_above("p", given.get("p"), 0)
    _check_above("alpha", given.get("alpha"), 1)
    stage = given.get("stage_one")
    if stage is not None and stage not in normalisers.stages():
        raise click.UsageError(f"--stage-one = {stage!r}: allowed: {', '.join(normalisers.stages())}")
    found = normalisers.get(name, **given)
    if options["bias"] is not None and found.shift_invariant:
        raise click.UsageError(f"--bias changes nothing with --normaliser {name}: its weights ignore a common shift")
    return found


def _check_above(name: str, value: float | None, bound: float) -> None:
    if value is not None and value <= bound:
        raise click.UsageError(f"--{name} = {value:g}: allowed: above {bound}")


def _described(normaliser: Any) -> dict[str, Any]:
    """The normaliser and its options, as JSON keys."""
    keys = {"normaliser": normaliser.name}
    for choice in CHOICES:
        if hasattr(normaliser, choice):
            value = getattr(normaliser, choice)
            keys[choice] = getattr(value, "name", value)
    return keys


def _tokens(options: dict[str, Any], seed: int) -> Any:
    from critattn import tokens

    normalised = not options["no_normalise"]
    if options["file"] is not None:
        rows, tensor = options["rows"], options["tensor"]
        return tokens.load(options["file"], tensor=tensor, rows=rows, normalised=normalised)
    if options["tensor"] is not None or options["rows"] is not None:
        raise click.UsageError("--tensor and --rows are for a FILE; generated tokens are --n of them")
    n, d, rho = _whole("n", options["n"]), _whole("d", options["d"]), options["rho"]
    if options["tokens"] == "opposed":
        return tokens.opposed(n, d, rho=rho)
    if options["tokens"] == "near-opposed":
        return tokens.near_opposed(seed, n, d, rho=rho)
    if options["tokens"] == "simplex":
        made = tokens.simplex(n, d, rho=rho)
    elif options["sample_rows"] is not None and n > tokens.STREAM_ABOVE and normalised:
        return tokens.stream_near_simplex(seed, n, d, rho=rho, fix_common=options["fix_common"])
    else:
        made = tokens.near_simplex(seed, n, d, rho=rho, fix_common=options["fix_common"])
    return tokens.Tokens(made.vectors, made.common_ratio, made.label, normalised)


def _whole(name: str, value: float) -> int:
    if not isinstance(value, int) or value > 2**31:
        raise SpecError(f"--{name} = {value:g}: allowed for generated tokens: up to {2**31}")
    return value


def _layer(options: dict[str, Any], normaliser: Any, scaled: tuple[Any, ...]) -> Any:
    from critattn.attention import Attention, mask
    from critattn.biases import Shift

    shape = mask("causal" if options["causal"] else "bidirectional")
    before = () if options["bias"] is None else (Shift(options["bias"]),)
    return Attention(*before, *scaled, normaliser=normaliser, mask=shape)


def _observables(settings: Settings, options: dict[str, Any], source: Any, layer: Any) -> dict[str, float | None]:
    from critattn.gradient import exact_operations
    from critattn.measurement import measure
    from critattn.observables import get
    from critattn.tokens import QueriesAndKeys, TokenStream

    paired = isinstance(source, QueriesAndKeys)
    whole = not isinstance(source, TokenStream | QueriesAndKeys)
    wanted: list[str] = [name for name in SHOWN if not paired or get(name).needs in ("logits", "weights")]
    wanted += GRADIENT if whole and source.normalised else ()
    if hasattr(layer.normaliser, "dead_rows"):
        wanted.append(DEAD)
    if whole and (options["operator_norm"] or source.n * source.d <= OPERATOR_SIZE):
        wanted.append("operator_norm")
    costly = exact_operations(source.n, source.d) > EXACT_OPERATIONS and not options["exact"]
    result = measure(
        layer,
        source,
        wanted,
        identity_weight=options["identity_weight"],
        attention_weight=options["attention_weight"],
        sample_rows=options["sample_rows"],
        probes=PROBES if costly else None,
        seed=settings.seed,
        dtype=settings.dtype_or("float64"),
    )
    keys: dict[str, float | None] = dict.fromkeys((*SHOWN, *GRADIENT, "operator_norm"))
    for name, estimate in result.items():
        keys[name] = estimate.value
        if estimate.standard_error is not None:
            keys[f"{name}_se"] = estimate.standard_error
    return keys


def _half_weight(
    settings: Settings, options: dict[str, Any], source: Any, found: dict[str, Any], parts: tuple[Any, Any]
) -> dict[str, Any]:
    """The half-weight point of these tokens beside what the predictor says for their effective rho, n and d."""
    from critattn.comparison import compare
    from critattn.scaling import LogN, length
    from critattn.thresholds import half_weight

    normaliser, scaled = parts
    absent = dict.fromkeys(("predicted_half_weight_gamma", "predictor", "verdict"))
    if not scaled.comparable:
        why = "a soft cap" if found["soft_cap"] else "an inverse temperature that is no multiple of log n"
        return {"half_weight_gamma": None, "half_weight_reason": f"{scaled.law} has {why}: no gamma", **absent}
    mask, rows = "causal" if options["causal"] else "bidirectional", length(scaled.length)

    def layer(gamma: Any) -> Any:
        return _layer(options, normaliser, (LogN(gamma, length=rows),))

    dtype = settings.dtype_or("float64")
    located = half_weight(source, layer, sample_rows=options["sample_rows"], seed=settings.seed, dtype=dtype)
    keys: dict[str, Any] = {"half_weight_gamma": located.critical}
    if located.standard_error is not None:
        keys["half_weight_gamma_se"] = located.standard_error
    keys |= {"half_weight_reason": located.reason or None}
    paired = options["tokens"] in OPPOSED
    if source.n < 2 or not (paired or source.normalised):
        return keys | absent
    where = {"kind": "file", "n": source.n, "d": source.d, "effective_rho": found["effective_rho"], "dtype": dtype}
    if options["tokens"]:
        where |= {"kind": options["tokens"], "rho": options["rho"], "bias": options["bias"] or 0.0}
        where["zeta"] = 1.0 if paired else source.common_ratio or 1.0
    verdict = compare(located, {**where, "normaliser": options["normaliser"], "mask": mask})
    return {
        **keys,
        "predicted_half_weight_gamma": verdict.predicted,
        "predictor": verdict.predictor,
        "verdict": verdict.verdict,
    }


def _for_people(found: dict[str, Any], label: str) -> Any:
    shown = [name for name in found if not name.endswith("_se") and found[name] is not None]
    rows = [(name, _in_words(found[name]), found.get(f"{name}_se")) for name in shown]
    return table(("quantity", "value", "standard error"), rows, title=label)


def _in_words(value: Any) -> Any:
    return ", ".join(f"{name} = {one}" for name, one in value.items()) if isinstance(value, dict) else value
