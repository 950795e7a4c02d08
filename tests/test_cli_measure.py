"""`critattn measure`: every key, against closed forms, brute force and the package's own functions; bad input."""

import json
import struct
import zipfile

import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from click.testing import CliRunner
from safetensors.numpy import save_file

import critattn as ca
from critattn import scaling, tokens
from critattn.cli import main, measure_law
from critattn.cli import measure as module
from critattn.errors import SpecError
from critattn.protocols import precision
from critattn.scaling import InverseTemperature
from critattn.theory import simplex

KEYS = {
    "schema_version",
    "n",
    "d",
    "beta",
    "angle_ratio",
    "angle_ratio_of_means",
    "excluded_pairs",
    "self_weight",
    "entropy",
    "participation_ratio",
    "gradient_norm_squared",
    "gradient_norm",
    "operator_norm",
    "effective_rho",
    "half_weight_gamma",
}
GENERATED = ["--tokens", "near-simplex", "--n", "40", "--d", "8", "--rho", "0.4"]
GAMMA = ["--gamma", "1.2"]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*args, code=0):
    result = CliRunner().invoke(main, ["measure", *map(str, args)])
    assert result.exit_code == code, result.output
    return result


def refuse_constant(name):
    raise AssertionError(f"{name} in JSON")


def found(*args):
    result = run(*args, "--json")
    assert result.stderr == ""
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout, parse_constant=refuse_constant)


def refused(*args, parts=()):
    result = run(*args, code=2)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert "Traceback" not in line
    for part in parts:
        assert part in line, line


def save_npy(array, name="x.npy"):
    np.save(name, array)
    return name


def raw_weights(vectors, beta):
    logits = beta * vectors @ vectors.T
    masses = np.exp(logits - logits.max(axis=1, keepdims=True))
    return masses / masses.sum(axis=1, keepdims=True)


def test_the_promised_keys_are_there_and_hold_what_measure_gives():
    report = found(*GENERATED, "--gamma", "1.7", "--seed", "3")
    assert set(report) >= KEYS
    assert report["schema_version"] == 1
    assert (report["n"], report["d"], report["gamma"]) == (40, 8, 1.7)
    assert report["beta"] == pytest.approx(1.7 * np.log(40), rel=1e-15)
    made = tokens.near_simplex(3, 40, 8, rho=0.4)
    names = [*module.SHOWN, *module.GRADIENT, "operator_norm"]
    for name, estimate in ca.measure(ca.Attention(ca.LogN(1.7)), made, names).items():
        assert report[name] == estimate.value, name
        assert f"{name}_se" not in report
    located = ca.half_weight(made)
    assert report["half_weight_gamma"] == located.critical
    assert report["half_weight_gamma_se"] == located.standard_error
    assert report["predictor"] == "common direction (4.7)"


@pytest.mark.parametrize(("a", "b"), [(0.0, 1.0), (1.0, 0.5)])
def test_a_simplex_has_the_closed_forms(a, b):
    n, d, rho, gamma = 16, 20, 0.3, 1.2
    weights = ["--identity-weight", a, "--attention-weight", b]
    report = found("--tokens", "simplex", "--n", n, "--d", d, "--rho", rho, "--gamma", gamma, *weights)
    where, mixing = (gamma, rho, np.log(n)), {"identity_weight": a, "attention_weight": b}
    expected = {
        **{name: getattr(simplex, name)(*where) for name in ("self_weight", "entropy", "participation_ratio")},
        **{name: getattr(simplex, name)(*where, **mixing) for name in ("angle_ratio", "output_cosine")},
        "angle_ratio_of_means": simplex.angle_ratio(*where, **mixing),
        "gradient_norm_squared": simplex.gradient_norm_squared(*where, log_d=np.log(d), **mixing),
        "gradient_norm": simplex.gradient_norm(*where, log_d=np.log(d), **mixing),
        "effective_rho": rho,
    }
    for name, value in expected.items():
        assert report[name] == pytest.approx(float(value), rel=1e-12), name
    dense = np.linalg.svd(
        oracles.jacobian(ca.simplex(n, d, rho=rho).vectors, gamma * np.log(n), a, b), compute_uv=False
    )
    assert report["operator_norm"] == pytest.approx(dense[0], rel=1e-9)
    assert report["half_weight_gamma"] == pytest.approx(float(simplex.half_weight_gamma(rho, np.log(n))), rel=1e-9)
    assert "half_weight_gamma_se" not in report
    assert report["verdict"] == "agrees"


