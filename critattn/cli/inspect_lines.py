"""What `critattn inspect` shows a person of the model that it has read."""

from typing import Any

from critattn.cli.common import cell, lines, table

COLUMNS = ("layer", "t_c", "1/t_c", "Delta", "entropy/log n", "p_max", "sink", "rho", "rho centred", "gradient norm")
KEYS = (
    "layer",
    "critical_multiplier",
    "operating_point",
    "gap",
    "relative_entropy",
    "largest_weight",
    "sink_mass",
    "rho_hidden",
    "rho_hidden_centred",
    "gradient_norm",
)


def for_people(found: dict[str, Any]) -> Any:
    """The summary of an inspection for a person."""
    longest = max(found["length"])
    kept, dropped = (one for one in found["summary"] if one["n"] == longest)
    names = ", ".join(text["name"] for text in found["texts"])
    title = (
        f"{found['model']}: {found['layers']} layers of {found['heads']} heads, n = {longest}; medians over heads of "
        f"means over {names} ({found['windows']} windows each)"
    )
    rows = [[one.get(key) for key in KEYS] for one in kept["layer_medians"]]
    shown = [table(COLUMNS, rows, title=title), found["fidelity"]["text"]]
    for one, words in ((kept, "with"), (dropped, "without")):
        middle = one["percentiles"]["critical_multiplier"]
        phases = ", ".join(f"{count} {name}" for name, count in one["phases"].items() if count)
        ends = f"{cell(middle['5'])} to {cell(middle['95'])}"
        shown.append(f"{words} key 0: t_c median {cell(middle['50'])} (5 to 95 %: {ends}); heads: {phases}")
        shown += [_prediction_words(name, made) for name, made in one["predictions"].items()]
    if found["trained"]:
        shown += trained_lines(found["trained"])
    shown += [one["sentence"] for one in found["growth"]]
    if found["advice"]:
        shown += found["advice"]["reasons"]
    if found["scale"]:
        shown += _scale_lines(found["scale"])
    return lines(*shown, f"store: {found['store']}")


def trained_lines(found: dict[str, Any]) -> list[Any]:
    """A decoder's heads against the theory of their own normaliser."""
    control, heads = found["control"], found["heads"]
    columns = (
        "layer",
        "head",
        control,
        "rho",
        "top cosine",
        "p_max",
        f"{control} at p_max = 1/2",
        *heads[0]["predicted"],
    )
    keys = ("layer", "head", "value", "rho", "top", "largest", "measured")
    rows = [[*(one[key] for key in keys), *one["predicted"].values()] for one in heads]
    title = f"own normaliser {found['normaliser']}, n = {found['length']}: critical {control}, measured and predicted"
    shown: list[Any] = [table(columns, rows, title=title)]
    for one in found["agreement"]:
        shown.append(_verdict_words(control, one))
    blind = [one for one in found["blind"] if one["format"] == "fp32" and one["underflow"] == "flushed"]
    for n in sorted({one["length"] for one in blind}):
        here = [one for one in blind if one["length"] == n]
        share, alone = (sum(one[key] for one in here) / len(here) for key in ("share", "predicted_share"))
        starved = sum(one["starved"] for one in here)
        left = f"; in {starved} a single key is left, so that queries and keys get no gradient" if starved else ""
        shown.append(
            f"  weight 0 in float32 at n = {n}: {share:.1%} of the pairs of query and key, {alone:.1%} by the slopes "
            f"alone; {sum(one['share'] > 0 for one in here)} of {len(here)} heads have some{left}"
        )
    return shown


def _verdict_words(control: str, one: dict[str, Any]) -> str:
    verdict = "favourable" if one["favourable"] else "not favourable"
    name = f"  predicted {control}, {one['prediction'].replace('_', ' ')}"
    parts = []
    if one["median"] == one["median"]:
        parts.append(f"median error {one['median']:+.0%}, met within 25 % for {one['met']:.0%}")
    if one["sides"] == one["sides"]:
        parts.append(f"right side for {one['sides']:.0%} of {one['heads']} heads")
    if one["never"]:
        parts.append(f"{one['never_predicted']} of {one['never']} heads that never localise foretold")
    return f"{name}: {', '.join(parts) or 'outside its range'}: {verdict}"


def _prediction_words(name: str, made: dict[str, Any]) -> str:
    verdict = "favourable" if made["favourable"] else "not favourable"
    if made["missing"] == 1:
        return f"  predicted t_c, {name.replace('_', ' ')}: no root for any head: {verdict}"
    return (
        f"  predicted t_c, {name.replace('_', ' ')}: median error {made['median']:+.0%}, within 25 % for "
        f"{made['within']:.0%} of heads, none for {made['missing']:.0%}: {verdict}"
    )


def _scale_lines(scale: dict[str, Any]) -> list[Any]:
    headings = ("n", "t", "perplexity", "loss - loss(1)", "low", "high", "heads with t > t_c")
    rows = []
    for one in scale["points"]:
        gain = one["difference"]
        rows.append(
            (
                one["n"],
                one["factor"],
                one["perplexity"]["value"],
                gain["value"],
                gain["low"],
                gain["high"],
                one["beyond"],
            )
        )
    law = f" times the factor of {scale['law']}" if scale["law"] else ""
    shown: list[Any] = [table(headings, rows, title=f"logits multiplied by t{law}, loss in nats a token")]
    for one in scale["without_law"] or ():
        shown.append(f"n = {one['n']}: perplexity {one['perplexity']['value']:.5g} without {scale['law']}")
    for best in scale["best"]:
        ends = "" if best["low"] is None else f" [{best['low']:.3g}, {best['high']:.3g}]"
        least = best["reason"] if best["factor"] is None else f"least loss at t = {best['factor']:.3g}{ends}"
        half = "" if best["half"] is None else f"; half of the heads cross at t = {best['half']:.3g}"
        shown.append(f"n = {best['length']}: {least}{half}")
    return shown
