"""`critattn blindness`: stable keys, what people report in public, contradictions, errata, the page of the docs."""

import json
import math
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from critattn import blindness, families
from critattn.biases import alibi_slopes
from critattn.cli import main
from critattn.cli.blindness_errata import errata_markdown, models_markdown

DOCS = (Path(__file__).parents[1] / "docs" / "blindness.md").read_text(encoding="utf-8")
STABLE = {
    "slopes",
    "blindness_distances",
    "first",
    "last",
    "blind_fraction_row",
    "blind_fraction_matrix",
    "threshold_nats",
}


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["blindness", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def payload(*arguments):
    result = run(*arguments, "--json")
    assert len(result.stdout.splitlines()) == 1
    return json.loads(result.stdout)


@pytest.fixture
def write(tmp_path):
    def put(name, content):
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        return path

    return put


def test_the_stable_keys():
    found = payload("--heads", 16)
    assert set(found) >= STABLE
    assert found["threshold_nats"] == pytest.approx(-134 * math.log(2), rel=1e-15)
    assert (found["first"], found["last"]) == (132, 23778)
    assert found["blindness_distances"][0] == 132
    assert found["blind_fraction_row"] == pytest.approx(0.3547, abs=5e-5)
    assert found["blind_fraction_matrix"] == pytest.approx(0.2751, abs=5e-5)
    assert (found["format"], found["threshold"], found["convention"], found["length"]) == ("bf16", "zero", "min", 2048)
    nine = payload("--heads", 9)
    assert nine["slopes"] == list(alibi_slopes(9))
    assert (nine["first"], nine["blindness_distances"][8]) == (132, 132), "in head order, which is not sorted"


def test_flush_is_the_normal_threshold_and_published_rounds():
    flushed = payload("--heads", 16, "--flush")
    assert flushed["threshold_nats"] == pytest.approx(-87.33654, abs=5e-6)
    assert (flushed["first"], flushed["last"]) == (124, 22359)
    assert flushed["blind_fraction_row"] == pytest.approx(0.36551, abs=5e-6)
    assert flushed["blindness_distances"] == payload("--heads", 16, "--threshold", "normal")["blindness_distances"]
    published = payload("--heads", 9, "--published")
    assert sorted(published["blindness_distances"]) == [124, 175, 349, 699, 1397, 2795, 5590, 11179, 22358]
    assert payload("--heads", 9, "--published", "--flush", "--convention", "rounded")["last"] == 22358


def test_falcon_scales_its_bias_and_rounds_it():
    """NVIDIA/TensorRT-Model-Connect issue 667: the bias eight times too large, and its rounding in long prompts."""
    found = payload("--model", "falcon-rw-7b", "--published")
    assert (found["first"], found["last"]) == (762, 178865)
    assert found["scale"] == 0.125
    variation = [one["total_variation"] for one in found["positions"]]
    assert [variation[h] for h in (0, 7, 15, 31, 63)] == pytest.approx(
        [0.1316, 0.0631, 0.0318, 0.0079, 0.0004], abs=5.1e-5
    )
    # added after the scale, the bias is eight times too large: what the printed 95 describes
    assert payload("--model", "falcon-rw-7b", "--published", "--scale", 1)["first"] == 95


@pytest.mark.parametrize(("recipe", "least", "most"), [("absolute", 0.38, 0.39), ("relative", 0, 0.0008)])
def test_both_forms_of_positions(recipe, least, most):
    """vllm-project/vllm issue 1009: mathematically the same, and different in few bits."""
    found = payload("--heads", 9, "--positions", "--recipe", recipe)
    steep = found["positions"][8]
    assert steep["slope"] == 2**-0.5
    assert least <= steep["total_variation"] < most
    assert (steep["recipe"], steep["length"], len(found["positions"])) == (recipe, 2048, 9)


def test_the_exponent_of_the_slopes_at_long_contexts():
    """mosaicml/llm-foundry issue 172: the range of ALiBi at 10 to 100 thousand tokens."""
    narrow, wide = (payload("--heads", 32, "--bias-max", one, "--length", 65536, "--flush") for one in (8, 16))
    assert (narrow["last"], wide["last"]) == (22359, 5723688)
    assert narrow["blind_fraction_row"] > 0.65
    # every slope of 8 is there, and as many flatter ones
    assert wide["blind_fraction_row"] < narrow["blind_fraction_row"] / 1.5
    story = payload("--model", "mpt-7b-storywriter", "--length", 65536, "--flush")
    assert story["blindness_distances"] == wide["blindness_distances"]


@pytest.mark.parametrize("heads", [9, 12, 40, 71, 112])
def test_heads_that_are_no_power_of_two(heads):
    """ofirpress/attention_with_linear_biases issue 17, ml-explore/mlx pull 3071."""
    by_rule = {rule: payload("--heads", heads, "--rule", rule)["slopes"] for rule in ("press", "mpt", "ggml", "naive")}
    for rule in ("mpt", "ggml"):
        np.testing.assert_allclose(by_rule[rule], by_rule["press"], rtol=0, atol=5e-16)
    assert by_rule["naive"] != pytest.approx(by_rule["press"], rel=1e-3)


@pytest.mark.parametrize("name", families.names())
def test_every_named_model(name):
    found = payload("--model", name, "--length", 256)
    assert len(found["positions"]) == len(found["slopes"]) == families.get(name).heads
    assert found["model"]["source"]
    if families.get(name).two_sided:
        assert found["visible_window"][0] == 2 * found["blindness_distances"][0] - 1
        assert found["blind_fraction_square"] > found["blind_fraction_matrix"]


def test_logarithmic_distance_reaches_beyond_floats():
    found = payload("--heads", 9, "--log-distance", "--flush")
    assert found["first"] == pytest.approx(4.3733e53, rel=2e-5)
    assert found["last"] is None
    assert found["log10_distances"][7] == pytest.approx(9710, abs=0.5)
    assert found["blind_fraction_row"] == 0
    near = payload("--heads", 1, "--bias-max", 0.01, "--log-distance")
    assert near["first"] > 1e30


def test_clamps_caps_and_gaps():
    clamped = payload("--heads", 16, "--flush", "--clamp", -87)
    assert clamped["blindness_distances"] == [None] * 16
    assert clamped["blind_fraction_row"] == 0
    divided = payload("--heads", 16, "--flush", "--clamp", -87, "--convention", "normalised", "--length", 32768)
    assert divided["first"] == 123
    capped = payload("--heads", 16, "--softcap", 30)
    for slope, visible, blind in zip(
        capped["slopes"], capped["visible_below"], capped["certainly_blind_from"], strict=True
    ):
        assert visible == math.ceil((-capped["threshold_nats"] - 60) / slope)
        assert blind == math.ceil((-capped["threshold_nats"] + 60) / slope)
    gap = payload("--heads", 16, "--logit-gap", 5, "--flush")
    assert gap["first"] == 131
    assert payload("--heads", 16, "--scale", 0.125, "--flush")["last"] == 178866


def test_certificates():
    bad = payload("--heads", 16, "--flush", "--length", 32768, "--clamp", -87, "--certify")["certificate"]
    assert bad["verdict"] == "blind somewhere"
    assert bad["blind_from"][0] == 123
    assert bad["safe_clamp"] == pytest.approx(-126 * math.log(2) + math.log(32768), rel=1e-14)
    good = payload("--heads", 16, "--flush", "--length", 32768, "--clamp", bad["safe_clamp"], "--certify")[
        "certificate"
    ]
    assert (good["verdict"], good["visible_below"]) == ("visible everywhere", [32768] * 16)
    between = payload("--heads", 2, "--length", 64, "--format", "fp16", "--certify", "--spread", 20, "--clamp", -1)
    assert between["certificate"]["verdict"] == "undecided"
    assert between["certificate"]["safe_clamp"] is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "0.5 0.25\n# a comment\n0.125\n"),
        ("a.csv", "slope\n0.5\n0.25\n0.125\n"),
        ("a.csv", "0.5,0.25,0.125"),
        ("a.json", "[0.5, 0.25, 0.125]"),
        ("a.json", '{"slopes": [0.5, 0.25, 0.125]}'),
    ],
)
def test_slopes_of_a_file(write, name, content):
    found = payload("--slopes", write(name, content), "--flush")
    assert found["slopes"] == [0.5, 0.25, 0.125]
    assert found["blindness_distances"] == [175, 350, 699]