@pytest.mark.parametrize("suffix", ["npy", "npz", "csv", "safetensors"])
def test_the_reference_set_from_every_format(suffix):
    x, name = oracles.sine_tokens(), f"sine.{suffix}"
    extra = []
    if suffix == "npy":
        np.save(name, x)
    elif suffix == "npz":
        np.savez(name, other=np.ones((3, 3)), x=x)
        extra = ["--tensor", "x"]
    elif suffix == "csv":
        np.savetxt(name, x, delimiter=",", fmt="%.17g")
    else:
        save_file({"x": x, "bias": x[0].copy()}, name)
    report = found(name, *GAMMA, *extra)
    assert report["angle_ratio"] == pytest.approx(0.783493123759, abs=6e-13)
    assert report["angle_ratio_of_means"] == pytest.approx(0.902551228471, abs=6e-13)
    assert report["self_weight"] == pytest.approx(0.519168471098, abs=6e-13)
    assert report["gradient_norm_squared"] == pytest.approx(7.878450880922, abs=6e-12)
    assert report["gradient_norm"] == pytest.approx(7.878450880922 / 40, abs=2e-13)
    assert report["operator_norm"] == pytest.approx(0.963965088770, abs=6e-10)


@pytest.mark.slow
def test_residual_and_causal_reference_numbers():
    name = save_npy(oracles.sine_tokens())
    residual = found(name, *GAMMA, "--identity-weight", "1", "--attention-weight", "0.5")
    assert residual["gradient_norm_squared"] == pytest.approx(55.652636441475, abs=6e-12)
    assert residual["operator_norm"] == pytest.approx(1.479044215231, abs=6e-10)
    causal = found(name, *GAMMA, "--causal")
    assert causal["gradient_norm_squared"] == pytest.approx(11.030555079791, abs=6e-12)
    assert causal["operator_norm"] == pytest.approx(1.079012898851, abs=6e-10)
    assert causal["beta"] == pytest.approx(1.2 * np.log(8), rel=1e-15)
    assert causal["predicted_half_weight_gamma"] is None


@pytest.mark.slow
def test_beta_stands_for_gamma():
    name = save_npy(oracles.gaussian_tokens(0, 20, 6, 0.3))
    by_gamma, by_beta = found(name, "--gamma", "1.5"), found(name, "--beta", 1.5 * np.log(20))
    assert by_beta["beta"] == pytest.approx(by_gamma["beta"], rel=1e-15)
    assert by_beta["gamma"] == pytest.approx(1.5, rel=1e-14)
    for key in KEYS - {"beta", "schema_version"}:
        assert by_beta[key] == pytest.approx(by_gamma[key], rel=1e-9), key


@pytest.mark.slow
def test_length_row_has_no_single_beta():
    x = oracles.gaussian_tokens(1, 20, 6, 0.3)
    name = save_npy(x)
    report = found(name, "--gamma", "1.5", "--causal", "--length", "row")
    assert report["beta"] is None
    beta = (1.5 * np.log(np.arange(1, 21)))[:, None]
    weights = oracles.softmax_weights(x, beta[:, 0], causal=True)
    assert report["self_weight"] == pytest.approx(np.diag(weights).mean(), rel=1e-12)
    other = found(name, "--gamma", "1.5", "--causal", "--length", "sequence")
    assert other["self_weight"] == pytest.approx(
        np.diag(oracles.softmax_weights(x, 1.5 * np.log(20), causal=True)).mean(), rel=1e-12
    )


def test_tokens_that_are_not_normalised():
    x = oracles.gaussian_tokens(2, 15, 4, 0.3)
    report = found(save_npy(x), "--beta", "0.9", "--no-normalise")
    weights = raw_weights(x, 0.9)
    assert report["self_weight"] == pytest.approx(np.diag(weights).mean(), rel=1e-12)
    assert report["participation_ratio"] == pytest.approx((1 / (weights**2).sum(axis=1)).mean(), rel=1e-12)
    assert (report["gradient_norm"], report["gradient_norm_squared"]) == (None, None)
    assert report["operator_norm"] > 0
    assert report["verdict"] is None


