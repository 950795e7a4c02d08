import json
import warnings

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import critattn as ca
from critattn import observables
from critattn.cli import main
from critattn.continuation import (
    MAX_NODES,
    Curves,
    adaptive_grid,
    chebyshev,
    continue_curves,
    default_tolerance,
    node_counts,
)
from critattn.curves import evaluator, split
from critattn.errors import DomainError, SpecError
from critattn.observables import Observable
from critattn.storage import Store
from critattn.sweeps import SweepSpec, layout_of, run_sweep
from critattn.theory import simplex

FINE = np.linspace(-1, 1, 2001)
SMOOTH = {
    "pole at 0.3i": lambda x: 1 / (1 + (x / 0.3) ** 2),
    "pole at 0.1i": lambda x: 1 / (1 + (x / 0.1) ** 2),
    "pole off the middle": lambda x: 1 / ((x - 0.77) ** 2 + 0.04),
    "pole beyond the end": lambda x: 1 / (x + 1.05),
    "sigmoid": lambda x: 1 / (1 + np.exp(-np.pi * (x - 0.13) / 0.2)),
    "steep sigmoid": lambda x: 1 / (1 + np.exp(-np.pi * (x + 0.4) / 0.07)),
    "sigmoid at the end": lambda x: 1 / (1 + np.exp(-np.pi * (x - 1) / 0.15)),
    "wave": lambda x: np.cos(20 * x + 0.3),
    "fast wave": lambda x: np.sin(60 * x),
    "exponential": lambda x: np.exp(5 * x),
    "orders of magnitude": lambda x: np.exp(-9 / (1 + np.exp(-np.pi * x / 0.3))),
    "log cosh": lambda x: np.log(np.cosh(3 * x)),
    "line": lambda x: 2 * x - 1,
    "polynomial": lambda x: x**7 - x**3 + 0.2,
}


def one(function, **how):
    how = {"interval": (-1, 1), **how}
    return continue_curves(lambda x: {"f": function(x)}, **how)["f"]


def log_n(gamma):
    return ca.Attention(ca.LogN(gamma))


def worst(curve, function, where=FINE):
    return np.max(np.abs(curve(where) - function(where)))


@pytest.mark.parametrize("tolerance", [1e-4, 1e-6, 1e-9, 1e-12])
@pytest.mark.parametrize("name", SMOOTH)
def test_the_error_estimate_bounds_the_error(name, tolerance):
    curve = one(SMOOTH[name], tolerance=tolerance)
    assert curve.converged == (curve.reason == "")
    assert worst(curve, SMOOTH[name]) <= curve.error
    if curve.converged:
        assert worst(curve, SMOOTH[name]) <= tolerance * np.ptp(SMOOTH[name](FINE)) + 1e-14
    else:
        assert tolerance <= 1e-9


def mixture(seed):
    generator = np.random.default_rng(seed)
    centres = generator.uniform(-1, 1, generator.integers(1, 30))
    widths = generator.uniform(0.08, 0.3) + generator.uniform(0, 0.2, centres.size)
    shares = generator.normal(size=centres.size)
    kind = seed % 2

    def curve(x):
        odds = np.exp(-np.pi * (x[:, None] - centres) / widths)
        if kind:
            return np.mean((1 + odds) ** 2 / (1 + odds**2 / 1e4), axis=1)
        return (1 / (1 + odds)) @ shares

    return curve


def test_the_error_estimate_is_calibrated_on_mixtures():
    ratios = []
    for seed in range(200):
        curve = one(mixture(seed), tolerance=1e-5)
        assert curve.converged, curve.reason
        ratios.append(curve.error / worst(curve, mixture(seed)))
    # never too small, and mostly within two decades of the truth
    assert min(ratios) >= 1
    assert np.median(ratios) < 30
    assert np.quantile(ratios, 0.9) < 1000


def test_nodes_are_nested_and_each_is_asked_for_once():
    asked = []

    def evaluate(x):
        asked.append(x)
        return {"f": SMOOTH["pole at 0.3i"](x)}

    found = continue_curves(evaluate, interval=(-1, 1), tolerance=1e-12)
    assert [len(x) for x in asked] == [17, 16, 32, 64]
    together = np.concatenate(asked)
    assert len(np.unique(together)) == len(together) == 129
    assert np.array_equal(np.sort(together), found.nodes)
    assert np.array_equal(found.nodes, chebyshev.points(128))
    assert np.array_equal(found.nodes[::8], chebyshev.points(16))
    assert node_counts(MAX_NODES) == [9, 17, 33, 65, 129, 257]


