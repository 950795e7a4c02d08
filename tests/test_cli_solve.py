import json
import math
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from critattn.cli import main
from critattn.theory import entmax, finite_dimension, power, random_energy, relu_power, sigmoid, simplex, softplus


def solve(*arguments):
    return CliRunner().invoke(main, ["solve", *map(str, arguments), "--json"])


def payload(*arguments):
    result = solve(*arguments)
    assert result.exit_code == 0, result.stderr
    assert len(result.stdout.splitlines()) == 1
    return json.loads(result.stdout)


def test_simplex_reference():
    found = payload("simplex", "--n", 8, "--d", 12, "--rho", 0.3, "--gamma", 1.2)
    # printed digits, see tests/test_theory_simplex.py
    expected = {
        "self_weight": 0.45036915921147,
        "cross_weight": 0.07851869154122,
        "entropy": 1.757744849177,
        "participation_ratio": 4.065227815837,
        "output_cosine": 0.79501786456723,
        "angle_ratio": 0.29283162204681,
        "gradient_norm_squared": 31.231044093917,
        "gradient_norm": 31.231044093917 / 96,
        "operator_norm": 1.152985658553,
        "critical_gamma": 1 / 0.7,
        "half_weight_gamma": math.log(7) / (0.7 * math.log(8)),
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=6e-13)
    assert found["schema_version"] == 1
    assert sum(multiplicity for _, multiplicity in found["singular_values"]) == 96
    root = found["half_angle_gamma"]
    assert simplex.angle_ratio(root, 0.3, math.log(8)) == pytest.approx(0.5, abs=1e-13)
    assert abs(found["half_angle_residual"]) < 1e-13


def test_simplex_update_reaches_the_formulas():
    update = ("--identity-weight", 1, "--attention-weight", 0.5, "--norm", 1.3)
    found = payload("simplex", "--n", 8, "--d", 12, "--rho", 0.3, "--gamma", 1.2, *update)
    assert found["output_cosine"] == pytest.approx(0.40734262400632, abs=6e-15)
    assert found["angle_ratio"] == pytest.approx(0.84665339427668, abs=6e-15)
    assert found["gradient_norm_squared"] == pytest.approx(137.348897128659, abs=6e-13)
    assert found["operator_norm"] == pytest.approx(1.441340486314, abs=6e-13)
    assert found["half_angle_gamma"] is None
    assert found["half_angle_residual"] is None


@pytest.mark.parametrize("size", [("--n", "1e300", "--d", "1e301"), ("--log-n", 691, "--log-d", 693)])
def test_simplex_beyond_integers(size):
    found = payload("simplex", *size, "--rho", 0.5, "--gamma", 2)
    assert found["self_weight"] == pytest.approx(0.5)
    assert found["gradient_norm"] == pytest.approx(0.25)
    assert found["gradient_norm_squared"] is None
    assert found["singular_values"][0] == [1.0, None]
    assert found["log_multiplicities"][0] == pytest.approx(693, abs=0.2)


def test_simplex_lists_have_the_axes_they_depend_on():
    found = payload("simplex", "--n", "8,16", "--d", 32, "--rho", "0.1,0.3,0.5", "--gamma", "1:2:4")
    assert np.shape(found["self_weight"]) == np.shape(found["gradient_norm"]) == (2, 3, 4)
    assert np.shape(found["operator_norm"]) == (2, 3, 4)
    assert np.shape(found["half_weight_gamma"]) == (2, 3)
    assert np.shape(found["critical_gamma"]) == (3,)
    one = payload("simplex", "--n", 16, "--d", 32, "--rho", 0.3, "--gamma", 2)
    for name in ("self_weight", "gradient_norm", "operator_norm", "singular_values"):
        np.testing.assert_allclose(found[name][1][1][3], one[name], rtol=1e-13, atol=1e-16)


def test_simplex_needs_no_dimension_and_no_gamma():
    found = payload("simplex", "--n", 512, "--rho", 0.5)
    assert found["half_angle_gamma"] == pytest.approx(2.100947292405, abs=6e-13)
    assert found["self_weight"] is None
    found = payload("simplex", "--n", 512, "--rho", 0.5, "--gamma", 2)
    assert found["angle_ratio"] == pytest.approx(0.398906494427, abs=6e-13)
    assert found["gradient_norm"] is None


def test_simplex_of_one_token():
    found = payload("simplex", "--n", 1, "--d", 4, "--rho", 0.3, "--gamma", 1)
    kept = {name for name, value in found.items() if value is not None}
    assert kept == {"schema_version", "critical_gamma"}
    assert payload("simplex", "--n", "1,4", "--rho", 0.3, "--gamma", 1)["self_weight"][0] is None