@pytest.mark.slow
def test_a_sample_of_rows_has_standard_errors():
    report = found(*GENERATED, *GAMMA, "--sample-rows", "12", "--seed", "5")
    made = tokens.near_simplex(5, 40, 8, rho=0.4)
    again = ca.measure(ca.Attention(ca.LogN(1.2)), made, module.SHOWN, sample_rows=12, seed=5)
    for name in ("self_weight", "entropy", "participation_ratio", "angle_ratio", "angle_ratio_of_means"):
        assert (report[name], report[f"{name}_se"]) == (again[name].value, again[name].standard_error)
    assert report["gradient_norm_se"] > 0
    assert report["gradient_norm_squared_se"] == pytest.approx(320 * report["gradient_norm_se"])
    assert found(*GENERATED, *GAMMA, "--sample-rows", "12", "--seed", "6")["self_weight"] != report["self_weight"]


def test_the_costly_gradient_is_estimated_unless_exact(monkeypatch):
    exact = found(*GENERATED, "--gamma", "2")
    assert "gradient_norm_se" not in exact
    monkeypatch.setattr(module, "EXACT_OPERATIONS", 1.0)
    estimated = found(*GENERATED, "--gamma", "2")
    error = estimated["gradient_norm_se"]
    assert 0 < error < 0.1 * exact["gradient_norm"]
    assert abs(estimated["gradient_norm"] - exact["gradient_norm"]) < 5 * error
    forced = found(*GENERATED, "--gamma", "2", "--exact")
    assert "gradient_norm_se" not in forced
    assert forced["gradient_norm"] == exact["gradient_norm"]


def test_the_limit_of_exact_work_is_the_stated_one():
    assert module.EXACT_OPERATIONS == 1e11
    assert module.OPERATOR_SIZE == 65_536


def test_the_operator_norm_of_large_tokens_is_for_the_asking(monkeypatch):
    monkeypatch.setattr(module, "OPERATOR_SIZE", 319)
    assert found(*GENERATED, *GAMMA)["operator_norm"] is None
    assert found(*GENERATED, *GAMMA, "--operator-norm")["operator_norm"] > 0


@pytest.mark.slow
def test_float32_is_close_to_float64():
    double, single = (found(*GENERATED, "--gamma", "2", "--dtype", kind) for kind in ("float64", "float32"))
    for key in KEYS - {"schema_version"}:
        assert single[key] == pytest.approx(double[key], rel=5e-4), key


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-12)])
@pytest.mark.parametrize("beta", [1e2, 1e4, 1e6])
def test_rows_that_attend_to_themselves_alone_keep_their_gradient(dtype, tolerance, beta):
    # terms of the size beta^2 would have to cancel where the own key is not left out
    x = oracles.gaussian_tokens(0, 12, 4, 0.3)
    report = found(save_npy(x), "--beta", beta, "--dtype", dtype)
    expected = np.sum(oracles.jacobian(x, beta, 0.0, 1.0) ** 2)
    assert report["gradient_norm_squared"] == pytest.approx(expected, rel=tolerance)


@pytest.mark.slow
def test_equal_tokens_are_counted():
    x = oracles.gaussian_tokens(3, 12, 5, 0.2)
    x[3] = x[7]
    x[5] = 2 * x[7]
    assert found(save_npy(x), *GAMMA)["excluded_pairs"] == 3
    all_equal = found(save_npy(np.ones((4, 3))), *GAMMA)
    assert (all_equal["excluded_pairs"], all_equal["angle_ratio"]) == (6, None)
    assert (all_equal["half_weight_gamma"], all_equal["verdict"]) == (None, None)
    assert "self weight" in all_equal["half_weight_reason"]


@pytest.mark.slow
def test_the_smallest_tokens():
    one = found(save_npy(np.array([[3.0, 4.0]])), *GAMMA)
    assert (one["n"], one["beta"], one["self_weight"]) == (1, 0, 1)
    assert one["half_weight_gamma"] is None
    line = found(save_npy(np.array([[1.0], [-1.0], [2.0]])), *GAMMA)
    assert (line["d"], line["excluded_pairs"], line["operator_norm"]) == (1, 1, 0)
    assert line["gradient_norm"] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (("--gamma", "1e308"), ["--gamma", "1e+308", "gamma log n", "1e+15"]),
        (("--beta", "-1e16"), ["--beta", "-1e+16", "1e+15"]),
        (("--beta", "1e7", "--dtype", "float32"), ["--beta", "1e+07", "float32", "1e+06"]),
    ],
)
def test_an_absurd_temperature_is_refused(args, parts):
    refused(save_npy(oracles.sine_tokens()), *args, parts=parts)


