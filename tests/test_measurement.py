"""Three routes to every observable: closed form, dense brute force in numpy, and the package in row blocks."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

import critattn as ca
from critattn import observables, scaling, tokens
from critattn.errors import DomainError, SpecError
from critattn.measurement import DEFAULT, batch, batch_size, measure_batch, row_values
from critattn.observables import Observable, row_mean
from critattn.protocols import pytree
from critattn.scaling import InverseTemperature
from critattn.theory import simplex

ROWS = ("self_weight", "entropy", "participation_ratio", "largest_weight", "row_mass")
PAIRS = ("angle_ratio", "angle_ratio_of_means", "output_cosine", "effective_rho")


def dense(vectors, beta, a=0.0, b=1.0, *, causal=False):
    """Every observable from whole matrices, in numpy."""
    weights = oracles.softmax_weights(vectors, beta, causal=causal)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    moved = a * vectors + b * weights @ units
    moved /= np.linalg.norm(moved, axis=1, keepdims=True)
    before, after = units @ units.T, moved @ moved.T
    pairs = np.triu_indices(len(vectors), 1)
    logs = np.log(np.where(weights > 0, weights, 1))
    ratios = (1 - after[pairs]) / (1 - before[pairs])
    return {
        "self_weight": np.diag(weights).mean(),
        "entropy": -(weights * logs).sum(axis=1).mean(),
        "participation_ratio": (1 / (weights**2).sum(axis=1)).mean(),
        "largest_weight": weights.max(axis=1).mean(),
        "row_mass": 1.0,
        "angle_ratio": ratios.mean(),
        "angle_ratio_of_means": (1 - after)[pairs].mean() / (1 - before)[pairs].mean(),
        "output_cosine": after[pairs].mean(),
        "effective_rho": before[pairs].mean(),
    }


@pytest.mark.parametrize(
    ("a", "b", "causal"),
    [
        (1.0, 0.5, True),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in ((0.0, 1.0, False), (0.0, 1.0, True), (1.0, 0.5, False))
        ),
    ],
)
def test_dense_and_blocked_agree(a, b, causal):
    x = oracles.gaussian_tokens(0, 150, 12, 0.4)
    layer = ca.Attention(ca.LogN(1.7), mask=ca.Causal() if causal else ca.Bidirectional())
    expected = dense(x, 1.7 * np.log(150), a, b, causal=causal)
    norm = np.sum(oracles.jacobian(x, 1.7 * np.log(150), a, b, causal=causal) ** 2)
    # the least budget there is: blocks of 64 rows
    for budget in (1, 10**9):
        found = ca.measure(layer, x, DEFAULT, identity_weight=a, attention_weight=b, memory_bytes=budget)
        for name, value in expected.items():
            assert found[name].value == pytest.approx(value, rel=1e-12), name
            assert found[name].standard_error is None
        assert found["gradient_norm_squared"].value == pytest.approx(norm, rel=1e-12)
        assert found["gradient_norm"].value == pytest.approx(norm / x.size, rel=1e-12)


@pytest.mark.parametrize("gamma", [0.0, 1.2, 2.0, 4.0])
@pytest.mark.parametrize(("rho", "a", "b", "r"), [(0.3, 0.0, 1.0, 1.0), (0.5, 1.0, 0.5, 1.3), (0.0, 0.0, 1.0, 1.0)])
def test_simplex_agrees_with_closed_forms(gamma, rho, a, b, r):
    n, d = 70, 80
    found = ca.measure(
        ca.Attention(ca.LogN(gamma)),
        ca.simplex(n, d, rho=rho, norm=r),
        DEFAULT,
        identity_weight=a,
        attention_weight=b,
        memory_bytes=1,
    )
    where, mixing = (gamma, rho, np.log(n)), {"identity_weight": a, "attention_weight": b, "norm": r}
    expected = {
        **{name: getattr(simplex, name)(*where) for name in ("self_weight", "entropy", "participation_ratio")},
        **{name: getattr(simplex, name)(*where, **mixing) for name in ("angle_ratio", "output_cosine")},
        "gradient_norm_squared": simplex.gradient_norm_squared(*where, log_d=np.log(d), **mixing),
        "gradient_norm": simplex.gradient_norm(*where, log_d=np.log(d), **mixing),
    }
    for name, value in expected.items():
        # 1 - cos' of collapsed tokens carries the rounding of cosines near 1: an absolute error
        assert found[name].value == pytest.approx(value, rel=1e-12, abs=2e-14), name


def test_reference_set_of_sine_tokens():
    found = ca.measure(ca.Attention(ca.LogN(1.2)), oracles.sine_tokens())
    assert found["angle_ratio"].value == pytest.approx(0.783493123759, abs=6e-13)
    assert found["angle_ratio_of_means"].value == pytest.approx(0.902551228471, abs=6e-13)
    assert found["self_weight"].value == pytest.approx(0.519168471098, abs=6e-13)
    units = tokens.from_array(oracles.sine_tokens())
    rows = {name: row_values(ca.Attention(ca.LogN(1.2)), units, name) for name in ROWS}
    assert rows["self_weight"][0] == pytest.approx(0.735251390418, abs=6e-13)
    assert rows["participation_ratio"][0] == pytest.approx(1.812272980018, abs=6e-13)
    assert np.mean(1 / rows["participation_ratio"]) == pytest.approx(0.378715002698, abs=6e-13)


def test_equal_pairs_are_left_out_and_counted():
    x = oracles.gaussian_tokens(1, 20, 6, 0.3)
    x[3] = x[7]
    x[5] = 2.5 * x[7]  # the same direction
    found = ca.measure(ca.Attention(ca.LogN(1.5)), x, ["excluded_pairs", "angle_ratio", "output_cosine"])
    assert found["excluded_pairs"].value == 3
    weights = oracles.softmax_weights(x, 1.5 * np.log(20))
    units = x / np.linalg.norm(x, axis=1, keepdims=True)
    moved = weights @ units
    moved /= np.linalg.norm(moved, axis=1, keepdims=True)
    i, j = np.triu_indices(20, 1)
    keep = ~np.isin(i * 100 + j, [305, 307, 507])
    ratio = (1 - np.sum(moved[i] * moved[j], axis=1))[keep] / (1 - np.sum(units[i] * units[j], axis=1))[keep]
    assert found["angle_ratio"].value == pytest.approx(ratio.mean(), rel=1e-12)
    assert found["output_cosine"].value == pytest.approx(np.mean(np.sum(moved[i] * moved[j], axis=1)), rel=1e-12)


def test_one_token_and_all_tokens_equal_give_no_ratio():
    for x in (np.ones((1, 3)), np.ones((4, 3))):
        found = ca.measure(ca.Attention(ca.LogN(1.5)), x)
        assert np.isnan(found["angle_ratio"].value)
        assert found["self_weight"].value == pytest.approx(1 / len(x))


def test_a_batch_of_layers_is_the_layers_one_by_one():
    x = oracles.gaussian_tokens(2, 90, 7, 0.5)
    gammas = np.array([0.0, 1.0, 2.5])
    together = measure_batch(ca.Attention(ca.LogN(gammas)), x, DEFAULT, memory_bytes=1)
    for k, gamma in enumerate(gammas):
        alone = ca.measure(ca.Attention(ca.LogN(gamma)), x, DEFAULT)
        for name in DEFAULT:
            assert together[name].value[k] == pytest.approx(alone[name].value, rel=1e-12, abs=1e-14), name


def test_batches_have_one_length():
    with pytest.raises(DomainError, match="leading axes"):
        batch_size(ca.Attention(ca.LogN(np.ones(2)), ca.LogN(np.ones(3))))
    assert jax.tree_util.tree_leaves(batch(ca.Attention(ca.LogN(2.0)), 4))[0].shape == (4,)


def test_float32_is_float64_to_single_precision_and_x64_stays_off():
    x = oracles.gaussian_tokens(3, 200, 32, 0.5)
    layer = ca.Attention(ca.LogN(2.0))
    single, double = (ca.measure(layer, x, dtype=dtype) for dtype in ("float32", "float64"))
    for name in DEFAULT:
        assert single[name].value == pytest.approx(double[name].value, rel=2e-4), name
    assert not jax.config.jax_enable_x64
    assert jnp.ones(1).dtype == jnp.float32


def test_not_normalised_tokens_are_seen_as_they_are():
    x = oracles.gaussian_tokens(4, 30, 4, 0.3)
    raw = tokens.from_array(x, normalised=False)
    beta = 0.7 * np.log(30)
    logits = beta * x @ x.T
    masses = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights = masses / masses.sum(axis=1, keepdims=True)
    found = ca.measure(ca.Attention(ca.LogN(0.7)), raw, ["self_weight", "effective_rho", "output_cosine"])
    assert found["self_weight"].value == pytest.approx(np.diag(weights).mean(), rel=1e-12)
    assert found["effective_rho"].value == pytest.approx(dense(x, 0.0)["effective_rho"], rel=1e-12)
    moved = weights @ x
    moved /= np.linalg.norm(moved, axis=1, keepdims=True)
    assert found["output_cosine"].value == pytest.approx((moved @ moved.T)[np.triu_indices(30, 1)].mean(), rel=1e-12)
    with pytest.raises(DomainError, match="normalised"):
        ca.measure(ca.Attention(ca.LogN(0.7)), raw, ["gradient_norm"])


@pytest.mark.slow
def test_sampled_rows_cover_the_exact_values():
    # 200 samples of 40 of 400 rows: Student intervals at 95 %, the number covered is binomial (4 sigma: 6 %)
    x = tokens.near_simplex(5, 400, 16, rho=0.4)
    layer, wanted = ca.Attention(ca.LogN(1.6)), ("self_weight", "entropy", "angle_ratio", "output_cosine")
    exact = ca.measure(layer, x, wanted)
    draws = [ca.measure(layer, x, wanted, sample_rows=40, seed=seed) for seed in range(200)]
    for name in wanted:
        errors = np.array([draw[name].standard_error for draw in draws], dtype=float)
        distance = np.abs([draw[name].value - exact[name].value for draw in draws])
        assert 0.89 < np.mean(distance < 2.023 * errors) <= 1, name
    with pytest.raises(DomainError, match="sample_rows"):
        ca.measure(layer, x, sample_rows=401)


def test_a_stream_of_tokens_is_the_same_tokens():
    wanted = [*ROWS, *PAIRS]
    layers = ca.Attention(ca.LogN(np.array([0.0, 1.7, 3.0])))
    # 2500 tokens are two whole blocks and a part; five blocks at once would be too many
    whole = tokens.near_simplex(3, 2500, 9, rho=0.4)
    stream = tokens.stream_near_simplex(3, 2500, 9, rho=0.4)
    first, second = (measure_batch(layers, source, wanted, sample_rows=60) for source in (whole, stream))
    for name in wanted:
        np.testing.assert_allclose(second[name].value, first[name].value, rtol=1e-12, atol=1e-14, err_msg=name)
        np.testing.assert_allclose(second[name].standard_error, first[name].standard_error, rtol=1e-9, atol=1e-15)
    with pytest.raises(DomainError, match="sample_rows"):
        ca.measure(ca.Attention(ca.LogN(1.0)), stream, ["entropy"])
    with pytest.raises(DomainError, match="mask"):
        ca.measure(ca.Attention(ca.LogN(1.0), mask=ca.Causal()), stream, ["entropy"], sample_rows=5)
    with pytest.raises(DomainError, match="gradient_norm"):
        ca.measure(ca.Attention(ca.LogN(1.0)), stream, sample_rows=5)


def test_random_scores_have_weights_but_no_pairs():
    scores = tokens.random_scores(1, 50, rho=0.2, tau=0.1)
    with jax.enable_x64(True):
        matrix = np.asarray(scores.score_rows(jnp.arange(50)))
    logits = 2.0 * np.log(50) * matrix
    weights = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    found = ca.measure(ca.Attention(ca.LogN(2.0)), scores, ["self_weight", "largest_weight"])
    assert found["self_weight"].value == pytest.approx(np.diag(weights).mean(), rel=1e-12)
    assert found["largest_weight"].value == pytest.approx(weights.max(axis=1).mean(), rel=1e-12)
    with pytest.raises(DomainError, match="angle_ratio"):
        ca.measure(ca.Attention(ca.LogN(2.0)), scores, ["angle_ratio"])


@pytest.mark.parametrize("reduced_beta", [0.5, 1.0, 2.0])
def test_random_energies_against_the_exact_integral(reduced_beta):
    # rows are independent: 8 matrices of 512 rows give a mean with a standard error to compare with, 4 sigma
    n = 512
    beta = reduced_beta * float(ca.theory.random_energy.critical_beta(np.log(n)))
    layer = ca.Attention(ca.InverseTemperature(beta))
    draws = (tokens.random_scores(seed, n, rho=0.0, tau=1.0, own=None) for seed in range(8))
    rows = np.concatenate([row_values(layer, scores, "sum_of_squares") for scores in draws])
    exact = ca.theory.random_energy.sum_of_squares(beta, np.log(n))
    assert abs(rows.mean() - exact) < 4 * rows.std() / np.sqrt(rows.size)
    assert rows.std() / np.sqrt(rows.size) < 0.03 * exact


def test_users_can_bring_an_observable():
    sharpness = Observable(
        name="top_two",
        symbol=r"A_{(1)}+A_{(2)}",
        unit="1",
        needs="weights",
        row=lambda block: {"value": jnp.sum(jax.lax.top_k(block.weights, 2)[0], axis=1)},
        reduce=row_mean,
        title="two largest weights of a row",
    )
    x = oracles.gaussian_tokens(6, 20, 5, 0.3)
    found = ca.measure(ca.Attention(ca.LogN(2.0)), x, [sharpness])["top_two"].value
    weights = np.sort(oracles.softmax_weights(x, 2.0 * np.log(20)), axis=1)
    assert found == pytest.approx(weights[:, -2:].sum(axis=1).mean(), rel=1e-12)
    with pytest.raises(SpecError, match="exists already"):
        observables.register(observables.get("entropy"))
    with pytest.raises(SpecError, match="unknown"):
        ca.measure(ca.Attention(), x, ["entropi"])


@pytree()
class Bias:
    """A bias for each pair of tokens, an array of one layer."""

    table: jax.Array | np.ndarray

    def __call__(self, logits, context):
        return logits + jnp.asarray(self.table, logits.dtype)[context.query_positions]


@pytree()
class Doubled:
    """A transform that holds no array."""

    def __call__(self, logits, context):
        return 2 * logits


LEAFLESS = {
    "no transforms": (ca.Attention(), 1.0, None),
    "a causal mask": (ca.Attention(mask=ca.Causal()), 1.0, ca.Causal()),
    "a transform without arrays": (ca.Attention(Doubled()), 2.0, None),
}


def test_a_layer_without_a_leaf_is_the_layer_with_one():
    x, wanted = oracles.gaussian_tokens(0, 20, 5, 0.4), ["self_weight", "entropy", "angle_ratio"]
    found, expected = ca.measure(ca.Attention(), x, wanted), dense(x, 1.0)
    for name in wanted:
        assert found[name].value == pytest.approx(expected[name], rel=1e-12), name
    assert measure_batch(ca.Attention(), x, ["entropy"])["entropy"].value.shape == (1,)


@pytest.mark.slow
@pytest.mark.parametrize("which", LEAFLESS)
def test_all_of_a_layer_without_a_leaf_is_that_of_the_layer_with_one(which):
    plain, beta, mask = LEAFLESS[which]
    scaled = ca.Attention(InverseTemperature(beta), mask=mask)
    assert jax.tree_util.tree_leaves(plain) == []
    x = tokens.near_simplex(0, 70, 5, rho=0.4)
    wanted = [*DEFAULT, "operator_norm"]
    # small blocks: the mapping over layers stands inside the one over blocks
    found, expected = (ca.measure(layer, x, wanted, memory_bytes=1) for layer in (plain, scaled))
    for name in wanted:
        assert found[name].value == pytest.approx(expected[name].value, rel=1e-12, abs=1e-14), name
    depth = [ca.measure_layers(layer, x, ["cosine"], 2)["cosine"].value for layer in (plain, scaled)]
    np.testing.assert_allclose(*depth, rtol=1e-12)


@pytest.mark.slow
def test_a_stream_takes_layers_without_a_leaf():
    whole, stream = (make(3, 2500, 9, rho=0.4) for make in (tokens.near_simplex, tokens.stream_near_simplex))
    first, second = (ca.measure(ca.Attention(), x, ["entropy"], sample_rows=20) for x in (whole, stream))
    assert second["entropy"].value == pytest.approx(first["entropy"].value, rel=1e-12)


def test_a_stream_knows_where_its_rows_stand():
    # a law of positions: the factor is 1 in the first 100 rows only
    law = scaling.OnCosines(scaling.law("llama-4", interval=100.0))
    whole, stream = (make(3, 2500, 9, rho=0.4) for make in (tokens.near_simplex, tokens.stream_near_simplex))
    first, second = (ca.measure(ca.Attention(law), x, ["self_weight"], sample_rows=60) for x in (whole, stream))
    assert second["self_weight"].value == pytest.approx(first["self_weight"].value, rel=1e-12)
    constant = ca.measure(ca.Attention(scaling.OnCosines(scaling.Constant())), whole, ["self_weight"], sample_rows=60)
    assert first["self_weight"].value > 1.1 * constant["self_weight"].value


def test_arrays_of_a_single_layer_are_no_batch():
    n, d = 30, 4
    x = oracles.gaussian_tokens(7, n, d, 0.3)
    table = np.random.default_rng(8).standard_normal((n, n))
    found = ca.measure(ca.Attention(InverseTemperature(2.0), Bias(table)), x, ["self_weight", "gradient_norm"])
    units = x / np.linalg.norm(x, axis=1, keepdims=True)
    masses = np.exp(2.0 * units @ units.T + table)
    assert found["self_weight"].value == pytest.approx((np.diag(masses) / masses.sum(axis=1)).mean(), rel=1e-12)
    by_row = ca.measure(ca.Attention(ca.LogN(np.linspace(0, 2, n))), x, ["entropy"])["entropy"].value
    assert by_row == pytest.approx(dense(x, np.linspace(0, 2, n) * np.log(n))["entropy"], rel=1e-12)
    # a leading axis of 1 is that of a batch of one layer
    single = ca.measure(ca.Attention(ca.LogN(np.array([1.2]))), x, ["entropy"])["entropy"].value
    assert single == pytest.approx(dense(x, 1.2 * np.log(n))["entropy"], rel=1e-12)


def test_layers_that_are_no_single_layer_are_one_line():
    x = oracles.gaussian_tokens(7, 30, 4, 0.3)
    with pytest.raises(DomainError, match=r"beta: has shape \(3,\) for 30 rows"):
        ca.measure(ca.Attention(ca.LogN(np.ones(3))), x, ["entropy"])
    with pytest.raises(DomainError, match="is no pytree"):
        ca.measure(ca.Attention(lambda logits, context: logits), x, ["entropy"])


def test_an_array_may_be_shared_by_a_batch():
    x, shift = oracles.gaussian_tokens(9, 12, 4, 0.3), np.linspace(-1, 1, 12)
    f = scaling.OnCosines(scaling.Ssa(shift[None]), np.array([1.0, 3.0]))
    together = measure_batch(ca.Attention(f), x, ["entropy"])["entropy"].value
    for value, norm in zip(together, (1.0, 3.0), strict=True):
        beta = norm / np.sqrt(4) * (1 + np.tanh(shift) + 0.5 * np.log(12))
        assert value == pytest.approx(dense(x, beta)["entropy"], rel=1e-12)
