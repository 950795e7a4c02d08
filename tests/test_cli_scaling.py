"""`critattn scaling`: the list, values, vectors, checks of files, bad input; and the table of the docs."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from critattn import scaling
from critattn.cli import main

LAWS = [one.name for one in scaling.catalogue() if one.law is not None]
DOCS = (Path(__file__).parents[1] / "docs" / "scaling.md").read_text(encoding="utf-8")


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["scaling", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def payload(*arguments, code=0):
    result = run(*arguments, "--json", code=code)
    assert len(result.stdout.splitlines()) == 1
    return json.loads(result.stdout)


@pytest.fixture
def write(tmp_path):
    def put(name, content):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    return put


def test_the_stable_keys():
    found = payload("--law", "ssmax", "--n", 4096)
    assert found["positions"] == 4095
    assert found["n"] == 4096
    assert found["factor"] == pytest.approx(0.43 * math.log(4096), rel=1e-15)
    assert found["beta"] == found["factor"] / 8
    assert found["gamma"] == pytest.approx(0.43 * 8)
    assert found["mark"] == "unverified"
    listed = payload("--law", "ssmax", "--n", "1,4096", "--d", 128, "--qk-norm", 1)
    assert listed["gamma"] == [None, pytest.approx(0.43 / math.sqrt(128))]
    assert listed["factor"][0] == 0
    assert payload("--law", "ssmax", "--positions", "0,4095")["factor"] == listed["factor"]
    assert payload("--law", "ssmax", "--log-n", math.log(4096))["factor"] == pytest.approx(found["factor"])
    assert payload("--law", "ssmax", "--n", "1e300")["factor"] == pytest.approx(0.43 * 300 * math.log(10))


def test_several_laws_and_all_of_them():
    found = payload("--law", "llama-4", "--law", "ministral-3", "--positions", "8190,8191")
    assert found["positions"] == [8190, 8191]
    assert found["factor"] == [[1, pytest.approx(1.0693147181)], [1, 1]]
    assert [one["law"] for one in found["laws"]] == ["llama-4", "ministral-3"]
    everything = payload("--n", 100)
    assert len(everything["laws"]) == len(scaling.catalogue())
    assert [one["factor"] is None for one in everything["laws"]] == [one.law is None for one in scaling.catalogue()]


def test_parameters_and_the_length_of_the_sequence():
    assert payload("--law", "qwen-1", "--set", "reference=2048", "--n", 4096)["factor"] == pytest.approx(12 / 11)
    assert payload("--law", "clex", "--n", 100, "--total", 65536)["factor"] == pytest.approx(16 / 12)
    assert payload("--law", "qwen-1", "--n", 32768)["factor"] is None


def test_the_critical_line():
    found = payload("--law", "constant", "--n", "100,1000", "--rho", 0.3)
    assert found["critical_gamma"] == pytest.approx(1 / 0.7)
    assert found["crossing_n"] == pytest.approx(math.exp(8 * 0.7))
    assert found["relative_gamma"][0] > 1 > found["relative_gamma"][1]
    assert payload("--law", "ssmax", "--rho", 0.3)["crossing_n"] is None
    assert payload("--rho", 0.3)["laws"][0]["crossing_n"] == found["crossing_n"]


def test_the_list_marks_what_is_unverified():
    found = payload()["laws"]
    assert [one["name"] for one in found] == [one.name for one in scaling.catalogue()]
    by_name = {one["name"]: one for one in found}
    assert by_name["swan-gpt"]["mark"] == "unverified"
    assert by_name["deepseek-v3"]["unverified"]
    assert by_name["qassmax"]["factor_per_row"] is False
    assert by_name["qassmax"]["reason"]
    assert by_name["scale-invariant"]["as_transform"] is True
    assert by_name["grok-2"]["first_row"] == 0
    assert by_name["grok-2"]["order"] == ["base", "cap", "scale", "mask"]
    shown = run().stdout
    assert "UNVERIFIED" in shown
    assert "in part unverified" in shown
    assert "UNVERIFIED: a, the base" in run("--law", "swan-gpt", "--n", 8).stdout
    assert "no factor per row" in run("--law", "qassmax").stdout


def test_vectors_carry_their_look_alikes():
    found = payload("--law", "llama-4")
    (other,) = found["look_alikes"]
    assert other["law"] == "ministral-3"
    assert {8191, 16383} <= set(other["differs_at"])
    for row in other["differing_rows"]:
        assert found["factor"][row] != other["factor"][row]
    assert set(found) >= {"document_positions", "keys_seen", "total_keys"}


@pytest.mark.parametrize("name", LAWS)
def test_every_law_checks_its_own_vectors(name, write):
    file = write("vectors.json", run("--law", name, "--json").stdout)
    wrong = scaling.entry(name).wrong
    found = payload("--check", file, code=1 if wrong else 0)
    assert found["law"] == name
    assert name in found["names"]
    assert found["residual"] < 1e-12
    assert found["claim"] == name
    assert found["claim_holds"] is not wrong
    assert found["verdict"] == ("inverse" if wrong else "law")


def test_a_check_that_does_not_hold_is_exit_1(write):
    p = np.array([0, 100, 8190, 8191, 8192, 16383, 131071])
    m = 1 + 0.1 * np.log1p(p // 8192)
    file = write("data.json", {"positions": p.tolist(), "factor": m.tolist()})
    found = payload("--check", file)
    assert (found["law"], found["claim_holds"]) == ("llama-cpp", None)
    assert found["also"][0]["law"] == "llama-4"
    claimed = payload("--check", file, "--law", "llama-4", code=1)
    assert (claimed["law"], claimed["claim_holds"]) == ("llama-cpp", False)
    shown = run("--check", file, "--law", "llama-4", code=1).stdout
    assert "does not hold" in shown
    assert "one row off" in shown


def test_faults_from_files(write):
    rows = "\n".join(f"{p},{1 if p < 1024 else 1024 / (p + 1):.10g}" for p in (0, 1023, 1024, 8191, 131071))
    found = payload("--check", write("inverse.csv", f"position,factor\n{rows}\n"), code=1)
    assert (found["verdict"], found["law"], found["holds"]) == ("inverse", "grok-2-inverse", False)
    found = payload("--check", write("plain.csv", rows), code=1)
    assert found["verdict"] == "inverse"
    flat = write("t.csv", "n,factor\n" + "".join(f"{n},1.3466\n" for n in (1, 100, 5000)))
    found = payload("--check", flat, code=1)
    assert (found["verdict"], found["law"]) == ("missing square", "yarn")
    shift = write("s.json", [{"n": n, "factor": n**-0.4} for n in (1, 10, 100, 5000)])
    found = payload("--check", shift, code=1)
    assert (found["verdict"], found["law"]) == ("shift", None)
    random = write(
        "r.json", {"positions": list(range(9)), "factor": np.random.default_rng(0).uniform(1, 2, 9).tolist()}
    )
    found = payload("--check", random, code=1)
    assert (found["verdict"], found["law"]) == ("none", None)
    assert found["residual"] > 0
    assert len(found["closest"]) == 5
    assert "no law of the catalogue fits" in run("--check", random, code=1).stdout


def test_scores_and_logits_tell_a_shift_from_a_scale(write):
    rows = [(p, x) for p in (0, 3, 50, 1000, 9000) for x in (-1.0, 0.5, 2.0)]

    def data(logit):
        columns = {"positions": [p for p, _ in rows], "scores": [x for _, x in rows]}
        return {**columns, "logits": [logit(p + 1, x) for p, x in rows]}

    found = payload("--check", write("a.json", data(lambda n, x: x - 0.4 * math.log(n))), code=1)
    assert (found["verdict"], found["rows"]) == ("shift", 5)
    assert found["parameters"]["s"] == pytest.approx(0.4)
    found = payload("--check", write("b.json", data(lambda n, x: 0.43 * math.log(n) * x)))
    assert found["law"] == "ssmax"
    assert found["shift"] is None
    both = data(lambda n, x: 0.43 * math.log(n) * x - math.log(n))
    found = payload("--check", write("c.json", both))
    assert found["law"] == "ssmax"
    assert "softmax ignores" in found["shift"]


def test_incomplete_rows_and_unknown_claims_are_left_out(write):
    data = {"positions": [0, 1, 2, 100], "factor": [1, None, 1, 1], "law": "my-engine", "parameters": {"x": "y"}}
    found = payload("--check", write("d.json", data))
    assert (found["rows"], found["law"], found["claim"]) == (3, "constant", None)
    assert set(found["names"]) >= {"constant", "llama-4", "qwen-1"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--law", "lama-4", "--n", 8), ("--law lama-4", "did you mean 'llama-4'")),
        (("--law", "llama-4", "--n", 0), ("--n", "0")),
        (("--law", "llama-4", "--positions", -1), ("--positions", "-1")),
        (("--law", "llama-4", "--positions", 1.5), ("--positions", "1.5")),
        (("--law", "llama-4", "--n", 8, "--positions", 3), ("--n", "--positions", "one of them")),
        (("--law", "llama-4", "--log-n", 800), ("--log-n", "800", "709")),
        (("--law", "llama-4", "--n", 8, "--total", 4), ("--total", "4", "8")),
        (("--law", "llama-4", "--n", 8, "--set", "f"), ("--set", "NAME=VALUE")),
        (("--law", "llama-4", "--n", 8, "--set", "f=1"), ("--set f=1", "interval")),
        (("--law", "llama-4", "--n", 8, "--set", "interval=x"), ("--set", "'x'")),
        (("--law", "llama-4", "--n", 8, "--set", "interval=0"), ("--set interval=0", "positive")),
        (("--set", "a=1"), ("--set", "--law")),
        (("--law", "llama-4", "--law", "yarn", "--set", "a=1"), ("--set", "one --law")),
        (("--law", "llama-4", "--rho", 1), ("--rho", "1")),
        (("--law", "llama-4", "--rho", -2), ("--rho", "-2")),
        (("--law", "llama-4", "--qk-norm", -2), ("--qk-norm", "-2")),
        (("--tolerance", 0.1), ("--tolerance", "--check")),
        (("--check", "nowhere.json"), ("--check nowhere.json",)),
        (("--check", "nowhere.json", "--n", 8), ("--n", "--check")),
        (("--check", "nowhere.json", "--law", "yarn", "--law", "ssa"), ("--check", "one --law")),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(arguments, words):
    refused(run(*arguments, "--json", code=2), words)


def refused(result, words):
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert all(word in line for word in words), line


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.json", "{", ("no JSON",)),
        ("a.json", "3", ("object with positions",)),
        ("a.json", "{}", ("no positions",)),
        ("a.json", {"positions": [1, 2]}, ("no factor",)),
        ("a.json", {"positions": [1, 2], "factor": [1]}, ("different lengths",)),
        ("a.json", {"positions": [1], "factor": ["x"]}, ("factor", "'x'")),
        ("a.json", {"positions": [-1], "factor": [1]}, ("below 0",)),
        ("a.json", {"n": [0], "factor": [1]}, ("below 0",)),
        ("a.json", {"positions": [None], "factor": [1]}, ("no complete row",)),
        ("a.json", '{"positions": [1], "factor": [NaN]}', ("not finite",)),
        ("a.json", '{"positions": [1], "factor": [1e999]}', ("not finite",)),
        ("a.json", {"positions": [1, 1], "scores": [2, 2], "logits": [1, 1]}, ("two different scores",)),
        ("a.csv", "", ("empty",)),
        ("a.csv", "1,2,3\n", ("two columns",)),
        ("a.csv", "position,factor\n1\n", ("different lengths",)),
        ("a.csv", "position,factor\n1,y\n", ("'y'",)),
        ("a.json", "[" * 100_000, ("no JSON",)),
    ],
)
def test_bad_files_are_one_line_and_exit_2(name, content, words, write):
    refused(run("--check", write(name, content), code=2), ("--check", *words))


def test_binary_files_and_folders_are_refused(tmp_path):
    (tmp_path / "b.json").write_bytes(b"\xff\xfe\x00")
    refused(run("--check", tmp_path / "b.json", code=2), ("no text",))
    refused(run("--check", tmp_path, code=2), ("--check",))


def test_tables_for_people():
    assert "crossed at n = 270.426 downward" in run("--law", "llama-4", "--n", "8,9", "--rho", 0.3).stdout
    assert "never crossed" in run("--law", "ssmax", "--n", 8, "--rho", 0.3).stdout
    assert "crossing_n" in run("--rho", 0.3).stdout
    assert "relative_gamma" in run("--n", 100, "--rho", 0.3).stdout
    assert "Example: critattn scaling" in run("--help").stdout


def test_the_docs_list_every_law_with_its_formula_and_mark():
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \| (\w+)(\*?) \|", DOCS, re.MULTILINE)
    stated = {name: (formula, mark, bool(star)) for name, formula, mark, star in rows}
    assert len(rows) == len(stated)
    expected = {one.name: (one.formula, one.mark, bool(one.unverified)) for one in scaling.catalogue()}
    assert stated == expected