def test_a_common_factor_of_the_weights_changes_no_direction():
    name = save_npy(oracles.sine_tokens())
    small, large = (found(name, *GAMMA, "--identity-weight", a, "--attention-weight", a) for a in ("1", "1e200"))
    assert large["angle_ratio"] == pytest.approx(small["angle_ratio"], rel=1e-12)
    assert large["output_cosine"] == pytest.approx(small["output_cosine"], rel=1e-12)


def test_a_seed_beyond_64_bits_is_refused():
    refused(*GENERATED, *GAMMA, "--seed", 2**63, parts=["--seed", str(2**63), "0<=x<="])
    assert found(*GENERATED, *GAMMA, "--seed", 2**63 - 1, "--sample-rows", 4)["n"] == 40


@pytest.mark.slow
def test_rows_and_tensor_choose_within_a_file():
    x = oracles.gaussian_tokens(4, 30, 5, 0.2)
    np.savez("two.npz", a=x, b=x[:3])
    part, whole = found("two.npz", "--tensor", "a", "--rows", "10:25", *GAMMA), found(save_npy(x[10:25]), *GAMMA)
    assert part == whole


@pytest.mark.slow
def test_people_get_a_table_with_errors():
    text = run(*GENERATED, *GAMMA, "--sample-rows", "10").stdout
    assert "near-simplex, n = 40, d = 8, rho = 0.4" in text
    assert "standard error" in text
    assert "effective_rho" in text


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        ((), ["FILE", "--tokens"]),
        (("x.npy",), ["--gamma", "--beta"]),
        (("x.npy", "--gamma", "1", "--beta", "1"), ["--gamma", "--beta"]),
        (("x.npy", *GENERATED, *GAMMA), ["FILE", "--tokens"]),
        (("x.npy", "--gamma", "word"), ["--gamma", "'word'", "number"]),
        (("x.npy", "--gamma", "nan"), ["--gamma", "'nan'", "finite"]),
        (("x.npy", "--beta", "inf"), ["--beta", "'inf'", "finite"]),
        (("x.npy", "--rho", "0", *GAMMA), ["--rho", "FILE"]),
        (("x.npy", "--n", "4", *GAMMA), ["--n", "FILE"]),
        (("x.npy", "--fix-common", *GAMMA), ["--fix-common", "near-simplex"]),
        (("x.npy", "--length", "row", *GAMMA), ["--length", "--causal"]),
        (("x.npy", "--length", "row", "--causal", "--beta", "1"), ["--length row", "--gamma"]),
        (("x.npy", "--law", "log-n2", *GAMMA), ["'log-n2'", "log-n"]),
        (("x.npy", "--law", "log-n2", "--beta", "1"), ["'log-n2'", "log-n"]),
        (("x.npy", "--law", "log-n"), ["--law log-n", "--gamma is missing"]),
        (("x.npy", "--law", "ssmax", *GAMMA), ["--gamma", "--law ssmax", "both"]),
        (("x.npy", "--law", "ssmax", "--beta", "1"), ["--beta", "--law ssmax", "both"]),
        (("x.npy", "--law", "ssmax", "--causal", "--length", "row"), ["--length", "--gamma", "ssmax", "row"]),
        (("x.npy", "--law", "yarn"), ["--law yarn", "needs stretch", "--set stretch=32"]),
        (("x.npy", "--law", "asentmax", "--set", "b=1"), ["--law asentmax", "needs g,"]),
        (("x.npy", "--law", "ssa"), ["--law ssa", "needs f", "--set f=0"]),
        (("x.npy", "--law", "scale-invariant"), ["no factor per row", "every pair has its own"]),
        (("x.npy", "--law", "qassmax"), ["no factor per row", "every channel"]),
        (("x.npy", "--law", "ssmax", "--set", "slope=1"), ["--set slope=1", "no parameter 'slope'", "s, b"]),
        (("x.npy", "--law", "ssmax", "--set", "s"), ["--set 's'", "NAME=VALUE"]),
        (("x.npy", "--law", "llama-4", "--set", "interval=0"), ["--set interval=0", "positive"]),
        (("x.npy", "--law", "jin", "--set", "reference=0.5"), ["--law jin", "beta is no number"]),
        (("x.npy", "--law", "geometric", "--set", "c=1e300"), ["--law geometric", "n = 6", "beta reaches", "1e+15"]),
        (("x.npy", "--law", "ssmax", "--no-normalise", "--qk-norm", "3"), ["--qk-norm", "--no-normalise"]),
        (("x.npy", "--law", "ssmax", "--qk-norm", "-1"), ["--qk-norm", "-1"]),
        (("x.npy", "--qk-norm", "2", *GAMMA), ["--qk-norm", "cosines"]),
        (("x.npy", "--set", "s=2", *GAMMA), ["--set", "--gamma"]),
        (("x.npy", "--normaliser", "hardmix", *GAMMA), ["'hardmix'", "softmax"]),
        (("x.npy", "--normaliser", "softmax", "--p", "2", *GAMMA), ["--p", "power, relu-power", "softmax"]),
        (("x.npy", "--normaliser", "power", "--p", "0", *GAMMA), ["--p = 0", "above 0"]),
        (("x.npy", "--normaliser", "power", "--p", "nan", *GAMMA), ["--p", "'nan'", "finite"]),
        (("x.npy", "--normaliser", "entmax", "--alpha", "1", *GAMMA), ["--alpha = 1", "above 1"]),
        (("x.npy", "--normaliser", "relu", "--alpha", "2", *GAMMA), ["--alpha", "entmax", "relu"]),
        (("x.npy", "--normaliser", "relu-power", "--stage-one", "relu", *GAMMA), ["'relu'", "softplus-l1"]),
        (("x.npy", "--normaliser", "power", "--stage-one", "softmax", *GAMMA), ["--stage-one", "relu-power"]),
        (("x.npy", "--normaliser", "entmax", "--bias", "1", *GAMMA), ["--bias", "entmax", "shift"]),
        (("x.npy", "--normaliser", "softplus-l1", "--bias-factor", "1", *GAMMA), ["--bias-factor", "sigmoid"]),
        (
            ("x.npy", "--normaliser", "relu-power", "--offset-free-rows", "3", *GAMMA),
            ["--offset-free-rows", "--causal"],
        ),
        (("x.npy", "--sample-rows", "1", *GAMMA), ["sample_rows", "1", "2..n = 6"]),
        (("x.npy", "--sample-rows", "7", *GAMMA), ["sample_rows", "7", "2..n = 6"]),
        (("x.npy", "--rows", "0:99", *GAMMA), ["x.npy", "0:99", "<= 6"]),
        (("x.npy", "--tensor", "w", *GAMMA), ["x.npy", "unnamed"]),
        (("none.npy", *GAMMA), ["none.npy", "no such file"]),
        (("", *GAMMA), ["''", ".npy"]),
        ((".", *GAMMA), ["'.'", ".npy"]),
        (("x.txt", *GAMMA), ["x.txt", ".safetensors"]),
        ((*GENERATED, "--rho", "1", *GAMMA), ["rho", "1.0", "[0, 1)"]),
        ((*GENERATED, "--rho", "-0.1", *GAMMA), ["rho", "-0.1", "[0, 1)"]),
        ((*GENERATED, "--n", "0", *GAMMA), ["--n", "'0'", ">= 1"]),
        ((*GENERATED, "--n", "1e300", *GAMMA), ["--n", "1e+300", "up to"]),
        ((*GENERATED, "--n", "2e9", "--d", "1e6", *GAMMA), ["n x d", "at most"]),
        ((*GENERATED, "--d", "2.5", *GAMMA), ["--d", "'2.5'", "whole"]),
        ((*GENERATED, "--rows", "0:3", *GAMMA), ["--rows", "FILE"]),
        ((*GENERATED[:-2], *GAMMA), ["--rho", "missing"]),
        (("--tokens", "simplex", "--n", "4", "--d", "3", "--rho", "0.2", *GAMMA), ["d = 3", "n = 4", "d >= 4"]),
        (("--tokens", "simplex", "--n", "4", "--d", "9", "--rho", "-0.5", *GAMMA), ["rho", "-0.5", "1) for n = 4"]),
        (("--tokens", "cube", *GAMMA), ["--tokens", "'cube'", "simplex"]),
    ],
)
def test_wrong_options_are_one_line(place, args, parts):
    save_npy(np.eye(6))
    before = sorted(place.iterdir())
    refused(*args, parts=parts)
    assert sorted(place.iterdir()) == before


