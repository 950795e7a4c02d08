"""Logarithms of the weights of any normaliser, from which every statistic of a row of softmax can be read."""

import dataclasses

import jax.numpy as jnp

from critattn.normalisers import FirstStage, Power, ReluPower, Sigmoid, SigmoidL1
from critattn.normalisers.rows import per_row, prepare
from critattn.protocols import Array, Normaliser, RowContext


def log_weights(normaliser: Normaliser, logits: Array, context: RowContext, where: Array) -> Array:
    """`log A_j` up to a constant of the row, without underflow of A, in the dtype of the logits.

    Of softmax the logits; of phi over its sum, log phi; of a power `y^p`, p log y, which stays finite where y^p
    underflows. Weights of a free sum count as shares of it.

    Args:
        normaliser: any.
        logits: (..., rows, keys), in nats.
        context: of the rows.
        where: booleans (rows, keys), the keys that can be seen.

    Returns:
        (..., rows, keys); -inf where a weight is 0.

    Source: [derived, docs/theory.md (16.10)].
    """
    if isinstance(normaliser, Sigmoid):
        normaliser = SigmoidL1(normaliser.bias_factor)
    if isinstance(normaliser, ReluPower | Power):
        plain = dataclasses.replace(normaliser, p=1.0)(logits, context, where=where)
        return per_row(normaliser.p, plain) * jnp.log(plain)
    if isinstance(normaliser, FirstStage):
        s, there = prepare(logits, where)
        return jnp.where(there, normaliser.log_phi(s, context), -jnp.inf).astype(logits.dtype)
    return jnp.log(normaliser(logits, context, where=where))