@pytest.mark.slow
@pytest.mark.parametrize(("tolerance", "least"), [(1e-4, 40), (1e-5, 25), (1e-7, 10)])
def test_errors_measured_at_the_next_nodes_bound_the_error(tolerance, least):
    ratios = []
    for seed in range(200):
        found = continue_curves(lambda x, seed=seed: {"f": mixture(seed)(x)}, interval=(-1, 1), tolerance=tolerance)
        curve = found["f"]
        if len(found.nodes) > len(curve.nodes):
            assert curve.converged
            ratios.append(curve.error / worst(curve, mixture(seed)))
    assert len(ratios) >= least
    assert min(ratios) >= 1
    # the largest error at the checks is that of the whole interval, nearly
    assert max(ratios) < 1.6


class Recorded:
    """Several curves that can be evaluated one by one, and a record of what was asked for."""

    def __init__(self, curves):
        self.curves, self.asked = curves, []

    def __call__(self, x):
        self.asked.append((tuple(self.curves), len(x)))
        return {name: curve(x) for name, curve in self.curves.items()}

    def only(self, names):
        other = Recorded({name: self.curves[name] for name in names})
        other.asked = self.asked
        return other


def test_each_curve_has_the_nodes_that_it_needs():
    curves = {"line": lambda x: 3 * x, "wave": lambda x: np.cos(20 * x), "pole": lambda x: 1 / (0.05 + (x - 1) ** 2)}
    record = Recorded(curves)
    found = continue_curves(record, interval=(0, 2), tolerance=1e-9)
    assert found.converged
    assert list(found) == ["line", "wave", "pole"]
    assert [len(curve.nodes) for curve in found.values()] == [17, 65, 129]
    assert record.asked == [
        (("line", "wave", "pole"), 17),
        (("wave", "pole"), 16),
        (("wave", "pole"), 32),
        (("pole",), 64),
    ]
    alone = {
        name: continue_curves(lambda x, n=name: {n: curves[n](x)}, interval=(0, 2), tolerance=1e-9)[name]
        for name in curves
    }
    for name, curve in found.items():
        assert np.array_equal(curve.nodes, alone[name].nodes)
        assert np.array_equal(curve.values, alone[name].values)


def test_several_curves_share_their_nodes():
    found = continue_curves(lambda x: {"line": 3 * x, "wave": np.cos(20 * x)}, interval=(0, 2))
    assert found.converged
    assert list(found) == ["line", "wave"]
    assert len(found) == 2
    assert set(found["line"].nodes) < set(found["wave"].nodes) == set(found.nodes)
    assert "nodes on [0, 2]" in repr(found)
    assert isinstance(found, Curves)


def test_a_constant_is_exact():
    curve = one(lambda x: np.full(x.shape, 3.0))
    assert (curve.error, curve.converged, len(curve.nodes)) == (0, True, 17)
    assert np.all(curve(FINE) == 3)
    assert np.all(curve.derivative(FINE) == 0)
    assert curve.crossings(3.0).size == curve.crossings(2.0).size == 0


def test_orders_of_magnitude_are_interpolated_as_logarithms():
    def spread(x):
        odds = np.exp(-np.pi * x / 0.4)
        return (1 + odds) ** 2 / (1 + odds**2 / 1e5)

    curve = one(spread)
    assert curve.variable == "log"
    assert curve.coefficients[0] == pytest.approx(np.mean(np.log(spread(np.cos(np.linspace(0, np.pi, 100001))))), 1e-4)
    assert worst(curve, spread) <= curve.error <= 1e-6 * np.ptp(spread(FINE))
    (root,) = curve.crossings(100.0)
    assert spread(np.array([root]))[0] == pytest.approx(100, rel=1e-4)
    assert curve.crossings(-1.0).size == 0
    step = 1e-6
    slopes = (spread(FINE[1:-1] + step) - spread(FINE[1:-1] - step)) / (2 * step)
    assert np.max(np.abs(curve.derivative(FINE[1:-1]) - slopes)) <= 1e-4 * np.max(np.abs(slopes))
    assert one(lambda x: 2 + x).variable == "value"