def test_slopes_of_a_binary_file(tmp_path):
    for shape in ((3,), (3, 1), (1, 3)):
        np.save(tmp_path / "a.npy", np.array([0.5, 0.25, 0.125]).reshape(shape))
        assert payload("--slopes", tmp_path / "a.npy")["slopes"] == [0.5, 0.25, 0.125]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", "0.5 0", "head 1 has 0"),
        ("a.txt", "0.5 -0.25", "head 1 has -0.25"),
        ("a.txt", "0.5\nnan\n", "head 1 has nan"),
        ("a.txt", "inf", "head 0 has inf"),
        ("a.txt", "", "holds no slopes"),
        ("a.csv", "slope\n0.5\nhalf\n", "half"),
        ("a.json", "[0.5, ", "allowed"),
        ("a.json", '{"m": [1]}', "allowed"),
        ("a.json", "[[0.5], [0.25, 1]]", "allowed"),
        ("a.npy", "no numpy", "not a readable .npy file"),
        ("a.npy", "", "not a readable .npy file"),
        ("a.json", "[" * 100_000, "nested too deeply"),
        ("a.json", "[true, 0.5]", "True is not a number"),
        ("a.json", '["0.5"]', "'0.5' is not a number"),
        ("a.json", "[1e400]", "head 0 has inf"),
    ],
)
def test_files_without_slopes(write, name, content, said):
    line = run("--slopes", write(name, content), code=2).stderr
    assert said in line
    assert "--slopes" in line
    assert line.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "one of --heads, --slopes FILE and --model"),
        ("--heads 8 --model mpt-7b", "--heads and --model"),
        ("--heads 0", "--heads"),
        ("--heads 1e9", "--heads"),
        ("--heads 2.5", "--heads"),
        ("--heads 8 --bias-max 0", "--bias-max"),
        ("--heads 8 --bias-max nan", "--bias-max"),
        ("--heads 8 --rule geometric", "press, mpt, ggml, naive"),
        ("--model blom-560m", "did you mean 'bloom-560m'"),
        ("--model llama-3", "known: bloom-560m"),
        ("--model mpt-7b --bias-max 16", "--bias-max is for --heads"),
        ("--slopes missing.txt", "missing.txt"),
        ("--slopes .", "--slopes"),
        ("--heads 8 --format bf61", "did you mean 'bf16'"),
        ("--heads 8 --threshold tiny", "zero, subnormal, normal"),
        ("--heads 8 --convention ceil", "min, rounded, normalised"),
        ("--heads 8 --flush --threshold zero", "contradict"),
        ("--heads 8 --published --threshold zero", "contradict"),
        ("--heads 8 --published --convention min", "contradict"),
        ("--heads 8 --clamp 0", "--clamp"),
        ("--heads 8 --clamp 87", "below 0"),
        ("--heads 8 --softcap -1", "--softcap"),
        ("--heads 8 --softcap 5 --logit-gap 12", "--logit-gap"),
        ("--heads 8 --logit-gap inf", "--logit-gap"),
        ("--heads 8 --scale 0", "--scale"),
        ("--heads 8 --length 0", "--length"),
        ("--heads 8 --length 1e300 --certify", "length"),
        ("--heads 8 --length 1e300 --positions", "length"),
        ("--heads 8 --spread 3", "--spread is for --certify"),
        ("--heads 8 --certify --spread -1", "--spread"),
        ("--heads 8 --recipe mpt", "--recipe is for --positions"),
        ("--heads 8 --positions --recipe llama", "absolute, relative, bloom, falcon, mpt"),
        ("--heads 8 --positions --log-distance", "--log-distance"),
        ("--heads 8 --positions --clamp -3", "--clamp"),
        ("--heads 8 --positions --scale 0.125", "leave out --scale"),
        ("--heads 8 --softcap 1e308", "--softcap 1e+308"),
        ("--errata --heads 8", "--errata stands alone"),
        ("--errata --format fp16", "leave out --format"),
    ],
)
def test_bad_input_is_one_line(arguments, said):
    for more in ((), ("--json",)):
        result = run(*arguments.split(), *more, code=2)
        assert said in result.stderr
        assert result.stdout == ""
        assert result.stderr.strip().count("\n") == 0