def test_simplex_without_a_common_direction():
    found = payload("simplex", "--n", 8, "--d", 7, "--rho", "-0.142857142857", "--gamma", 1)
    assert sum(multiplicity for _, multiplicity in found["singular_values"]) == 56
    assert found["half_angle_gamma"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("simplex", "--n", 8, "--d", 5, "--rho", 0.3), ("--d 5", "n = 8", "d >= n")),
        (("simplex", "--n", 8, "--d", "9,7", "--rho", 0.3), ("--d 7", "n = 8", "d >= n")),
        (("simplex", "--n", 8, "--d", 6, "--rho", -0.14285714285714285), ("--d 6", "d >= n - 1")),
        (("simplex", "--log-n", 700, "--log-d", 699, "--rho", 0.3), ("--d", "d >= n")),
        (("simplex", "--n", 8, "--rho", 1), ("rho = 1.0", "1)")),
        (("simplex", "--n", 8, "--rho", -0.3), ("rho = -0.3", "[-1/(n-1), 1)")),
        (("simplex", "--n", 8, "--rho", 0.3, "--gamma", 1, "--norm", 0), ("norm = 0.0", "positive")),
        (("simplex", "--log-n", -1, "--rho", 0.3), ("log_n = -1.0", ">= 0")),
        (("simplex", "--n", 0, "--rho", 0.3), ("--n", "0")),
        (("simplex", "--n", 2.5, "--rho", 0.3), ("--n", "2.5")),
        (("simplex", "--n", "many", "--rho", 0.3), ("--n", "many")),
        (("simplex", "--n", 8, "--log-n", 2, "--rho", 0.3), ("--n", "--log-n", "one of them")),
        (("simplex", "--rho", 0.3), ("--n", "--log-n")),
        (("simplex", "--n", 8), ("--rho",)),
        (("simplex", "--n", 8, "--rho", 0.3, "--gamma", "nan"), ("--gamma", "nan")),
        (("near-simplex", "--n", 64, "--d", 8, "--rho", -0.1), ("rho", "-0.1")),
        (("near-simplex", "--n", 64, "--rho", 0.1), ("--d",)),
        (("random-energy", "--n", 64, "--beta", -1), ("beta = -1.0", "at least 0")),
        (("random-energy", "--n", 64), ("--beta",)),
        (("random-energy", "--log-n", 1000, "--beta", 1), ("log_n = 1000.0", "700")),
        (("dense", "--n", 64), ("dense",)),
        (("softplus", "--n", 64, "--rho", 1.5), ("rho = 1.5", "[-1, 1]")),
        (("softplus", "--n", 64, "--rho", 0.3, "--self-score", -2), ("self_score = -2.0", "[-1, 1]")),
        (("softplus", "--n", 64, "--rho", 0.3, "--gamma", -1), ("gamma = -1.0", "at least 0")),
        (("softplus", "--rho", 0.3), ("--n", "--log-n")),
        (("relu-power", "--n", 64, "--d", 2, "--rho", 0.3), ("d = 2.0", "at least 3")),
        (("relu-power", "--n", 64, "--d", 8, "--rho", -0.3), ("rho = -0.3", "[0, 1)")),
        (("relu-power", "--n", 64, "--d", 8, "--rho", 0.3, "--p", 0), ("p = 0.0", "positive")),
        (("relu-power", "--n", 64, "--d", 8, "--rho", 0.3, "--gamma", 0), ("gamma = 0.0", "positive")),
        (("relu-power", "--n", 64, "--rho", 0.3), ("--d",)),
        (("entmax", "--n", 64, "--rho", 1, "--alpha", 2), ("rho = 1.0", "[-1, 1)")),
        (("entmax", "--n", 64, "--rho", 0.3, "--alpha", 0.5), ("alpha = 0.5", "at least 1")),
        (("entmax", "--n", 64, "--rho", 0.3), ("--alpha",)),
        (("power", "--n", 64, "--rho", 0.3, "--threshold", 1), ("threshold = 1.0", "below 1")),
        (("power", "--n", 64, "--rho", 0.3, "--p", -1), ("p = -1.0", "positive")),
        (("sigmoid", "--n", 64, "--rho", 0.3), ("--bias-factor",)),
        (("sigmoid", "--n", 64, "--rho", 2, "--bias-factor", 2), ("rho = 2.0", "[-1, 1]")),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(arguments, words):
    result = solve(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("Error: ")
    assert all(word in result.stderr for word in words)


def test_near_simplex():
    found = payload("near-simplex", "--n", 2048, "--d", 16, "--rho", 0)
    assert found["half_weight_gamma"] == pytest.approx(1.4044994693, abs=6e-11)
    assert found["large_deviation_gamma"] == finite_dimension.large_deviation_gamma(math.log(2048), 16)
    assert found["row_disorder"] == 0
    assert "self_weight" not in found
    found = payload("near-simplex", "--n", 2048, "--d", "16,64", "--rho", 0.5, "--gamma", "1,2,3")
    assert found["gaussian_gamma"][0] is None
    assert found["gaussian_gamma"][1] == pytest.approx(2.1978171802, abs=6e-11)
    assert found["large_deviation_gamma"] == [None, None]
    assert found["width"] == pytest.approx(4 * math.log(9) / math.log(2048))
    assert np.shape(found["self_weight"]) == (2, 3)
    assert found["self_weight"][1][2] == finite_dimension.self_weight(3.0, 0.5, math.log(2048), 64.0)
    assert found["gradient_norm"] == [[None] * 3] * 2


def test_near_simplex_gradient_on_the_sphere():
    found = payload("near-simplex", "--n", 2048, "--d", 32, "--rho", "0,0.2", "--gamma", 1.2)
    expected = finite_dimension.gradient_norm(1.2, math.log(2048), 32)
    assert found["gradient_norm"] == [pytest.approx(expected), None]


def test_random_energy():
    critical = math.sqrt(2 * math.log(64))
    found = payload("random-energy", "--n", 64, "--beta", f"{critical!r},{2 * critical!r}")
    assert found["critical_beta"] == pytest.approx(critical)
    assert found["reduced_beta"] == pytest.approx([1, 2])
    assert found["sum_of_squares"] == pytest.approx([0.308333921066, 0.60727279], abs=6e-9)
    assert found["sum_of_squares_limit"] == pytest.approx([0, 0.5], abs=1e-12)
    assert found["max_weight_limit"] == pytest.approx([0, random_energy.max_weight_limit(2.0)], abs=1e-9)
    alone = payload("random-energy", "--n", 1, "--beta", 1)
    assert alone["sum_of_squares"] == 1
    assert alone["reduced_beta"] is None


def test_tables_for_people():
    for arguments in (
        ("simplex", "--n", "8", "--d", "12", "--rho", "0.3", "--gamma", "1.2"),
        ("near-simplex", "--n", "64", "--d", "16", "--rho", "0"),
        ("random-energy", "--n", "64", "--beta", "2"),
        ("softplus", "--n", "1000", "--rho", "-0.3"),
        ("relu-power", "--n", "64", "--d", "16", "--rho", "0"),
        ("entmax", "--n", "64", "--rho", "0.3", "--alpha", "1.5"),
        ("power", "--n", "64", "--rho", "0.3"),
        ("sigmoid", "--n", "64", "--rho", "0.3", "--bias-factor", "2"),
    ):
        result = CliRunner().invoke(main, ["solve", *arguments])
        assert result.exit_code == 0
        assert "quantity" in result.stdout
        shown = CliRunner().invoke(main, ["solve", arguments[0], "--help"])
        assert "critattn solve" in shown.stdout


def test_solve_imports_no_jax():
    script = (
        "import sys; from click.testing import CliRunner; from critattn.cli import main; "
        "CliRunner().invoke(main, 'solve simplex --n 8 --d 12 --rho .3 --gamma 1.2'.split()); "
        "CliRunner().invoke(main, 'solve near-simplex --n 64 --d 16 --rho 0'.split()); "
        "CliRunner().invoke(main, 'solve random-energy --n 8 --beta 1'.split()); "
        "CliRunner().invoke(main, 'solve relu-power --n 64 --d 16 --rho 0.3 --p 3'.split()); "
        "sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize(
    ("args", "option"),
    [
        (("simplex", "--n", "8", "--d", "8", "--rho", "0.3", "--gamma", "1e308"), "--gamma"),
        (("simplex", "--log-n", "1,2", "--rho", "0.3", "--gamma", "0,-1e200"), "--gamma"),
        (("near-simplex", "--n", "64", "--d", "8", "--rho", "0.3", "--gamma", "1e308"), "--gamma"),
        (("random-energy", "--n", "64", "--beta", "1e308"), "--beta"),
        (("softplus", "--n", "64", "--rho", "0.3", "--gamma", "1e308"), "--gamma"),
        (("relu-power", "--n", "64", "--d", "8", "--rho", "0.3", "--gamma", "1e308"), "--gamma"),
        (("sigmoid", "--n", "64", "--rho", "0.3", "--bias-factor", "2", "--gamma", "1e308"), "--gamma"),
    ],
)
def test_an_absurd_temperature_is_refused(args, option):
    result = CliRunner().invoke(main, ["solve", *args])
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert option in line
    assert "1e+150" in line


def test_softplus():
    found = payload("softplus", "--n", 1000, "--rho", -0.3)
    assert found["half_weight_gamma"] == pytest.approx(2.05035294578, abs=6e-12)
    assert found["half_weight_gamma_lambert"] == pytest.approx(2.05351650884, abs=6e-12)
    assert found["self_weight"] is found["entropy"] is None
    found = payload("softplus", "--n", 1024, "--rho", 0.3, "--gamma", repr(math.log(64)))
    assert found["self_weight"] == pytest.approx(0.003247742060611, abs=6e-16)
    assert found["cross_weight"] == pytest.approx(0.000974342383127457, abs=6e-18)
    assert found["half_weight_gamma"] is found["critical_gamma"] is None
    found = payload("softplus", "--n", "1e3,1e300", "--rho", "0.3", "--bias", "0,0.5,1", "--gamma", "1,2")
    assert np.shape(found["self_weight"]) == (2, 3, 2)
    assert found["half_weight_gamma"][0] == [
        None,
        pytest.approx(3.24582340463, abs=6e-12),
        pytest.approx(1.51, abs=0.02),
    ]
    assert found["entropy"][1][1][0] == softplus.entropy(1.0, 0.3, math.log(1e300), bias=0.5)
    own = payload("softplus", "--n", 1000, "--rho", -0.2, "--self-score", 0.6)
    assert own["half_weight_gamma"] == softplus.half_weight_gamma(-0.2, math.log(1000), self_score=0.6)


def test_relu_power():
    found = payload("relu-power", "--n", 1024, "--d", 64, "--rho", 0.3)
    assert found["critical_p"] == pytest.approx(3.4753, abs=2e-4)
    assert found["critical_p_lambert"] == pytest.approx(3.875, abs=5.1e-4)
    assert found["critical_p_gaussian"] == pytest.approx(3.592, abs=5.1e-4)
    assert found["critical_p_beta"] == pytest.approx(3.572, abs=5.1e-4)
    assert "self_weight" not in found
    found = payload("relu-power", "--n", "256,1024", "--d", 16, "--rho", 0.3, "--p", "3,15", "--gamma", 2)
    assert found["critical_p"][0] == relu_power.critical_p(0.3, math.log(256), 16.0, gamma=2.0)
    assert found["critical_p_gaussian"][1] is None
    assert np.shape(found["self_weight"]) == (2, 2)
    assert found["self_weight"][0][0] < 0.5 < found["self_weight"][0][1]
    assert found["log_n_max_stated"] == [True, False]


def test_entmax():
    found = payload("entmax", "--n", 1024, "--rho", 0.3, "--alpha", "1,1.5,2", "--beta", 1)
    assert found["half_weight_beta"][1:] == pytest.approx([1.957139705064, 0.713587487781], abs=6e-13)
    assert found["identity_beta"] == [None, pytest.approx(2.857142857143), pytest.approx(1.428571428571)]
    assert found["self_weight"][1] == entmax.self_weight(1.0, 0.3, math.log(1024), alpha=1.5)
    assert payload("entmax", "--n", "1e300", "--rho", 0.3, "--alpha", 2)["half_weight_beta"] == pytest.approx(0.5 / 0.7)


def test_power():
    assert payload("power", "--n", 1024, "--rho", 0.3)["critical_p"] == power.critical_p(0.3, math.log(1024))
    found = payload("power", "--n", 1024, "--rho", "0.05,0.3", "--threshold", 0.1, "--p", 5)
    assert found["critical_p"] == [None, pytest.approx(4.607804612187, abs=6e-13)]
    assert found["self_weight"][0] == 1


def test_sigmoid():
    found = payload("sigmoid", "--n", 1024, "--rho", 0.3, "--bias-factor", 2)
    assert found["window"] == pytest.approx([1 / 0.7, 1 / 0.3])
    assert found["half_weight_window"] == list(sigmoid.half_weight_window(0.3, math.log(1024), bias_factor=2.0))
    found = payload("sigmoid", "--n", "1024,1e300", "--rho", "0,0.3", "--bias-factor", "1,2", "--gamma", 1.6)
    assert found["window"] == [[None, [1.0, None]], [None, pytest.approx([1 / 0.7, 1 / 0.3])]]
    assert np.shape(found["self_weight"]) == (2, 2, 2)
    assert found["half_weight_window"][0][1][0] is None