def test_rounding_ends_the_doubling():
    noise = np.random.default_rng(0)

    def single(x):
        values = 1 / (1 + np.exp(-np.pi * x / 0.3)) + 1e-7 * noise.normal(size=x.shape)
        return values.astype(np.float32)

    fine = one(single, dtype="float32")
    assert fine.converged
    assert len(fine.nodes) <= 65
    never = one(single, dtype="float32", tolerance=1e-9)
    assert not never.converged
    assert "rounding leaves" in never.reason
    assert len(never.nodes) <= 129
    assert 1e-8 < never.error < 1e-5


def test_a_curve_that_does_not_converge_says_how_many_nodes_it_needs():
    step = one(lambda x: np.where(x > 0.1, 1.0, 0.0))
    assert not step.converged
    assert "about" in step.reason
    kink = one(lambda x: np.abs(x - 0.1))
    assert not kink.converged
    assert worst(kink, lambda x: np.abs(x - 0.1)) <= kink.error
    steep = one(lambda x: np.arctan(1000 * x), max_nodes=33)
    assert not steep.converged
    assert len(steep.nodes) <= 33


def test_values_that_are_not_finite_are_data():
    found = continue_curves(lambda x: {"bad": np.where(x > 0.5, np.nan, x), "good": x}, interval=(0, 1))
    assert not found.converged
    assert found["good"].converged
    bad = found["bad"]
    assert (bad.converged, bad.error) == (False, np.inf)
    assert "is nan" in bad.reason
    assert bad.crossings(0.2).size == 0
    grid = adaptive_grid(lambda x: {"bad": np.where(x > 0.5, np.inf, x), "good": x}, interval=(0, 1))
    assert grid["good"].converged
    assert "is inf" in grid["bad"].reason
    assert np.isnan(grid["bad"].derivative(0.2))
    assert grid["bad"].crossings(0.2).size == 0


@pytest.mark.parametrize(
    ("how", "part"),
    [
        ({"interval": (1, 1)}, "interval"),
        ({"interval": (0, np.inf)}, "interval"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"tolerance": 1.0}, "tolerance"),
        ({"tolerance": np.nan}, "tolerance"),
        ({"dtype": "float16"}, "dtype"),
    ],
)
def test_wrong_input_is_refused(how, part):
    for route in (continue_curves, adaptive_grid):
        with pytest.raises(DomainError, match=part):
            route(lambda x: {"f": x}, **{"interval": (0, 1), **how})


def test_wrong_curves_are_refused():
    with pytest.raises(DomainError, match="max_nodes"):
        one(np.sin, max_nodes=16)
    with pytest.raises(DomainError, match="max_points"):
        adaptive_grid(lambda x: {"f": x}, interval=(0, 1), max_points=10)
    with pytest.raises(DomainError, match="has shape"):
        one(lambda x: x[1:])
    with pytest.raises(DomainError, match="at least one"):
        continue_curves(lambda x: {}, interval=(0, 1))
    with pytest.raises(DomainError, match="gives the curves"):
        continue_curves(lambda x: {f"f{x.size}": np.cos(50 * x)}, interval=(-1, 1))
    curve = one(np.sin)
    with pytest.raises(DomainError, match="extrapolated"):
        curve(1.1)
    with pytest.raises(DomainError, match="extrapolated"):
        curve.derivative([0, np.nan])
    with pytest.raises(DomainError, match="level"):
        curve.crossings(np.nan)


def test_ranges_and_tolerances_of_single_curves():
    def evaluate(x):
        return {"a": SMOOTH["sigmoid"](x), "b": SMOOTH["steep sigmoid"](x)}

    base = continue_curves(evaluate, interval=(-1, 1))
    loose = continue_curves(evaluate, interval=(-1, 1), tolerances={"b": 0.3, "absent": 1.0})
    wide = continue_curves(evaluate, interval=(-1, 1), ranges={"b": 3e5})
    assert len(loose.nodes) == len(wide.nodes) < len(base.nodes)
    assert default_tolerance("float32") == 1e-5


def test_shapes_follow_the_argument():
    curve = one(np.sin)
    assert curve(0.5).shape == ()
    assert curve(np.zeros((2, 3))).shape == curve.derivative(np.zeros((2, 3))).shape == (2, 3)
    many = np.linspace(-1, 1, 10001)
    assert np.max(np.abs(curve(many) - np.sin(many))) < 1e-14


@pytest.mark.parametrize("name", ["sigmoid", "wave", "exponential", "polynomial", "pole at 0.3i"])
def test_the_derivative(name):
    function, step = SMOOTH[name], 1e-20j
    curve = one(function, interval=(-1, 1), tolerance=1e-12)
    exact = np.imag(function(FINE + step)) / 1e-20
    assert np.max(np.abs(curve.derivative(FINE) - exact)) < 1e-8 * np.max(np.abs(exact))