def test_a_table_for_people():
    text = run("--model", "bloom-560m", "--certify").stdout
    for part in (
        "blind from 132 (steepest head) to 23778",
        "35.471 %",
        "certificate: blind somewhere",
        "total_variation",
    ):
        assert part in text
    assert "nowhere" in run("--heads", 4, "--clamp", -20).stdout
    assert "no clamp helps" in run("--heads", 4, "--format", "e4m3", "--certify", "--spread", 9).stdout
    assert len(run("--heads", 9).stdout.splitlines()) < 20


def test_long_contexts_are_ordinary():
    found = payload("--heads", 16, "--length", "1e300")
    assert (found["blind_fraction_row"], found["blind_fraction_matrix"]) == (1, 1)
    assert "positions" not in payload("--model", "mpt-7b", "--length", "1e6")


def test_the_errata():
    found = payload("--errata")
    assert all(one["reproduced"] for one in found["errata"])
    text = run("--errata").stdout
    for part in ("printed 124, 22358", "762, 178865", "36.5509", "88.26", "4.37329e+53"):
        assert part in text
    # neutral in tone
    assert not re.search(r"wrong|error|mistake|sloppy|false", text, re.IGNORECASE)


def test_commands_of_the_errata_show_the_number():
    """Each named command runs, and what it prints has all numbers of the reading, shares as fractions."""
    from critattn.blindness.errata import errata

    commands = {}
    for one in errata():
        for reading in (one.convention, *one.others):
            if reading.command.startswith("critattn blindness"):
                commands.setdefault(reading.command, []).append((one.unit, reading.values))
    assert len(commands) > 15
    for line, readings in commands.items():
        found = payload(*shlex.split(line)[2:])
        numbers = np.array([float(text) for text in re.findall(r"-?\d+\.?\d*(?:e[+-]?\d+)?", json.dumps(found))])
        for unit, values in readings:
            for one in values:
                if unit == "nats":
                    # the cap's 2z is what the certainly blind distance has above the threshold, to one position
                    bias = found["certainly_blind_from"][-1] * found["slopes"][-1]
                    assert 0 <= bias + found["threshold_nats"] - one < found["slopes"][-1]
                else:
                    wanted = {"per cent": one / 100, "keys": 32768 - one}.get(unit, one)
                    assert np.isclose(numbers, wanted, rtol=1e-12).any(), (line, one)


