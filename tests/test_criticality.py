"""Crossings, uncertainties, extrapolation and collapse on curves whose answers are known."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit

from critattn import criticality as cr
from critattn.errors import DomainError
from critattn.protocols import Estimate


def sigmoid(gamma, centre=2.1, slope=3.5):
    return expit(slope * (gamma - centre))


def exact(gamma):
    return Estimate(float(sigmoid(gamma)))


def test_crossing_of_an_exact_curve():
    found = cr.find_crossing(exact, bracket=(0, 4))
    assert found.converged
    assert found.critical == pytest.approx(2.1, abs=1e-9)
    assert found.standard_error is None
    assert (found.parameter, found.reason) == ("gamma", "")
    other = cr.find_crossing(exact, level=0.9, bracket=(0, 4), parameter="p")
    assert other.critical == pytest.approx(2.1 + logit(0.9) / 3.5, abs=1e-9)
    assert other.parameter == "p"


def test_crossing_at_ends_and_probe_points():
    for bracket in ((2.1, 4.0), (0.0, 2.1), (1.1, 3.1)):
        assert cr.find_crossing(exact, bracket=bracket).critical == pytest.approx(2.1, abs=1e-9)
    falling = cr.find_crossing(lambda x: Estimate(1 - x), level=0.0, bracket=(0.0, 1.0))
    assert falling.critical == pytest.approx(1.0)


def test_delta_method_error():
    for sigma in (1e-6, 1e-3, 0.02):
        for bracket in ((0, 4), (0, 1000)):
            found = cr.find_crossing(lambda x, s=sigma: Estimate(float(sigmoid(x)), s), bracket=bracket)
            assert found.standard_error == pytest.approx(sigma / (3.5 / 4), rel=2e-3)


def test_coverage_of_the_delta_method():
    rng, sigma, roots = np.random.default_rng(1), 0.02, []
    for _ in range(300):
        shift = sigma * rng.standard_normal()
        roots.append(cr.find_crossing(lambda x, s=shift: Estimate(sigmoid(x) + s, sigma), bracket=(0, 4)))
    pulls = np.array([(root.critical - 2.1) / root.standard_error for root in roots])
    assert abs(pulls.mean()) < 4 / np.sqrt(300)
    assert abs(pulls.std() - 1) < 4 / np.sqrt(600)
    assert np.all(np.abs(pulls) < 4)


def test_expansion_finds_a_distant_root():
    calls = []

    def curve(x):
        calls.append(x)
        return Estimate(float(sigmoid(x, centre=300.0)))

    found = cr.find_crossing(curve, bracket=(0, 4), expand_to=1000)
    assert found.critical == pytest.approx(300, rel=1e-9)
    assert len(calls) < 60


@pytest.mark.parametrize(
    ("curve", "options", "words"),
    [
        (
            lambda x: 0.1 + 1.3e-5 * x,
            {"expand_to": 1000.0},
            "self weight stays below 0.5 up to gamma = 1000 (0.113",
        ),
        (lambda x: 0.9, {}, "is flat, 0.9"),
        (lambda x: 0.8 + 0.01 * x, {}, "stays above 0.5 between gamma = 0 and 4"),
        (lambda x: np.nan if x > 1 else 0.0, {}, "is nan at gamma = 2"),
        (lambda x: np.inf if x > 3 else 0.0, {}, "is inf at gamma = 4"),
        (lambda x: np.sin(3 * x), {"probes": 33}, "crosses 0.5 4 times"),
        (lambda x: 1 - sigmoid(x), {"increasing": True}, "only in the other direction"),
    ],
)
def test_failures_are_data(curve, options, words):
    found = cr.find_crossing(lambda x: Estimate(float(curve(x))), bracket=(0, 4), quantity="self weight", **options)
    assert not found.converged
    assert found.critical is None
    assert found.standard_error is None
    assert words in found.reason


def test_direction_picks_one_of_two_crossings():
    def hump(x):
        return Estimate(float(np.exp(-((x - 2) ** 2))))

    assert not cr.find_crossing(hump, bracket=(0, 4)).converged
    width = np.sqrt(np.log(2))
    assert cr.find_crossing(hump, bracket=(0, 4), increasing=True).critical == pytest.approx(2 - width)
    assert cr.find_crossing(hump, bracket=(0, 4), increasing=False).critical == pytest.approx(2 + width)


@pytest.mark.parametrize(
    "options",
    [
        {"bracket": (4, 0)},
        {"bracket": (0, np.inf)},
        {"bracket": (0, 1, 2)},
        {"bracket": (0, 4), "level": np.nan},
        {"bracket": (0, 4), "tolerance": 0},
        {"bracket": (0, 4), "expand_to": 1},
        {"bracket": (0, 4), "probes": 1},
    ],
)
def test_misuse_of_find_crossing_raises(options):
    with pytest.raises(DomainError):
        cr.find_crossing(exact, **options)


def test_crossings_of_many_rows():
    centres = np.linspace(0.5, 6, 40)
    found = cr.find_crossings(lambda g: sigmoid(g, centres), bracket=(0.0, 5.0), rows=40)
    reachable = centres < 5
    np.testing.assert_array_equal(found.found, reachable)
    np.testing.assert_allclose(found.roots[reachable], centres[reachable], atol=1e-9)
    assert np.all(np.isnan(found.roots[~reachable]))
    again = cr.find_crossings(lambda g: sigmoid(g, centres), bracket=(0.0, np.full(40, 7.0)), level=0.25)
    np.testing.assert_allclose(again.roots, centres + logit(0.25) / 3.5, atol=1e-9)
    with pytest.raises(DomainError):
        cr.find_crossings(lambda g: g, bracket=(0.0, 1.0))
    with pytest.raises(DomainError):
        cr.find_crossings(lambda g: g, bracket=(1.0, 1.0), rows=2)


def test_combine():
    found = cr.combine([2.0, 2.2, 2.4, 2.6])
    assert found.critical == pytest.approx(2.3)
    assert found.standard_error == pytest.approx(np.std([2.0, 2.2, 2.4, 2.6], ddof=1) / 2)
    single = cr.combine([cr.Threshold("gamma", 2.0, None, "brent", True)])
    assert (single.critical, single.standard_error, single.converged) == (2.0, None, True)
    missing = cr.combine([2.0, None, np.nan], parameter="p", method="x")
    assert missing.critical is None
    assert missing.reason.startswith("2 of 3 draws")
    assert (missing.parameter, missing.method) == ("p", "x")
    with pytest.raises(DomainError):
        cr.combine([])


def test_bootstrap_of_a_mean():
    rows = np.random.default_rng(4).normal(size=400)
    error = cr.bootstrap(lambda sample: float(sample.mean()), rows, resamples=2000, seed=1)
    assert error == pytest.approx(rows.std() / 20, rel=4 / np.sqrt(4000))
    assert error == cr.bootstrap(lambda sample: float(sample.mean()), rows, resamples=2000, seed=1)
    assert np.isnan(cr.bootstrap(lambda sample: np.nan, rows, resamples=3))
    with pytest.raises(DomainError):
        cr.bootstrap(np.mean, rows[:1])
    with pytest.raises(DomainError):
        cr.bootstrap(np.mean, rows, resamples=1)


def test_crossing_of_a_row_mean():
    centres = 2 + 0.3 * np.random.default_rng(8).standard_normal(500)

    def rows(gamma):
        return sigmoid(gamma, centres)

    delta = cr.bootstrap_crossing(rows, bracket=(0, 4))
    boot = cr.bootstrap_crossing(rows, bracket=(0, 4), method="bootstrap", resamples=4000)
    assert delta.critical == boot.critical
    assert delta.standard_error == pytest.approx(boot.standard_error, rel=0.05)
    assert np.mean(rows(delta.critical)) == pytest.approx(0.5, abs=1e-9)
    direct = cr.bootstrap(
        lambda sample: cr.find_crossing(lambda g: Estimate(sigmoid(g, sample).mean()), bracket=(0, 4)).critical,
        centres,
        resamples=300,
    )
    assert direct == pytest.approx(delta.standard_error, rel=4 / np.sqrt(600))
    assert abs(delta.critical - 2) < 4 * delta.standard_error
    assert not cr.bootstrap_crossing(rows, bracket=(5, 6)).converged
    with pytest.raises(DomainError):
        cr.bootstrap_crossing(rows, bracket=(0, 4), method="jackknife")


def test_student_interval():
    low, high = cr.student_interval(Estimate(1.0, 0.1), 4)
    assert (low, high) == pytest.approx(stats.t.interval(0.95, 4, loc=1.0, scale=0.1))
    normal = cr.student_interval(Estimate(1.0, 0.1), np.inf, level=0.9)
    assert normal == pytest.approx(stats.norm.interval(0.9, loc=1.0, scale=0.1))
    assert cr.student_interval(Estimate(1.0), 3) == (1.0, 1.0)
    for dof, level in ((0, 0.9), (3, 1.0)):
        with pytest.raises(DomainError):
            cr.student_interval(Estimate(1.0, 0.1), dof, level=level)


def test_susceptibility_peak():
    control = np.sort(np.concatenate([np.linspace(0, 4, 81), [1.93, 2.36]]))
    found = cr.susceptibility(control, sigmoid(control))
    assert found.peak == pytest.approx(2.1, abs=2e-3)
    assert found.peak_value == pytest.approx(3.5 / 4, rel=1e-2)
    assert found.errors is None
    assert found.peak_error is None
    np.testing.assert_allclose(cr.susceptibility(control, control**2).values, 2 * control, atol=1e-12)
    assert cr.susceptibility(control, np.ones_like(control)).peak is None
    assert cr.susceptibility(control, np.exp(control)).peak is None


def test_susceptibility_errors_against_noise():
    control, sigma = np.linspace(0, 4, 21), 1e-3
    rng, runs = np.random.default_rng(6), []
    for _ in range(400):
        runs.append(cr.susceptibility(control, sigmoid(control) + sigma * rng.standard_normal(21)))
    found = cr.susceptibility(control, sigmoid(control), errors=np.full(21, sigma))
    spread = np.std([run.values for run in runs], axis=0)
    np.testing.assert_allclose(spread, found.errors, rtol=4 / np.sqrt(800))
    assert np.std([run.peak for run in runs]) == pytest.approx(found.peak_error, rel=4 / np.sqrt(800))


@pytest.mark.parametrize(
    ("control", "values", "errors"),
    [
        ([0, 1], [0, 1], None),
        ([0, 1, 1], [0, 1, 2], None),
        ([0, 1, 2], [0, np.nan, 2], None),
        ([0, 1, 2], [0, 1, 2], [1, 0, 1]),
        ([0, 1, 2], [0, 1, 2], [1, 1]),
        ([[0, 1, 2]], [[0, 1, 2]], None),
    ],
)
def test_misuse_of_susceptibility_raises(control, values, errors):
    with pytest.raises(DomainError):
        cr.susceptibility(control, values, errors=errors)


def test_finite_size_scaling_of_an_exact_line():
    log_n = np.log([1e2, 1e4, 1e8, 1e300])
    found = cr.finite_size_scaling(log_n, 2 - 0.7 / log_n)
    assert found.converged
    assert (found.limit, found.slope) == pytest.approx((2, -0.7))
    assert found.limit_error < 1e-12
    assert found.reduced_chi_squared is None
    with_gap = cr.finite_size_scaling(log_n, np.where(log_n > 100, np.nan, 2 - 0.7 / log_n))
    assert with_gap.limit == pytest.approx(2)


def test_finite_size_scaling_coverage():
    rng, log_n = np.random.default_rng(9), np.log([256, 1024, 4096, 16384, 65536])
    errors = np.array([0.01, 0.01, 0.02, 0.02, 0.04])
    runs = [
        cr.finite_size_scaling(log_n, 2 + 0.5 / log_n + errors * rng.standard_normal(5), errors=errors)
        for _ in range(400)
    ]
    pulls = np.array([(run.limit - 2) / run.limit_error for run in runs])
    assert abs(pulls.mean()) < 4 / np.sqrt(400)
    assert abs(pulls.std() - 1) < 4 / np.sqrt(800)
    assert np.mean([run.reduced_chi_squared for run in runs]) == pytest.approx(1, abs=4 * np.sqrt(2 / 3 / 400))
    scatter = [run.slope for run in runs]
    assert np.std(scatter) == pytest.approx(runs[0].slope_error, rel=4 / np.sqrt(800))


def test_finite_size_scaling_refuses():
    short = cr.finite_size_scaling([5.0, 6.0, 6.0], [1.0, 2.0, 2.0])
    assert not short.converged
    assert short.limit is None
    assert "3 needed" in short.reason
    for log_n, errors in (([0.0, 1.0, 2.0], None), ([1.0, 2.0, 3.0], [1.0, 0.0, 1.0]), ([1.0, 2.0], None)):
        with pytest.raises(DomainError):
            cr.finite_size_scaling(log_n, [1.0, 2.0, 3.0], errors=errors)


SIZES = np.array([256, 1024, 4096, 65536])


def simplex_curves(control, theta, sizes=SIZES):
    return expit(theta * np.outer(np.log(sizes), control - 1 / theta))


@pytest.mark.parametrize("theta", [0.5, 0.7, 0.3])
def test_collapse_of_exact_simplex_curves(theta):
    control = np.linspace(0.3 / theta, 2.1 / theta, 41)
    found = cr.data_collapse(control, SIZES, simplex_curves(control, theta))
    assert found.converged
    assert found.critical == pytest.approx(1 / theta, abs=1e-6)
    assert found.exponent == 1
    assert found.quality < 1e-4
    assert found.standard_error is None


def test_collapse_finds_exponent_scale_and_far_sizes():
    control = np.linspace(1, 3, 41)
    fitted = cr.data_collapse(control, SIZES, simplex_curves(control, 0.5), exponent=0.6, fit_exponent=True)
    assert fitted.critical == pytest.approx(2, abs=1e-6)
    assert fitted.exponent == pytest.approx(1, abs=1e-3)
    squared = expit(0.1 * np.outer(np.log(SIZES) ** 2, control - 2.2))
    found = cr.data_collapse(control, SIZES, squared, scale=lambda n: np.log(n) ** 2)
    assert found.critical == pytest.approx(2.2, abs=1e-6)
    control = np.linspace(1.9, 2.1, 41)
    far = np.array([1e100, 1e200, 1e300])
    found = cr.data_collapse(control, far, simplex_curves(control, 0.5, far))
    assert found.critical == pytest.approx(2, abs=1e-6)


def test_wrong_scale_collapses_worse():
    control = np.linspace(1, 3, 41)
    values = simplex_curves(control, 0.5)
    right = cr.data_collapse(control, SIZES, values)
    wrong = cr.data_collapse(control, SIZES, values, scale=lambda n: n)
    assert not wrong.converged or wrong.quality > 100 * right.quality


@pytest.mark.slow
def test_collapse_coverage():
    control, sigma = np.linspace(1, 3, 33), 0.01
    rng, runs, values = np.random.default_rng(0), [], simplex_curves(control, 0.5)
    for seed in range(24):
        noisy = values + sigma * rng.standard_normal(values.shape)
        errors = np.full(values.shape, sigma)
        runs.append(cr.data_collapse(control, SIZES, noisy, errors=errors, resamples=12, seed=seed))
    error = np.mean([run.standard_error for run in runs])
    roots = np.array([run.critical for run in runs])
    assert abs(roots.mean() - 2) < 4 * error / np.sqrt(24)
    assert error == pytest.approx(roots.std(ddof=1), rel=4 / np.sqrt(46))
    assert np.mean([run.quality for run in runs]) == pytest.approx(1, abs=0.15)


def test_collapse_failures_are_data():
    control = np.linspace(0, 1, 9)
    flat = cr.data_collapse(control, [10, 100], np.full((2, 9), 0.3))
    assert not flat.converged
    assert flat.critical is None
    assert "overlap" in flat.reason
    apart = cr.data_collapse(np.stack([control, control + 50]), [10, 1e300], np.stack([control, control]))
    assert not apart.converged


@pytest.mark.parametrize(
    "change",
    [
        {"values": np.zeros(9)},
        {"values": np.full((2, 9), np.nan)},
        {"sizes": [10]},
        {"sizes": [10, 10]},
        {"control": np.linspace(1, 0, 9)},
        {"control": np.zeros(4)},
        {"errors": np.zeros((2, 9))},
        {"exponent": 0.0},
        {"resamples": 1},
    ],
)
def test_misuse_of_collapse_raises(change):
    control = np.linspace(0, 1, 9)
    given = {"control": control, "sizes": [10, 100], "values": np.stack([control, control**2]), **change}
    with pytest.raises(DomainError):
        cr.data_collapse(given.pop("control"), given.pop("sizes"), given.pop("values"), **given)