ROOTS = {
    "one": [0.25],
    "several": [-0.9, -0.2, 0.1, 0.55],
    "ends": [-1, 0.3, 1],
    "close": [0.1, 0.1001],
}


@pytest.mark.parametrize("name", ROOTS)
def test_crossings_of_polynomials(name):
    roots = ROOTS[name]
    curve = one(lambda x: 0.5 + np.prod([x - root for root in roots], axis=0))
    found = curve.crossings(0.5)
    assert len(found) == len(roots)
    np.testing.assert_allclose(found, roots, atol=1e-10)


def test_crossings_that_touch():
    touching = one(lambda x: (x - 0.3) ** 2 * (x + 0.5))
    np.testing.assert_allclose(touching.crossings(0.0), [-0.5, 0.3], atol=1e-7)
    triple = one(lambda x: (x - 0.3) ** 3)
    np.testing.assert_allclose(triple.crossings(0.0), [0.3], atol=1e-4)
    waves = one(lambda x: np.cos(20 * x), tolerance=1e-12)
    np.testing.assert_allclose(waves.crossings(1.0), np.arange(-3, 4) * np.pi / 10, atol=1e-6)
    np.testing.assert_allclose(waves.crossings(0.0), (np.arange(-6, 6) + 0.5) * np.pi / 20, atol=1e-12)
    assert waves.crossings(1.1).size == 0


@given(st.lists(st.floats(-0.95, 0.95), min_size=1, max_size=6), st.floats(-5, 5), st.floats(0.1, 10))
def test_crossings_of_any_polynomial(roots, low, length):
    roots = np.unique(np.round(roots, 2))
    where = low + length * (roots + 1) / 2
    curve = one(lambda g: np.prod([g - root for root in where], axis=0), interval=(low, low + length))
    found = curve.crossings(0.0)
    assert len(found) == len(where)
    np.testing.assert_allclose(found, where, atol=1e-7 * length)


def test_an_adaptive_grid_finds_kinks_and_jumps():
    def evaluate(x):
        return {"kink": np.abs(x - 0.1), "jump": np.where(x < np.sqrt(0.5), 0.0, 1.0), "smooth": np.sin(3 * x)}

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = adaptive_grid(evaluate, interval=(-1, 2), tolerance=1e-5, max_points=2000)
    where = np.linspace(-1, 2, 5001)
    kink, jump, smooth = (found[name] for name in ("kink", "jump", "smooth"))
    assert kink.converged
    assert worst(kink, lambda x: np.abs(x - 0.1), where) <= 1e-5 * 1.9
    assert smooth.converged
    assert worst(smooth, lambda x: np.sin(3 * x), where) <= 2e-5
    assert not jump.converged
    assert "a jump at 0.70710678" in jump.reason
    away = np.abs(where - np.sqrt(0.5)) > 1e-6
    assert np.array_equal(jump(where[away]), evaluate(where[away])["jump"])
    np.testing.assert_allclose(jump.crossings(0.5), np.sqrt(0.5), atol=1e-12)
    np.testing.assert_allclose(kink.crossings(0.5), [-0.4, 0.6], atol=1e-12)
    np.testing.assert_allclose(smooth.derivative(0.0), 3, rtol=1e-3)
    assert kink.crossings(-1.0).size == 0
    assert len(found.nodes) < 2000


def test_an_adaptive_grid_stops_at_its_limit():
    curve = adaptive_grid(lambda x: {"f": np.sin(200 * x)}, interval=(0, 1), max_points=100)["f"]
    assert len(curve.nodes) <= 100
    assert not curve.converged
    assert "at 100 points" in curve.reason


GAMMAS = np.linspace(0, 4, 301)


