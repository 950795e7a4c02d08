"""`critattn inspect`: stable keys, the table for people, the page, resuming, and wrong input."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import tiny_models
from click.testing import CliRunner

from critattn.cli import main
from critattn.models import fidelity, inspection, opening, phases, texts
from critattn.storage import Store

PLAN = ("--length", "16,32", "--windows", "1", "--rows", "4", "--gradient-probes", "2")
KEYS = {"model", "layers", "heads", "length", "fidelity", "head_table", "summary"}


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["inspect", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.write(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def found(folder, store):
    page = store / "page.html"
    options = ("--advise", "--target-length", 64, "--sweep-scale", "--factors", "0.5,2", "--html", page)
    return json.loads(run(folder, *PLAN, *options, "--store", store, "--json").stdout)


def test_the_stable_keys(found):
    assert found.keys() >= KEYS
    assert (found["model"], found["layers"], found["heads"], found["length"]) == ("tiny", 3, 4, [16, 32])
    assert found["fidelity"]["passed"] is None
    assert len(found["head_table"]) == 2 * 3 * 4
    assert {(one["n"], one["layer"], one["head"]) for one in found["head_table"]} == {
        (n, layer, head) for n in (16, 32) for layer in range(3) for head in range(4)
    }
    assert found["intervals_over"] == "texts"


def test_records_are_the_dataset(found, folder, store):
    """Means over texts of what the store holds, a second way."""
    data = Store.open(store / found["store"].split("/")[-1]).read()
    for one in found["head_table"]:
        at = {"n": one["n"], "layer": one["layer"], "head": one["head"], "window": 0}
        both = data["entropy"].sel(at).isel(sink=0).values, data["entropy"].sel(at).isel(sink=1).values
        assert one["entropy"] == pytest.approx(both[0].mean(), rel=1e-12)
        assert one["entropy_se"] == pytest.approx(both[0].std(ddof=1) / np.sqrt(3), rel=1e-9)
        assert one["without_sink"]["entropy"] == pytest.approx(both[1].mean(), rel=1e-12)
        value, ends = one["critical_multiplier"], one["critical_multiplier_interval"]
        assert one["phase"] in phases.PHASES
        assert (one["phase"] == "none") == (value is None)
        if value is not None and ends[0] is not None:
            # no upper end where 1/t_c may be 0
            assert ends[0] <= value <= (np.inf if ends[1] is None else ends[1])


def test_the_summary_counts_every_head(found):
    assert [(one["n"], one["sink"]) for one in found["summary"]] == [
        (n, sink) for n in (16, 32) for sink in ("kept", "dropped")
    ]
    for one in found["summary"]:
        assert sum(one["phases"].values()) == 12
        assert len(one["layer_medians"]) == 3
        assert set(one["predictions"]) == {"annealed", "random_energy", "tail", "spread"}
        t_c = [head["critical_multiplier"] for head in found["head_table"] if head["n"] == one["n"]]
        if one["sink"] == "kept":
            there = [value for value in t_c if value is not None]
            assert one["percentiles"]["critical_multiplier"]["50"] == pytest.approx(np.median(there))
            assert one["beyond"] == pytest.approx(sum(value < 1 for value in there) / 12)


@pytest.mark.parametrize(
    ("value", "low", "high", "expected"),
    [
        (0.5, 0.4, 0.9, "supercritical"),
        (0.5, 0.4, 1.1, "near critical"),
        (2.0, 1.1, 3.0, "subcritical"),
        (2.0, np.nan, np.nan, "subcritical"),
        (0.5, np.nan, np.nan, "supercritical"),
        (np.nan, np.nan, np.nan, "none"),
        (np.inf, np.nan, np.nan, "none"),
    ],
)
def test_phases(value, low, high, expected):
    assert phases.phase(value, low, high) == expected


def test_advice_and_scale(found):
    advice = found["advice"]
    assert advice["mark"] == "heuristic"
    assert (advice["train_length"], advice["target_length"]) == (32, 64)
    assert any("heuristic" in reason for reason in advice["reasons"])
    points = found["scale"]["points"]
    assert [(one["n"], one["factor"]) for one in points] == [(n, t) for n in (16, 32) for t in (0.5, 1, 2)]
    ones = [one["difference"]["value"] for one in points if one["factor"] == 1]
    assert ones == [0, 0]
    for one in points:
        assert 0 <= one["beyond"] <= 1
    assert [points[place]["beyond"] <= points[place + 1]["beyond"] for place in (3, 4)] == [True, True]
    assert found["scale"]["without_law"] is None


def test_a_law_is_shown_beside_no_law(found, folder, store):
    law = ("--sweep-scale", "--law", "ssmax", "--factors", "1")
    made = json.loads(run(folder, *PLAN, *law, "--store", store, "--json").stdout)["scale"]
    plain = [one["loss"]["value"] for one in found["scale"]["points"] if one["factor"] == 1]
    assert [one["loss"]["value"] for one in made["without_law"]] == pytest.approx(plain, rel=1e-6)
    assert made["law"] == "ssmax"
    assert all(one["loss"]["value"] != base for one, base in zip(made["points"], plain, strict=True))


class Page(HTMLParser):
    """Tags and attributes of a page."""

    def __init__(self):
        super().__init__()
        self.tags, self.sources, self.cells = [], [], 0

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.sources += [value for name, value in attrs if name in ("src", "href")]
        self.cells += tag == "td"


def test_the_page_needs_nothing_else(found):
    text = Path(found["page"]).read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert not {"script", "link", "iframe"} & set(page.tags)
    assert [one[:22] for one in page.sources] == ["data:image/png;base64,"]
    # layers, heads at the longest length, points of the scale
    assert page.cells == 3 * 8 + 12 * 15 + 6 * 5
    assert "tiny: attention heads on the phase diagram" in text
    assert "http" not in text


def test_the_page_escapes_what_files_say(tmp_path, store):
    folder = tiny_models.write(tmp_path / "a<b>&c")
    page = tmp_path / "page.html"
    plan = ("--length", "16", "--windows", "1", "--rows", "4", "--gradient-probes", "0", "--layers", "0")
    run(folder, *plan, "--html", page, "--store", store)
    text = page.read_text(encoding="utf-8")
    assert "a&lt;b&gt;&amp;c" in text
    assert "<b>" not in text


def test_a_second_run_reads_the_store(found, folder, store, monkeypatch):
    def refuse(*arguments, **how):
        raise AssertionError("computed again")

    monkeypatch.setattr(inspection.forward, "run", refuse)
    monkeypatch.setattr(fidelity, "check", lambda model: fidelity.Fidelity("none", None, None, None, None, "no gate"))
    again = json.loads(run(folder, *PLAN, "--store", store, "--json").stdout)
    assert again["head_table"] == found["head_table"]


def test_the_table_for_people(found, folder, store):
    text = run(folder, *PLAN, "--store", store).stdout
    assert "tiny: 3 layers of 4 heads, n = 32" in text
    assert "no reference" in text or "not trained" in text
    assert re.search(r"with key 0: t_c median [\d.]+", text)
    assert re.search(r"predicted t_c, tail: ", text)


def test_a_model_that_fails_its_gate_is_shown_and_is_exit_1(found, folder, store, monkeypatch):
    failed = fidelity.Fidelity("perplexity", 197.6, 17.69, 0.001, False, "perplexity 197.6: FAILED")
    monkeypatch.setattr(fidelity, "check", lambda model: failed)
    result = run(folder, *PLAN, "--store", store, "--json", code=1)
    assert json.loads(result.stdout)["fidelity"]["passed"] is False
    assert "perplexity 197.6: FAILED" in result.stderr


def test_another_plan_has_a_store_of_its_own(found, folder, store):
    other = json.loads(run(folder, *PLAN[:-2], "--gradient-probes", "0", "--store", store, "--json").stdout)
    assert other["store"] != found["store"]
    assert "gradient_norm" not in other["head_table"][0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--length", "8"), "length 8"),
        (("--length", "32,16"), "lengths [32, 16]"),
        (("--length", "x"), "--length 'x'"),
        (("--layers", "7"), "layers [7]"),
        (("--layers", "0,0"), "layers [0, 0]"),
        (("--windows", "0"), "windows 0"),
        (("--rows", "0"), "rows 0"),
        (("--gradient-probes", "1"), "probes 1"),
        (("--text", "nowhere"), "text 'nowhere'"),
        (("--advise",), "--advise needs --target-length"),
        (("--target-length", "64"), "--target-length is for --advise"),
        (("--factors", "1,2"), "--factors is for --sweep-scale"),
        (("--law", "ssmax"), "--law is for --sweep-scale"),
        (("--html", "page.txt"), "--html 'page.txt'"),
        (("--html", "nowhere/page.html"), "its folder is not there"),
        (("--sweep-scale", "--factors", "0,1"), "--factors '0,1'"),
        (("--sweep-scale", "--law", "nothing"), "nothing"),
    ],
)
def test_wrong_options_are_one_line(folder, store, arguments, message):
    given = {"--length", "--windows", "--rows", "--gradient-probes"} & set(arguments)
    plan = [part for pair in zip(PLAN[::2], PLAN[1::2], strict=True) if pair[0] not in given for part in pair]
    result = run(folder, *plan, *arguments, "--store", store, "--json", code=2)
    assert message in result.stderr
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) <= 4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "no such packaged model"),
        ("minilmm", "did you mean 'minilm'?"),
        ("nowhere/model.gguf", "no such file or folder"),
    ],
)
def test_models_that_are_not_there(name, message):
    assert message in run(name, code=2).stderr


def test_a_short_text_and_a_target_below_the_training_length(folder, store, tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("too short")
    assert "too short" in run(folder, *PLAN, "--text", short, "--store", store, code=2).stderr
    wrong = run(folder, *PLAN, "--advise", "--target-length", 16, "--store", store, code=2).stderr
    assert "--target-length 16" in wrong
    one = ("--length", "16", "--windows", "1", "--gradient-probes", "0", "--rows", "4")
    wrong = run(folder, *one, "--advise", "--target-length", 64, "--store", store, code=2).stderr
    assert "needs two lengths" in wrong


def test_a_path_wins_over_a_name(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny_models.write(tmp_path / "minilm")
    model, encoder = opening.opened("minilm")
    assert (model.config.family, encoder.kind) == ("llama", "bytes")
    assert texts.texts(["topics"])[0].name == "topics"