def npy_with(header: bytes, data: bytes = b"") -> bytes:
    header = header + b" " * (117 - len(header)) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def safetensors_with(header: dict, data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


ABSURD = b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999, 99999999), }"
HUGE = {"w": {"dtype": "F32", "shape": [10**9, 10**9], "data_offsets": [0, 16]}}
BAD_BYTES = {
    "empty.npy": (b"", "is empty"),
    "empty.csv": (b"", "is empty"),
    "blank.csv": (b"\n\n", "is empty"),
    "ragged.csv": (b"1,2\n3\n", "ragged"),
    "word.csv": (b"1,2\n3,x\n", "'x'"),
    "nan.csv": (b"1,2\nnan,3\n", "NaN"),
    "corrupt.npy": (b"hello", "readable"),
    "absurd.npy": (npy_with(ABSURD, b"0" * 64), "64 bytes follow"),
    "evil.npy": (npy_with(b"__import__('os').system('true')"), "readable"),
    "corrupt.npz": (b"hello", "readable"),
    "corrupt.safetensors": (b"hello", "readable"),
    "absurd.safetensors": (struct.pack("<Q", 2**60) + b"{}", "readable"),
    "huge.safetensors": (safetensors_with(HUGE, b"0" * 16), "readable"),
}


@pytest.mark.parametrize("name", BAD_BYTES)
def test_damaged_files_are_one_line(place, name):
    content, part = BAD_BYTES[name]
    (place / name).write_bytes(content)
    refused(name, *GAMMA, parts=[name, part])
    assert [file.name for file in place.iterdir()] == [name]