def test_simplex_curves_agree_with_the_closed_forms():
    n, rho = 48, 0.5
    names = ["self_weight", "entropy", "participation_ratio", "angle_ratio", "output_cosine", "gradient_norm"]
    curves = ca.continue_curve(log_n, ca.simplex(n, n, rho=rho), names, tolerance=1e-11)
    assert curves.converged
    for name in names:
        more = {"log_d": np.log(n)} if name == "gradient_norm" else {}
        exact = getattr(simplex, name)(GAMMAS, rho, np.log(n), **more)
        assert np.max(np.abs(curves[name](GAMMAS) - exact)) <= curves[name].error + 1e-12 * np.ptp(exact), name
    weight = curves["self_weight"](GAMMAS)
    slope = (1 - rho) * np.log(n) * weight * (1 - weight)
    np.testing.assert_allclose(curves["self_weight"].derivative(GAMMAS), slope, atol=1e-8)
    (root,) = curves["self_weight"].crossings(0.5)
    assert root == pytest.approx(simplex.half_weight_gamma(rho, np.log(n)), abs=1e-9)
    (root,) = curves["angle_ratio"].crossings(0.5)
    assert root == pytest.approx(simplex.half_angle_gamma(rho, np.log(n)), abs=1e-9)


def test_what_is_not_analytic_gets_a_grid():
    tokens = ca.simplex(12, 12, rho=0.3)
    curves = ca.continue_curve(log_n, tokens, ["largest_weight", "self_weight"], tolerance=1e-4)
    assert list(curves) == ["largest_weight", "self_weight"]
    assert not hasattr(curves["largest_weight"], "coefficients")
    assert curves["self_weight"].coefficients.size in (17, 33)
    np.testing.assert_allclose(curves["largest_weight"](GAMMAS), curves["self_weight"](GAMMAS), atol=2e-4)
    (root,) = curves["largest_weight"].crossings(0.5)
    assert root == pytest.approx(simplex.half_weight_gamma(0.3, np.log(12)), abs=1e-10)
    with pytest.raises(SpecError, match="unknown"):
        ca.continue_curve(log_n, tokens, ["self_wait"])


def test_which_observables_are_analytic():
    assert {name for name in observables.names() if not observables.get(name).analytic} >= {
        "largest_weight",
        "operator_norm",
    }
    assert observables.get("participation_ratio").analytic
    assert not Observable("own", "o", "1", "weights", len, len, "one of a user").analytic


class Rounded:
    analytic = False

    def __call__(self, logits, context):
        return logits


def test_a_transform_can_spoil_it():
    wanted = observables.select(["self_weight"])
    assert split(log_n, wanted) == (wanted, ())
    assert split(lambda gamma: ca.Attention(ca.LogN(gamma), Rounded()), wanted) == ((), wanted)


def test_sampled_curves_have_a_curve_of_standard_errors():
    tokens = ca.near_simplex(0, 200, 16, rho=0.5, fix_common=True)
    curves = ca.continue_curve(log_n, tokens, ["self_weight"], sample_rows=50)
    single = ca.measure(log_n(1.7), tokens, ["self_weight"], sample_rows=50)["self_weight"]
    assert curves["self_weight"](1.7) == pytest.approx(single.value, abs=1e-6)
    assert curves["self_weight_se"](1.7) == pytest.approx(single.standard_error, rel=2e-2)


def test_batches_are_padded_and_values_are_not_changed():
    tokens = ca.near_simplex(0, 40, 8, rho=0.2)
    evaluate = evaluator(log_n, tokens, observables.select(["entropy"]))
    gammas = np.linspace(0, 3, 21)
    direct = ca.measure_batch(log_n(gammas), tokens, ["entropy"])["entropy"].value
    np.testing.assert_allclose(evaluate(gammas)["entropy"], direct, rtol=1e-13)


def table(**changes):
    axes = {"n": [24, 40], "d": 12, "rho": 0.5, "gamma": "0:4:65", **changes.pop("axes", {})}
    made = {"tokens": {"kind": "near-simplex", "fix_common": True}, "observables": ["self_weight", "angle_ratio"]}
    return SweepSpec.from_table({**made, **changes, "axes": axes})


@pytest.mark.slow
def test_a_continued_sweep_agrees_with_the_exact_grid(tmp_path):
    names = ["self_weight", "entropy", "participation_ratio", "angle_ratio", "excluded_pairs"]
    spec = table(observables=names, axes={"n": 24, "replicates": 2})
    assert spec.node_limit == 33
    continued, exact = run_sweep(spec, tmp_path / "s"), run_sweep(spec.with_grid(exact=True))
    assert "self_weight_interpolation_error" not in exact
    for name in names:
        error = continued[f"{name}_interpolation_error"]
        assert error.dims == continued[name].dims
        difference = np.abs(continued[name] - exact[name])
        span = exact[name].max("gamma") - exact[name].min("gamma")
        assert (difference <= error.fillna(0) + 1e-12).all(), name
        assert (error.fillna(0) <= 1e-6 * span + 1e-13 * exact[name].max()).all(), name
    assert continued.self_weight_interpolation_error.notnull().all()
    assert np.isnan(continued.self_weight_se).all()
    again = Store.open(tmp_path / "s").read()
    assert again.identical(continued)


