import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import critattn as ca
from critattn import tokens
from critattn.errors import DomainError


@given(n=st.integers(2, 24), extra=st.integers(0, 5), share=st.floats(0, 0.999), norm=st.floats(0.1, 10))
@settings(max_examples=60)
def test_simplex_gram_matrix(n, extra, share, norm):
    lowest = -1 / (n - 1)
    rho = lowest + share * (1 - lowest)
    vectors = np.asarray(tokens.simplex(n, n + extra, rho=rho, norm=norm).vectors)
    gram = norm**2 * ((1 - rho) * np.eye(n) + rho)
    np.testing.assert_allclose(vectors @ vectors.T, gram, atol=1e-14 * n * norm**2)


def test_flat_simplex_needs_one_dimension_less():
    flat = np.asarray(tokens.simplex(5, 4, rho=-0.25).vectors)
    np.testing.assert_allclose(flat @ flat.T, 1.25 * np.eye(5) - 0.25, atol=1e-15)


@pytest.mark.parametrize(
    ("n", "d", "rho", "words"),
    [
        (8, 7, 0.3, "d = 7"),
        (5, 3, -0.25, "needs d >= 4"),
        (8, 8, 1.0, "rho = 1.0"),
        (8, 8, -0.2, "rho = -0.2"),
        (8, 8, float("nan"), "rho = nan"),
        (0, 8, 0.3, "n = 0"),
        (8, 0, 0.3, "d = 0"),
    ],
)
def test_simplex_refuses(n, d, rho, words):
    with pytest.raises(DomainError, match=words):
        tokens.simplex(n, d, rho=rho)


def test_near_simplex_is_the_stated_mixture():
    n, d, rho = 4000, 50, 0.4
    drawn = tokens.near_simplex(3, n, d, rho=rho, unit_norm=False, fix_common=True)
    vectors = np.asarray(drawn.vectors)
    assert vectors.dtype == np.float64
    assert drawn.common_ratio == pytest.approx(1, abs=1e-14)
    # |mean of x|^2 = rho + (1-rho)/n to leading order; the scatter of the cross term is 2 sqrt(rho (1-rho)/(n d))
    mean = vectors.mean(axis=0) @ vectors.mean(axis=0)
    assert abs(mean - rho - (1 - rho) / n) < 4 * 2 * np.sqrt(rho * (1 - rho) / (n * d))
    # |x|^2 has mean 1; each |z_i|^2/d scatters by sqrt(2/d)
    squares = np.sum(vectors**2, axis=1)
    assert abs(squares.mean() - 1) < 4 * squares.std() / np.sqrt(n) + 1e-3


def test_near_simplex_same_tokens_at_any_precision_and_with_more_rows_of_the_same_key():
    first = tokens.near_simplex(7, 1500, 3, rho=0.2)
    with jax.enable_x64(True):
        second = tokens.near_simplex(7, 1500, 3, rho=0.2)
    np.testing.assert_array_equal(first.vectors, second.vectors)
    assert not np.array_equal(first.vectors, tokens.near_simplex(8, 1500, 3, rho=0.2).vectors)


def test_near_simplex_inside_jit_follows_the_trace():
    drawn = jax.jit(lambda key: tokens.near_simplex(key, 10, 4, rho=0.5).vectors)(jax.random.key(1))
    assert drawn.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(drawn, axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("rho", [-0.1, 1.0, float("nan")])
def test_near_simplex_refuses_rho(rho):
    with pytest.raises(DomainError, match="rho"):
        tokens.near_simplex(0, 8, 4, rho=rho)


def test_random_scores_do_not_depend_on_the_block():
    scores = tokens.random_scores(5, 40, rho=0.3, tau=0.2)
    whole = np.asarray(scores.score_rows(np.arange(40)))
    np.testing.assert_array_equal(whole[7:19], scores.score_rows(np.arange(7, 19)))
    np.testing.assert_array_equal(np.diag(whole), 1)
    off = whole[~np.eye(40, dtype=bool)]
    assert abs(off.mean() - 0.3) < 4 * 0.2 / np.sqrt(off.size)
    assert abs(off.std() - 0.2) < 4 * 0.2 / np.sqrt(2 * off.size)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.ones(3), "shape"),
        (np.ones((0, 3)), "shape"),
        (np.array([[1.0, np.nan]]), "row 0"),
        (np.array([[1.0, 1.0], [0.0, 0.0]]), "row 1 is zero"),
        (np.array([["a", "b"]]), "real numbers"),
        (np.ones((2, 2), complex), "real numbers"),
    ],
)
def test_from_array_refuses(array, words):
    with pytest.raises(DomainError, match=words):
        tokens.from_array(array)


def test_load_reads_what_numpy_wrote(tmp_path):
    array = np.random.default_rng(0).standard_normal((6, 3))
    np.save(tmp_path / "x.npy", array)
    np.testing.assert_array_equal(ca.load(tmp_path / "x.npy", rows="2:5").vectors, array[2:5])
