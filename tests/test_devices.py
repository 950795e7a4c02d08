"""Work divided among local devices gives what one device gives; no array is n x n."""

import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import critattn as ca
from critattn import kernels, observables, streaming
from critattn.gradient import frobenius
from critattn.measurement import DEFAULT, batch
from critattn.protocols import precision
from critattn.tokens import Tokens

# every pass: rows, outputs, pairs (whole and sampled), gradient, row roots, streams; sizes that 4 does not divide
PROGRAM = """
import json
import jax
import numpy as np
import critattn as ca
from critattn.thresholds import row_half_weights
from critattn.tokens import random_scores, stream_near_simplex

found = {"devices": jax.local_device_count()}
tokens = ca.near_simplex(3, 1099, 7, rho=0.4)
layer = ca.Attention(ca.LogN(np.array([0.0, 1.3, 2.5])))
causal = ca.Attention(ca.LogN(np.array([0.7, 1.9])), mask=ca.Causal())


def note(name, estimates):
    for key, estimate in estimates.items():
        found[f"{name}.{key}"] = estimate.value.tolist()
        if estimate.standard_error is not None:
            found[f"{name}.{key}.se"] = estimate.standard_error.tolist()


note("whole", ca.measure_batch(layer, tokens, identity_weight=0.3, memory_bytes=1 << 20))
stream = stream_near_simplex(5, 23_001, 6, rho=0.2)
names = ["self_weight", "entropy", "participation_ratio", "largest_weight", "output_cosine", "angle_ratio"]
note("stream", ca.measure_batch(layer, stream, names, sample_rows=37))
note("causal", ca.measure_batch(causal, tokens))
note("sample", ca.measure_batch(layer, tokens, sample_rows=101))
note("probes", ca.measure_batch(layer, tokens, ["gradient_norm"], probes=4))
note("scores", ca.measure_batch(layer, random_scores(1, 517, rho=0.1, tau=0.3), ["self_weight", "entropy"]))
found["roots"] = row_half_weights(tokens).tolist()
print(json.dumps(found))
"""


def run_on(devices):
    flags = f"--xla_force_host_platform_device_count={devices}"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.slow
def test_four_devices_agree_with_one():
    one, four = run_on(1), run_on(4)
    assert (one.pop("devices"), four.pop("devices")) == (1, 4)
    assert one.keys() == four.keys()
    assert len(one) > 40
    different = 0
    for name, values in one.items():
        scale = np.nanmax(np.abs(values))
        np.testing.assert_allclose(four[name], values, rtol=1e-12, atol=1e-12 * scale, err_msg=name)
        different += four[name] != values
    # sums in another order: equality to the bit throughout would mean that nothing was divided
    assert different


def wide(jaxpr, n):
    """Shapes with two axes of n or more, anywhere in a program."""
    found = []
    for equation in jaxpr.eqns:
        for out in equation.outvars:
            shape = getattr(out.aval, "shape", ())
            if sum(size >= n for size in shape) > 1:
                found.append((equation.primitive.name, shape))
        for inner in jax.tree_util.tree_leaves(
            list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")
        ):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                found += wide(inner, n)
    return found


def passes(n, d=16):
    """The programs of a measurement of n tokens, by name."""
    with precision("float32"):
        vectors, positions = np.zeros((n, d), np.float32), jnp.arange(n)
        layers = batch(ca.Attention(ca.LogN(jnp.ones(3))), 3)
        chosen = {
            need: tuple(o for o in observables.select(DEFAULT) if o.needs == need)
            for need in ("weights", "outputs", "pairs")
        }
        rows = ca.attention.block_rows(n, 4)
        yield (
            "rows",
            jax.make_jaxpr(
                lambda x, p: kernels.row_pass(layers, Tokens(x), p, chosen=chosen["weights"], rows=rows, outputs=True)
            )(vectors, positions),
        )
        yield (
            "pairs",
            jax.make_jaxpr(
                lambda x, y: kernels.output_pass(
                    x, y, (0.5, 1.0), chosen=(chosen["outputs"], chosen["pairs"]), whole=True
                )
            )(vectors, np.zeros((3, n, d), np.float32)),
        )
        yield (
            "gradient",
            jax.make_jaxpr(
                lambda x, p: frobenius._profiles(
                    layers, x, p, (0.5, 1.0), None, rows=rows, probes=None, columns=64, kept=10**8, devices=1
                )
            )(vectors, positions),
        )
        stream = ca.stream_near_simplex(0, n, d, rho=0.3)
        yield (
            "stream",
            jax.make_jaxpr(
                lambda own: streaming.stream_pass(layers, stream, own, jnp.arange(64), chosen=chosen["weights"])
            )(vectors[:64]),
        )


@pytest.mark.parametrize("name", ["rows", "pairs", "gradient", "stream"])
def test_no_array_is_n_by_n(name):
    n = 5000
    program = dict(passes(n))[name]
    assert wide(program.jaxpr, n // 2) == []
    dense = jax.make_jaxpr(lambda x: jax.nn.softmax(x @ x.T) @ x)(np.zeros((n, 4)))
    assert wide(dense.jaxpr, n // 2)