BAD_ARRAYS = {
    "no_rows": (np.zeros((0, 4)), "(0, 4)"),
    "no_columns": (np.zeros((4, 0)), "(4, 0)"),
    "flat": (np.ones(5), "(5,)"),
    "cube": (np.ones((2, 3, 4)), "(2, 3, 4)"),
    "nan": (np.array([[1.0, 2.0], [np.nan, 1.0]]), "row 1"),
    "infinite": (np.array([[1.0, 2.0], [3.0, np.inf]]), "row 1"),
    "zero": (np.array([[1.0, 2.0], [0.0, 0.0]]), "row 1 is zero"),
    "huge": (np.full((3, 2), 1e200), "1e+200"),
    "tiny": (np.full((3, 2), 1e-200), "1e-200"),
    "complex": (np.ones((3, 2), complex), "complex128"),
    "words": (np.array([["a", "b"]]), "real numbers"),
    "objects": (np.array([[1, None]], dtype=object), "object"),
}


@pytest.mark.parametrize("name", BAD_ARRAYS)
def test_arrays_that_are_no_tokens_are_one_line(name):
    array, part = BAD_ARRAYS[name]
    np.save(f"{name}.npy", array, allow_pickle=True)
    refused(f"{name}.npy", *GAMMA, parts=[f"{name}.npy", part])


def test_numbers_beyond_float32_are_refused_in_float32():
    name = save_npy(1e30 * np.eye(4))
    assert found(name, *GAMMA)["effective_rho"] == pytest.approx(0)
    refused(name, *GAMMA, "--dtype", "float32", parts=[name, "1e+30", "float32"])


def test_an_archive_that_lies_about_its_size(place):
    with zipfile.ZipFile("lies.npz", "w") as archive:
        archive.writestr("a.npy", npy_with(ABSURD, b"0" * 64))
    refused("lies.npz", *GAMMA, parts=["lies.npz", "64 bytes follow"])


REFERENCE = [
    (["softplus-l1"], 5.689952423821, 0.902825064767),
    (["relu-power", "--p", "2", "--stage-one", "softmax"], 11.221201562717, 1.028961302272),
    (["relu-power", "--p", "1", "--stage-one", "softmax"], 9.560839003361, 0.826647619362),
]


@pytest.mark.slow
@pytest.mark.parametrize(("choice", "squared", "operator"), REFERENCE)
def test_reference_numbers_of_other_normalisers(choice, squared, operator):
    report = found(save_npy(oracles.sine_tokens()), *GAMMA, "--normaliser", *choice)
    assert report["gradient_norm_squared"] == pytest.approx(squared, abs=2e-12)
    assert report["operator_norm"] == pytest.approx(operator, abs=1e-9)
    assert report["normaliser"] == choice[0]
    assert report["predictor"] is None