def test_a_study_says_what_it_interpolates():
    spec = table()
    assert layout_of(spec).statistics == ("value", "standard_error", "interpolation_error")
    assert layout_of(spec).shape[-1] == 3
    for other in (
        spec.with_grid(exact=True),
        table(axes={"gamma": "0:4:54"}),
        table(observables=["largest_weight", "self_weight"]),
    ):
        assert layout_of(other).statistics == ("value", "standard_error")


def test_exact_grid_and_tolerance_are_part_of_the_identity():
    spec = table()
    assert spec.identity()["exact_grid"] is False
    assert spec.identity()["tolerance"] == 1e-6
    assert table(dtype="float32").identity()["tolerance"] == 1e-5
    assert len({spec.hash, spec.with_grid(exact=True).hash, spec.with_grid(tolerance=1e-3).hash}) == 3
    assert table(tolerance=1e-6).hash == spec.hash
    assert SweepSpec.from_identity(spec.identity()).hash == spec.hash
    for wrong in (0, 1, -1e-6, "word", True):
        with pytest.raises(SpecError, match="tolerance"):
            table(tolerance=wrong)
    with pytest.raises(SpecError, match="exact_grid"):
        table(exact_grid=1)
    with pytest.raises(SpecError, match="tolerance"):
        spec.with_grid(tolerance=2.0)


def test_what_does_not_converge_is_computed_and_said(caplog):
    caplog.set_level("INFO", logger="critattn")
    spec = table(axes={"n": 40, "rho": 0.0, "gamma": "0:40:65"})
    continued, exact = run_sweep(spec), run_sweep(spec.with_grid(exact=True))
    assert continued.self_weight_interpolation_error.isnull().all()
    np.testing.assert_allclose(continued.self_weight, exact.self_weight, rtol=1e-12)
    assert "every gamma is computed: self_weight: an error of" in caplog.text


def test_only_what_is_analytic_is_interpolated():
    spec = table(observables=["largest_weight", "entropy", "angle_ratio"], axes={"n": 24})
    data = run_sweep(spec)
    assert data.largest_weight_interpolation_error.isnull().all()
    # the pass over the rows that the largest weight needs anyway yields the entropy as well
    assert data.entropy_interpolation_error.isnull().all()
    assert data.angle_ratio_interpolation_error.notnull().all()


def test_the_command_line(tmp_path):
    own = ["sweep", "--n", "16", "--d", "8", "--rho", "0.5", "--gamma", "0:4:65", "--observables", "self_weight"]

    def run(*args, code=0):
        result = CliRunner().invoke(main, [*own, "--json", "-q", "--store", str(tmp_path), *args])
        assert result.exit_code == code, result.output
        return json.loads(result.stdout) if code == 0 else result.stderr

    plain, exact, fine = run(), run("--exact-grid"), run("--tolerance", "1e-3")
    assert len({found["spec_hash"] for found in (plain, exact, fine)}) == 3
    assert plain["observables"][0]["max"] == pytest.approx(exact["observables"][0]["max"], abs=1e-6)
    assert "--tolerance" in run("--tolerance", "2", code=2)


@pytest.mark.slow
def test_the_rate_of_convergence_at_a_thousand_tokens():
    tokens = ca.near_simplex(1, 1024, 64, rho=0.5, fix_common=True)
    names = ["angle_ratio", "self_weight"]
    gammas = np.linspace(0, 4, 37)
    exact = ca.measure_batch(log_n(gammas), tokens, names)
    expected = {"angle_ratio": (4e-5, 2e-6, 2e-8, 6e-10), "self_weight": (6e-6, 6e-8, 2e-10, 1e-12)}
    for place, degree in enumerate((24, 32, 48, 64)):
        nodes = chebyshev.points(degree)
        measured = ca.measure_batch(log_n(2 + 2 * nodes), tokens, names)
        for name in names:
            values = chebyshev.interpolate((gammas - 2) / 2, measured[name].value)
            error = np.max(np.abs(values - exact[name].value))
            # draws differ in the spread of their rows: no worse than ten times, and not absurdly better
            assert error <= 10 * expected[name][place], (name, degree)
