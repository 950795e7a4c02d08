"""`critattn threshold`: from stores and studies to thresholds, predictions and verdicts."""

import json

import numpy as np
import oracles
import pytest
from click.testing import CliRunner

from critattn.cli import main
from critattn.storage import Store
from critattn.sweeps import SweepSpec, analysis, load_study
from critattn.theory import finite_dimension, simplex

KEYS = {
    "parameter",
    "coordinates",
    "critical",
    "standard_error",
    "method",
    "converged",
    "reason",
    "predicted",
    "predictor",
    "error_class",
    "verdict",
}
CURVES = """
observables = ["self_weight"]
[tokens]
kind = "simplex"
[axes]
n = [8, 16, 32]
d = "n"
rho = 0.5
gamma = "0:4:5"
[quick]
n = [4, 8]
"""
THRESHOLDS = """
observables = ["half_weight"]
[tokens]
kind = "near-simplex"
fix_common = {fixed}
[axes]
n = 128
d = 16
rho = [0.0, 0.5]
replicates = 4
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.delenv("CRITATTN_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "curves.toml").write_text(CURVES)
    for name, fixed in (("fixed", "true"), ("free", "false")):
        (tmp_path / f"{name}.toml").write_text(THRESHOLDS.format(fixed=fixed))
    return tmp_path


def run(*args, code=0):
    result = CliRunner().invoke(main, list(map(str, args)))
    assert result.exit_code == code, result.output
    return result


def found(*args):
    result = run("threshold", *args, "--json")
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


def refused(*args, parts=()):
    result = run("threshold", *args, code=2)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    for part in parts:
        assert part in line, line


@pytest.mark.slow
def test_curves_have_their_thresholds_searched_on_the_same_tokens(place):
    report = found("curves.toml")
    assert not (place / "runs").exists()
    assert set(report) >= {"schema_version", "thresholds"}
    assert len(report["thresholds"]) == 6
    for record in report["thresholds"]:
        assert set(record) == KEYS
        where = record["coordinates"]
        formula = simplex.half_weight_gamma if where["quantity"] == "half_weight" else simplex.half_angle_gamma
        assert record["predicted"] == pytest.approx(float(formula(0.5, np.log(where["n"]))), rel=1e-12)
        assert record["critical"] == pytest.approx(record["predicted"], rel=1e-9)
        assert (record["verdict"], record["standard_error"], record["error_class"]) == ("agrees", None, 0)
    (scaling,) = report["finite_size_scaling"]
    assert scaling["limit"] == pytest.approx(scaling["closed_form_limit"], rel=1e-8)
    assert (scaling["quantity"], scaling["expected"]) == ("half_angle", 2)


@pytest.mark.slow
def test_a_stored_study_brings_its_data_collapse(place):
    run("sweep", "curves.toml")
    by_file, by_name, by_path = (found(name) for name in ("curves.toml", "curves", "runs/curves"))
    assert by_file["thresholds"] == by_name["thresholds"] == by_path["thresholds"] == found("curves.toml")["thresholds"]
    assert by_name["data_collapse"] is not None
    assert by_name["data_collapse"]["critical"] == pytest.approx(2, abs=0.2)


def test_quick_axes_and_the_place_of_the_store():
    assert {record["coordinates"]["n"] for record in found("curves.toml", "--quick")["thresholds"]} == {4, 8}
    run("sweep", "fixed.toml", "--store", "elsewhere")
    assert len(found("fixed", "--store", "elsewhere")["thresholds"]) == 2
    refused("fixed.toml", parts=["runs/fixed", "critattn sweep fixed.toml"])


@pytest.mark.parametrize("name", ["fixed", "free"])
def test_draws_of_near_simplex_tokens(name):
    run("sweep", f"{name}.toml")
    records = found(name)["thresholds"]
    data = Store.open(f"runs/{name}").read()
    ratios = found_ratios(name)
    for record, roots, zeta in zip(records, data["half_weight"].values[0, 0], ratios, strict=True):
        rho = record["coordinates"]["rho"]
        effective = rho * zeta / (rho * zeta + 1 - rho) if name == "free" else np.full(4, rho)
        predicted = np.array([float(finite_dimension.half_weight_gamma(r, np.log(128), 16)) for r in effective])
        assert record["critical"] == pytest.approx(roots.mean(), rel=1e-12)
        assert record["predicted"] == pytest.approx(predicted.mean(), rel=1e-12)
        assert record["standard_error"] == pytest.approx(np.std(roots - predicted, ddof=1) / 2, rel=1e-9)
        assert record["error_class"] == 0.005
        distance = abs(roots.mean() - predicted.mean())
        expected = "agrees" if distance <= 4 * record["standard_error"] else "within theory error"
        assert record["verdict"] == expected
    # the draw's own effective rho takes the scatter of |z_0| out of the error
    plain = data["half_weight"].values[0, 0, 1].std(ddof=1) / 2
    assert (records[1]["standard_error"] < 0.7 * plain) == (name == "free")


def found_ratios(name):
    """|z_0|^2/d of each draw, (rho, draws), from the tokens themselves."""
    from critattn.sweeps import evaluation

    spec: SweepSpec = load_study(f"{name}.toml").spec()
    return np.array(
        [[evaluation.make_tokens(spec, (0, 0, row, draw)).common_ratio for draw in range(4)] for row in range(2)]
    )


def test_a_single_draw_has_the_error_over_its_rows():
    run("sweep", "--n", "48", "--d", "16", "--rho", "0.5", "--store", "one")
    (store,) = json.loads(run("store", "list", "--store", "one", "--json").stdout)["stores"]
    (record,) = found(store["path"])["thresholds"]
    assert record["standard_error"] > 0
    assert record["verdict"] in ("agrees", "within theory error")
    assert record["predicted"] != pytest.approx(
        float(finite_dimension.half_weight_gamma(0.5, np.log(48), 16)), rel=1e-3
    )


def test_a_disagreement_is_shown(monkeypatch):
    from critattn import comparison

    monkeypatch.setattr(comparison.simplex, "half_weight_gamma", lambda rho, log_n: 2.5)
    result = run("threshold", "curves.toml")
    assert result.stdout.count("disagrees") == 3
    assert result.stdout.count("agrees") == 6
    assert result.stdout.index("Finite-size scaling") < result.stdout.index("verdict")


def test_random_scores():
    options = ["--tokens", "random-scores", "--n", "256", "--rho", "0.5", "--tau", "0,0.05,0.4", "--replicates", "4"]
    run("sweep", *options, "--observables", "median_half_weight", "--store", "s")
    (store,) = json.loads(run("store", "list", "--store", "s", "--json").stdout)["stores"]
    none, some, frozen = found(store["path"])["thresholds"]
    assert (none["predictor"], none["verdict"]) == ("simplex (1.7)", "agrees")
    assert some["predictor"] == "mixed (9.1)"
    assert some["predicted"] == pytest.approx(some["critical"], rel=0.01)
    assert (frozen["critical"], frozen["predicted"], frozen["verdict"]) == (None, None, None)
    assert frozen["reason"]


def test_tokens_of_a_file():
    np.save("x.npy", oracles.gaussian_tokens(0, 60, 12, 0.5))
    run("sweep", "--file", "x.npy", "--gamma", "1,2,3", "--store", "s")
    (store,) = json.loads(run("store", "list", "--store", "s", "--json").stdout)["stores"]
    (record,) = found(store["path"])["thresholds"]
    where = record["coordinates"]
    units = np.load("x.npy")
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    rho = (units @ units.T)[~np.eye(60, dtype=bool)].mean()
    assert where["effective_rho"] == pytest.approx(rho, rel=1e-12)
    assert (where["n"], where["d"], record["error_class"]) == (60, 12, None)
    assert record["predicted"] == pytest.approx(float(finite_dimension.half_weight_gamma(rho, np.log(60), 12)))
    assert record["verdict"] in ("agrees", "disagrees")
    assert record["standard_error"] > 0


def test_a_store_with_gaps_is_completed_first(place):
    run("sweep", "fixed.toml")
    Store.open("runs/fixed").chunk_file((0, 0, 1, 2)).unlink()
    refused("fixed.toml", parts=["runs/fixed", "1 of 8 units", "critattn sweep fixed.toml"])
    run("sweep", "fixed.toml")
    assert len(found("fixed.toml")["thresholds"]) == 2


def test_a_changed_study_is_not_mixed_with_old_data(place):
    run("sweep", "curves.toml")
    (place / "curves.toml").write_text(CURVES.replace("rho = 0.5", "rho = 0.4"))
    refused("curves.toml", parts=["runs/curves", "axes.rho was [0.5], is [0.4]"])


@pytest.mark.slow
def test_seed_and_dtype_reach_a_study_that_is_computed_here(place):
    (place / "drawn.toml").write_text(THRESHOLDS.format(fixed="true") + 'gamma = "0:4:3"\n')
    (place / "drawn.toml").write_text((place / "drawn.toml").read_text().replace('["half_weight"]', '["self_weight"]'))
    first, again, other = (found("drawn.toml", "--seed", seed)["thresholds"] for seed in (0, 0, 1))
    assert first == again
    assert first[0]["critical"] != other[0]["critical"]


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        ((), ["STUDY_OR_STORE"]),
        (("order_parameter",), ["'order_parameter'", "order_parameters"]),
        (("",), ["''"]),
        (("finite_dimension",), ["runs/finite_dimension", "critattn sweep finite_dimension"]),
        (("finite_dimension", "--quick"), ["finite_dimension-quick", "--quick"]),
        (("finite_dimension", "--store", "s"), ["s/finite_dimension", "--store s"]),
        (("depth",), ["attention.layers", "depth"]),
        (("missing.toml",), ["missing.toml"]),
        (("broken.toml",), ["broken.toml", "TOML"]),
    ],
)
def test_what_cannot_be_read_is_one_line(place, args, parts):
    (place / "broken.toml").write_text("x = = 1")
    refused(*args, parts=parts)
    assert not (place / "runs").exists()


def test_people_get_a_table():
    text = run("threshold", "curves.toml").stdout
    assert "simplex, n 8, d 8, rho 0.5" in text
    assert "half angle" in text
    assert text.rstrip().splitlines()[-1].split()[-1] == "agrees"


def test_analysis_is_what_the_command_prints():
    comparisons = analysis.study_thresholds(load_study("curves.toml").spec())
    assert [analysis.record(one)["critical"] for one in comparisons] == [
        record["critical"] for record in found("curves.toml")["thresholds"]
    ]