@pytest.mark.slow
@pytest.mark.parametrize("which", range(4))
def test_options_of_normalisers_reach_the_layer(which):
    x = oracles.gaussian_tokens(6, 12, 4, 0.3)
    cases = [
        (["relu-power", "--p", "4", "--stage-one", "softmax"], ca.ReluPower(4.0, ca.Softmax()), ()),
        (["entmax", "--alpha", "1.3"], ca.Entmax(1.3), ()),
        (["sigmoid", "--bias-factor", "2", "--bias", "0.1"], ca.Sigmoid(2.0), (ca.Shift(0.1),)),
        (["hardmax"], ca.Hardmax(), ()),
    ]
    choice, normaliser, before = cases[which]
    report = found(save_npy(x), "--gamma", "1.5", "--normaliser", *choice)
    layer = ca.Attention(*before, ca.LogN(1.5), normaliser=normaliser)
    for name, estimate in ca.measure(layer, x, ["self_weight", "row_mass", "gradient_norm"]).items():
        assert report[name] == pytest.approx(estimate.value, rel=1e-12), (choice, name)
    if choice == ["hardmax"]:
        assert "jumps" in report["half_weight_reason"]
        assert report["half_weight_gamma"] is None


@pytest.mark.slow
def test_first_rows_without_offset():
    x = oracles.gaussian_tokens(6, 12, 4, 0.3)
    offset = ["--normaliser", "relu-power", "--causal", "--offset-free-rows", "3"]
    assert found(save_npy(x), *GAMMA, *offset)["dead_row_fraction"] == 0
    assert found(save_npy(x), *GAMMA, *offset[:3])["dead_row_fraction"] == pytest.approx(1 / 12)


def test_inverse_temperature_is_what_beta_means():
    x = oracles.gaussian_tokens(5, 10, 3, 0.1)
    expected = ca.measure(ca.Attention(InverseTemperature(2.5)), x, ["entropy"])["entropy"].value
    assert found(save_npy(x), "--beta", "2.5")["entropy"] == expected


def published(name, n, d):
    """Inverse temperature of the cosines of a causal layer, row by row, from the formulas of docs/scaling.md."""
    p = np.arange(n)
    i = p + 1
    return {
        # RMS-normalised q and k have q.k = d cos, and 1/sqrt(d) stands beside the factor
        "muse-glimmer": np.full(n, 3.87) * np.sqrt(d),
        "ssmax": (0.5 * np.log(i) + 0.2) * np.sqrt(d),
        "llama-4": (1 + 0.1 * np.log(1 + np.floor((p + 1) / 4))) * np.sqrt(d),
        "rerope": np.maximum(1, np.log(i) / np.log(5)) * np.sqrt(d),
        "lssa": np.log(d) * np.log(i),
        "mup": np.full(n, 1.5),
        "su-sequence": np.full(n, np.log(n) / np.log(512)) * np.sqrt(d),
    }[name]


CHOSEN = {
    "ssmax": ["--set", "s=0.5", "--set", "b=0.2"],
    "llama-4": ["--set", "interval=4"],
    "rerope": ["--set", "reference=5"],
    "mup": ["--set", "m=1.5"],
}
LAWS = ["ssmax", "llama-4"]
MORE = [pytest.param(name, marks=pytest.mark.slow) for name in ("muse-glimmer", "rerope", "lssa", "mup", "su-sequence")]


@pytest.mark.parametrize("name", [*LAWS, *MORE])
def test_a_law_is_dense_attention_with_its_published_beta(name):
    n, d = 11, 4
    x = oracles.gaussian_tokens(7, n, d, 0.3)
    report = found(save_npy(x), "--law", name, "--causal", *CHOSEN.get(name, []))
    beta = published(name, n, d)
    weights = oracles.softmax_weights(x, beta, causal=True)
    positive = np.where(weights > 0, weights, 1)
    assert report["law"] == name
    assert report["self_weight"] == pytest.approx(np.diag(weights).mean(), rel=1e-12)
    assert report["entropy"] == pytest.approx(-(weights * np.log(positive)).sum(axis=1).mean(), rel=1e-11)
    jacobian = oracles.jacobian(x, beta[:, None], 0.0, 1.0, causal=True)
    assert report["gradient_norm_squared"] == pytest.approx(np.sum(jacobian**2), rel=1e-10)
    same = np.ptp(beta) == 0
    assert report["beta"] == (pytest.approx(beta[0], rel=1e-14) if same else None)
    proportional = {"lssa": np.log(d), "muse-glimmer": beta[0] / np.log(n)}
    if name in proportional or same:
        assert report["gamma"] == pytest.approx(proportional.get(name, beta[0] / np.log(n)), rel=1e-14)
        # the mean self weight grows with gamma, and is 1/2 where layers with the same n in their logarithm cross it
        above = report["gamma"] > report["half_weight_gamma"]
        assert (report["self_weight"] > 0.5) == above
    else:
        assert (report["gamma"], report["half_weight_gamma"]) == (None, None)
        assert "no multiple of log n" in report["half_weight_reason"]


