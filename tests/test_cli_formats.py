"""`critattn formats`: the stable keys, the table for people, and names that are not there."""

import json
import math

import pytest
from click.testing import CliRunner

from critattn import formats
from critattn.cli import main
from critattn.formats import operations

KEYS = {"significand_bits", "normal", "subnormal", "zero", "overflow", "absorption"}


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["formats", *arguments])
    assert result.exit_code == code, result.output
    return result


def payload(*arguments):
    result = run(*arguments, "--json")
    assert len(result.stdout.splitlines()) == 1
    return json.loads(result.stdout)


def test_the_stable_keys_of_every_format():
    found = payload("--stated")
    assert list(found["formats"]) == list(formats.names())
    assert found["backends"] == {}
    assert found["schema_version"] == 1
    for form in found["formats"].values():
        assert set(form) >= KEYS
        assert all(isinstance(form[key], float | int) for key in KEYS)
        assert form["normal"] > form["subnormal"] > form["zero"]
    bf16 = found["formats"]["bf16"]
    assert bf16["significand_bits"] == 8
    assert bf16["zero"] == pytest.approx(-134 * math.log(2), rel=1e-15)
    assert found["formats"]["e4m3fn"]["overflow_rounded"] is None
    assert found["formats"]["fp16"]["mask"]["spoiling"] == -16


def test_backends_are_measured():
    found = payload("fp32", "float16", "fp32", "--backend", "numpy", "--backend", "jax")
    assert list(found["formats"]) == ["fp32", "fp16"]
    assert list(found["backends"]) == ["numpy", "jax"]
    for name, backend in found["backends"].items():
        assert backend["version"]
        assert backend["device"]
        for one in backend["measurements"]:
            assert backend["first_zero"][one["operation"]][one["format"]] == one["first_zero"]
            tau = found["formats"][one["format"]]
            assert one["class"] in ("zero", "normal", "own"), (name, one)
            assert one["first_zero"] >= tau["zero"] - 0.02
            assert one["class"] != "zero" or one["last_nonzero"] > tau["zero"] >= one["first_zero"]


def test_a_format_that_a_backend_does_not_compute_is_null():
    found = payload("e4m3fn", "--backend", "jax")["backends"]["jax"]
    assert found["first_zero"]["attention"]["e4m3fn"] is None
    notes = {one["operation"]: one["note"] for one in found["measurements"]}
    assert "not computed" in notes["attention"]


def test_the_table_for_people():
    text = run("fp16", "e4m3fn", "--backend", "numpy").stdout
    assert "-17.3287" in text
    assert "-17.34375 zero" in text
    assert "-18: nan" in text
    assert "bf16" not in text
    assert operations.version("numpy") in text
    assert "Measured here" not in run("--stated").stdout


def test_what_is_not_installed_is_said(monkeypatch):
    monkeypatch.setattr(operations, "available", lambda: ("numpy",))
    assert payload("fp32")["not_installed"] == ["jax", "torch"]
    assert "Not installed, so not measured: jax, torch." in run("fp32").stdout
    assert "'torch' is not installed; installed: numpy" in run("--backend", "torch", code=2).stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("bf61",), "did you mean 'bf16'?"),
        (("fp16", "float8_e4m3f"), "did you mean 'float8_e4m3"),
        (("fp32", "nothing-like-it"), "known: fp32, bf16"),
        (("--backend", "jaxx"), "did you mean 'jax'?"),
        (("--backend", "numpy", "--stated"), "--stated and --backend"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments, said):
    result = run(*arguments, code=2)
    assert said in result.stderr
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