def test_the_page_of_the_docs_has_the_computed_tables():
    for name, text in (("models", models_markdown()), ("errata", errata_markdown())):
        shown = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", DOCS, re.DOTALL)
        assert shown
        assert shown[1] == text


def test_commands_of_the_page_give_what_it_says():
    for line in re.findall(r"`critattn (blindness [^`]*)`", DOCS):
        assert CliRunner().invoke(main, shlex.split(line)).exit_code == 0, line
    verdicts = re.findall(r"`critattn blindness ([^`]*--certify)`: ([a-z ]+)", DOCS)
    assert len(verdicts) == 2
    for line, verdict in verdicts:
        assert payload(*shlex.split(line))["certificate"]["verdict"] == verdict.strip()
    assert blindness.position_error(2**-0.5, 2048).total_variation == pytest.approx(0.386, abs=5e-4)
    relative = blindness.position_error(2**-0.5, 2048, recipe="relative")
    assert relative.total_variation == pytest.approx(0.0003, abs=5e-5)


@pytest.mark.parametrize(
    "arguments",
    [
        # nearly flat slopes: in an endless row every weight is zero, in this one none
        "--heads 4 --bias-max 24 --format e4m3 --length 900",
        "--heads 4 --bias-max 12 --format e4m3 --length 1500",
        "--heads 3 --format fp16 --length 300",
        "--heads 3 --format e5m2 --length 400 --scale 0.125",
        "--heads 3 --format e5m2 --length 400 --clamp -4",
        "--heads 3 --format e4m3 --length 700 --log-distance",
    ],
)
def test_shares_of_normalised_weights_are_those_counted(arguments):
    """Each row of the causal matrix is divided by its own sum; logits this near the threshold (1e-9) do not occur."""
    found = payload(*arguments.split(), "--convention", "normalised")
    length, floor = found["length"], found["clamp"]
    distances = np.arange(length)
    last, matrix = [], []
    for slope, distance in zip(found["slopes"], found["blindness_distances"], strict=True):
        bias = slope * (np.log1p(distances) if found["log_distance"] else distances)
        logits = -found["scale"] * (bias if floor is None else np.minimum(bias, -floor))
        sums = np.log(np.cumsum(np.exp(logits)))
        blind = [logits[: row + 1] - sums[row] <= found["threshold_nats"] for row in range(length)]
        last.append(np.mean(blind[-1]))
        matrix.append(np.concatenate(blind).mean())
        first = int(np.argmax(blind[-1])) if blind[-1].any() else math.inf
        assert distance == first or (first == math.inf and (distance is None or distance >= length))
    assert found["blind_fraction_row"] == pytest.approx(np.mean(last), abs=1e-12)
    assert found["blind_fraction_matrix"] == pytest.approx(np.mean(matrix), abs=1e-12)