@pytest.mark.slow
def test_a_soft_cap_stands_where_its_source_has_it():
    n, d, z = 9, 4, 30.0
    x = oracles.gaussian_tokens(8, n, d, 0.3)
    report = found(save_npy(x), "--law", "grok-2", "--set", "reference=3", "--causal", "--qk-norm", "40")
    units = x / np.linalg.norm(x, axis=1, keepdims=True)
    p = np.arange(n)
    factor = np.log(np.maximum(p, 3)) / np.log(3)
    logits = factor[:, None] * z * np.tanh(40 * units @ units.T / np.sqrt(d) / z)
    masses = np.where(np.tri(n) > 0, np.exp(logits - logits.max(axis=1, keepdims=True)), 0)
    own = np.diag(masses) / masses.sum(axis=1)
    assert report["self_weight"] == pytest.approx(own.mean(), rel=1e-12)
    assert (report["soft_cap"], report["qk_norm"]) == (z, 40)
    assert (report["half_weight_gamma"], report["verdict"]) == (None, None)
    assert "soft cap" in report["half_weight_reason"]


@pytest.mark.slow
def test_without_norms_a_law_acts_on_the_products_themselves():
    x = oracles.gaussian_tokens(2, 15, 4, 0.3)
    report = found(save_npy(x), "--law", "constant", "--no-normalise")
    assert report["self_weight"] == pytest.approx(np.diag(raw_weights(x, 0.5)).mean(), rel=1e-12)
    assert (report["beta"], report["qk_norm"]) == (0.5, None)
    text = run(save_npy(x), "--law", "ssmax", "--no-normalise").stdout
    assert "s = 0.43, b = 0.0" in text


def settings_of(name, **changes):
    names = ("gamma", "beta", "length", "qk_norm")
    options = {**dict.fromkeys(names), "law": name, "causal": True, "no_normalise": False, "changes": ()}
    return {**options, **changes}


TRANSFORMS = [one for one in scaling.catalogue() if one.law and one.name != "log-n"]


@pytest.mark.parametrize("law", TRANSFORMS, ids=lambda one: one.name)
def test_every_law_of_the_catalogue_has_the_beta_of_its_layer(law):
    n, d = 7, 4
    changes = tuple(f"{name}={law.parameters[name]}" for name in law.examples)
    options = settings_of(law.name, changes=changes, qk_norm=3.0)
    measure_law.check_options(options)
    made = measure_law.temperature(options, n, d, "float64")
    with precision("float64"):
        layer = ca.Attention(*made.transforms, mask=ca.Causal())
        small = np.full((n, n), 1e-9)
        logits = np.asarray(layer.logits(jnp.asarray(small), layer.context(jnp.arange(n), n, d)))
    # at scores near 0 a soft cap is the identity to (1e-9)^2
    slopes = logits[:, 0] / 1e-9
    if made.beta is not None:
        np.testing.assert_allclose(slopes, made.beta, rtol=1e-12)
    elif made.gamma is not None:
        np.testing.assert_allclose(slopes[1:], made.gamma * np.log(np.arange(2, n + 1)), rtol=1e-12)
    else:
        ratios = slopes[1:] / np.log(np.arange(2, n + 1))
        # rounding is below 1e-14
        assert np.ptp(slopes) > 1e-9 * slopes.max()
        assert np.ptp(ratios) > 1e-9 * ratios.max()


def test_a_table_that_ends_is_no_law_beyond_it():
    options = settings_of("qwen-1", changes=("reference=8192",))
    assert measure_law.temperature(options, 32_767, 4, "float64").beta is None
    with pytest.raises(SpecError, match="n up to 32767"):
        measure_law.temperature(options, 32_768, 4, "float64")


def test_one_token_has_no_gamma():
    made = measure_law.temperature(settings_of("constant"), 1, 4, "float64")
    assert (made.gamma, made.beta) == (None, 2.0)
