"""The alternatives compute what the package computes, and ratios come from alternation."""

import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import oracles
import pytest
from click.testing import CliRunner

import critattn as ca
from critattn import gradient
from critattn.bench import alternatives, cases, step, timing
from critattn.bench.timing import Alone, alone, alternate
from critattn.cli import main
from critattn.cli.bench import targets_table
from critattn.training import torch_twin


def test_alternation_gives_the_ratio_of_each_pair():
    calls = []
    timing = alternate(lambda: (calls.append("a"), time.sleep(0.02)), lambda: (calls.append("b"), time.sleep(0.04)), 3)
    assert calls == ["a", "b"] * 4
    # sleeps are never shorter than asked for; the shorter one may be held up
    assert timing.ratio is not None
    assert timing.ratio == pytest.approx(0.5, abs=0.25)
    assert alternate(lambda: None, None, 1).ratio is None
    calls.clear()
    alternate(lambda: calls.append("a"), lambda: calls.append("b"), 2, settle=True)
    assert calls == list("ab" + "aab" * 2)


def test_alternatives_are_the_same_layer():
    x = oracles.gaussian_tokens(0, 24, 5, 0.4).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    beta = float(1.5 * np.log(24))
    expected = oracles.layer(x.astype(np.float64), beta, 0.0, 1.0)
    for make in (alternatives.naive_numpy, alternatives.naive_jax):
        np.testing.assert_allclose(make(x, beta)(), expected, atol=1e-5)
    exact = gradient.frobenius_norm_squared(ca.Attention(ca.LogN(1.5)), ca.Tokens(x)).value
    assert float(alternatives.jacobian_norm(x, beta)()) == pytest.approx(exact, rel=1e-4)


@pytest.mark.parametrize(("power", "met"), [(2.0, True), (1.5, False)])
def test_slopes_of_powers(power, met):
    outcome = cases._slope("exact", [(n, 1e-9 * n**power) for n in (1024, 2048, 4096)])
    assert outcome.figure == pytest.approx(power)
    assert outcome.met is met


def test_rates_are_those_of_the_same_work():
    for functions, shape in ((alternatives.gemms(8, 5, 7), (8, 7)), (alternatives.exponentials(11), (11,))):
        results = [np.asarray(function()) for function in functions]
        assert {result.shape for result in results} == {shape}
        for result in results[1:]:
            np.testing.assert_allclose(result, results[0], rtol=1e-5, atol=1e-5)


def allocate():
    """Hold and fill 200 MB for a moment."""
    before = timing.resident()
    held = np.ones(25_000_000)
    held[:] = 2.0
    return Alone(0.5, timing.peak_memory() - before, float(held[-1]))


@pytest.mark.slow
def test_memory_is_that_of_a_process_of_its_own(monkeypatch):
    # far more than the child needs, held by this process
    held = np.ones(40_000_000)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    found = alone(allocate)
    assert held.any()
    assert found.critical == 2.0
    assert found.seconds == 0.5
    assert 0.19e9 < found.bytes < 0.25e9


@pytest.mark.parametrize("dtype", step.TOLERANCES)
def test_the_step_of_an_accelerator(dtype, monkeypatch):
    monkeypatch.setattr(step, "LARGE", 512)
    found = step.on_device(dtype, 256, 1)
    assert found["dtype"] == dtype
    assert found["deviation"] < found["allowed_deviation"]
    assert found["ratio"] == pytest.approx(found["step_gflops"] / found["product_gflops"])
    # rounding to 8 bits is seen, and float32 is far better
    assert (found["deviation"] > 1e-4) == (dtype == "bfloat16")


def test_an_accelerator_is_measured_where_there_is_one(monkeypatch):
    assert step.on_accelerator(1) is None
    monkeypatch.setattr(step.jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(step, "on_device", lambda dtype, n, repeats: {"dtype": dtype, "n": n})
    assert step.on_accelerator(1) == [{"dtype": "float32", "n": 16_384}, {"dtype": "bfloat16", "n": 16_384}]


def test_the_table_says_what_was_missed():
    outcomes = [
        cases.Outcome("one", 0.2, "x SDPA", "at most 0.25", met=True, seconds=1.5, floor_ratio=2.0),
        cases.Outcome("two", 0.3, "x SDPA", "at most 0.25", met=False, seconds=2.5),
        cases.Outcome("three", None, "x SDPA", "at most 0.25", met=None, seconds=3.5),
    ]
    lines = targets_table({"targets": [asdict(outcome) for outcome in outcomes]}).splitlines()
    assert lines[2] == "| one | 0.2 x SDPA | at most 0.25 | met | 2 | 1.5 |"
    assert lines[3] == "| two | 0.3 x SDPA | at most 0.25 | not met |  | 2.5 |"
    assert lines[4] == "| three | - | at most 0.25 | - |  | 3.5 |"


@pytest.mark.slow
def test_training_steps_keep_up_with_torch():
    found = list(cases.training_steps(quick=True))
    assert len(found) == (2 if torch_twin.HAS_TORCH else 0)
    for one in found:
        assert one.target == "at most 2"
        # three times the target, for machines that do something else as well
        assert one.figure is not None
        assert one.figure < 6


def test_training_steps_alone_are_not_recorded(tmp_path):
    done = CliRunner().invoke(main, ["bench", "--training", "--out", str(tmp_path / "kept")])
    assert done.exit_code == 2
    assert "--training: takes no --out" in done.stderr
    assert list(tmp_path.iterdir()) == []