def test_an_encoder_divides_by_the_keys_of_both_sides():
    found = payload("--model", "jina-v2", "--format", "e4m3", "--convention", "normalised", "--length", 200)
    row = np.arange(200)
    shares = []
    for slope in found["slopes"]:
        weights = np.exp(-slope * abs(row[:, None] - row))
        shares.append(np.mean(np.log(weights / weights.sum(axis=1, keepdims=True)) <= found["threshold_nats"]))
    assert found["blind_fraction_square"] == pytest.approx(np.mean(shares), abs=1e-12)


def test_what_a_cap_makes_certain_holds_for_weights_after_division():
    """The sum takes ln Z off the distance of numerators, which would call blind keys visible."""
    arguments = ("--heads", 2, "--format", "fp16", "--softcap", 2, "--length", 4096)
    plain, divided = payload(*arguments), payload(*arguments, "--convention", "normalised")
    for head, slope in enumerate(divided["slopes"]):
        distances = np.arange(4096)
        for gap, name in ((-4.0, "visible_below"), (4.0, "certainly_blind_from")):
            logits = gap - slope * distances - math.log(np.exp(-slope * distances).sum())
            assert divided[name][head] == int(np.argmax(logits <= divided["threshold_nats"]))
            assert divided[name][head] < plain[name][head]


def test_extreme_slopes_and_scales_end_without_a_warning(write):
    tiny = payload("--slopes", write("a.txt", "1e-320"), "--convention", "normalised")
    assert (tiny["blind_fraction_row"], tiny["blind_fraction_matrix"]) == (0, 0)
    run("--heads", 16, "--bias-max", 1000, "--scale", "1e-100", "--convention", "normalised")
    for arguments in ("--certify --scale 1e308", "--convention normalised --scale 1e308"):
        result = run("--heads", 4, *arguments.split())
        assert result.stderr == ""
        assert "blind from 1 (steepest head) to 1" in result.stdout
    counted = run("--heads", 4, "--convention", "normalised", "--length", "1e300").stdout
    assert "an uncounted share" in counted


def test_a_scale_of_ones_own_is_not_that_of_the_recipe():
    assert "positions" in payload("--model", "falcon-rw-7b")
    assert "positions" not in payload("--model", "falcon-rw-7b", "--scale", 1)


def test_biases_that_overflow_the_format_are_said_to():
    """m j = 0.25 (N - 1) passes 448 and 65504; the cast gives NaN in one format, infinity in the other."""
    for name, length in (("e4m3fn", 2048), ("fp16", 300_000)):
        arguments = ("--heads", 4, "--positions", "--format", name, "--length", length)
        steepest, *_, flattest = payload(*arguments)["positions"]
        assert [steepest[key] for key in ("total_variation", "max_error", "resolution")] == [None] * 3
        assert 0 < flattest["total_variation"] < 1
        result = run(*arguments)
        assert f"beyond the largest number of {name}; that row has no weights" in result.stdout
        assert result.stderr == ""
    assert "no weights" not in run("--heads", 4, "--positions", "--recipe", "relative").stdout
