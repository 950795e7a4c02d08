"""Where each trained head stands against its own transition, in gamma or in p, and where theory puts it."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from critattn.attention import Attention
from critattn.errors import SpecError
from critattn.models import forward
from critattn.models.own_weights import log_weights
from critattn.models.sensitivity import effective_rho
from critattn.models.views import LayerView
from critattn.normalisers import Power, ReluPower
from critattn.protocols import Array, RowContext, precision
from critattn.training import predicted
from critattn.training.heads import HeadPoint
from critattn.training.inspected import Trained
from critattn.training.predicted import Scores

Values = NDArray[np.float64]
# factors of the control parameter at which a crossing is looked for, before it is bisected
GRID = np.geomspace(1e-3, 1e4, 71)
HALVINGS = 36
LEAST_ROWS = 4


class Read(NamedTuple):
    """What is read of the heads of one layer.

    Attributes:
        scores: q.k of the last rows, (sequences, heads, rows, keys).
        norms: |q||k|, likewise.
        rho_keys: mean cosine of two keys, (sequences, heads).
    """

    scores: np.ndarray
    norms: np.ndarray
    rho_keys: np.ndarray


def read_heads(model: Trained, sequences: Sequence[np.ndarray], *, rows: int = 16) -> tuple[HeadPoint, ...]:
    """Every head of a trained decoder against its own transition.

    Args:
        model: the decoder.
        sequences: bytes (n,) each, of one length.
        rows: query rows at the end of each sequence.

    Returns:
        One point a layer and head.

    Raises:
        SpecError: for sequences of different lengths, or fewer than 4 rows.
    """
    lengths = {len(one) for one in sequences}
    if len(lengths) != 1:
        raise SpecError(f"sequences: have lengths {sorted(lengths)}; allowed: one length")
    n = lengths.pop()
    if not LEAST_ROWS <= rows <= n // 2:
        raise SpecError(f"rows {rows}: allowed: {LEAST_ROWS} to {n // 2}, half of the sequence")
    at = np.arange(n - rows, n)
    found: dict[int, list[Read]] = {}

    def visit(_: int, view: LayerView) -> None:
        found.setdefault(view.index, []).append(_read(view, at))

    forward.run(model, sequences, visit=visit)
    points = []
    for layer, read in sorted(found.items()):
        parts = Read(*(np.stack(part).astype(np.float64) for part in zip(*read, strict=True)))
        points += head_points(model.attention, layer, parts, model.config.head_dim)
    return tuple(points)


def _read(view: LayerView, rows: np.ndarray) -> Read:
    q, k = (np.asarray(part, np.float64) for part in (view.queries, view.keys))
    lengths = np.linalg.norm(q, axis=-1)[:, rows, None] * np.linalg.norm(k, axis=-1)[:, None, :]
    scale = np.asarray(view.settings.scale, np.float64)
    return Read(np.asarray(view.scores(rows)), lengths * scale, effective_rho(k).raw)


def head_points(attention: Attention, layer: int, read: Read, dim: int) -> list[HeadPoint]:
    """The heads of one layer against their transitions.

    Args:
        attention: the causal layer; its first transform is the scaling law.
        layer: its number.
        read: scores of the last rows, float64.
        dim: d, channels of a head.
    """
    with precision("float64"):
        return _head_points(attention, layer, read, dim)


def _head_points(attention: Attention, layer: int, read: Read, dim: int) -> list[HeadPoint]:
    scores, norms, rho_keys = read
    n, count = scores.shape[-1], scores.shape[-2]
    rows = np.arange(n - count, n)
    context = attention.context(jnp.asarray(rows), n, dim)
    where = np.arange(n)[None, :] <= rows[:, None]
    # a query or key of length 0 has no direction
    cosines = np.where(where & (norms > 0), scores / np.where(norms > 0, norms, 1), 0)
    scaled, logits, own = (np.asarray(one) for one in _logits(attention, jnp.asarray(scores), context))
    scaled = np.where(where, scaled, 0) / np.log(rows + 1.0)[:, None]
    squares = np.sum(cosines**2, axis=(0, 2, 3))
    gammas = np.sum(scaled * cosines, axis=(0, 2, 3)) / np.where(squares > 0, squares, 1)
    control = _control(attention, gammas)
    turned = own if control.layer is None else jnp.asarray(scores)
    crossings, now = _crossings(control.layer, jnp.asarray(turned), context, jnp.asarray(where))
    measured, measured_own = predicted.at_factors(control.own, np.asarray(crossings))
    largest, own_weight = now

    def logits_at(factors: Values) -> Values:
        return np.asarray(_scaled_logits(attention, jnp.asarray(scores), context, jnp.asarray(factors)))

    alone = len(attention.transforms) == 1
    stack = Scores(context, cosines, logits, where, gammas, None if alone else logits_at)
    made = predicted.predictions(attention.normaliser, stack, dim)
    angles = predicted.angles(stack)
    return [
        HeadPoint(
            layer,
            head,
            n,
            control.name,
            value=float(control.own[head]),
            rho=float(angles.rho[head]),
            own=float(angles.own[head]),
            top=float(angles.top[head]),
            rho_keys=float(rho_keys[:, head].mean()),
            largest=float(largest[head]),
            own_weight=float(own_weight[head]),
            measured=float(measured[head]),
            measured_own=float(measured_own[head]),
            predicted={name: float(values[head]) for name, values in made.items()},
        )
        for head in range(len(gammas))
    ]


@jax.jit
def _logits(attention: Attention, scores: Array, context: RowContext) -> tuple[Array, Array, Array]:
    """Scores under the scaling law alone, logits, and logarithms of the weights."""
    logits = attention.logits(scores, context)
    where = context.key_positions[None, :] <= context.query_positions[:, None]
    law: Any = attention.transforms[0]
    return law(scores, context), logits, log_weights(attention.normaliser, logits, context, where)


@jax.jit
def _scaled_logits(attention: Attention, scores: Array, context: RowContext, factors: Array) -> Array:
    """Logits where the scores are multiplied by factors (heads,), before cap and bias."""
    return attention.logits(factors[:, None, None] * scores, context)


class _Control(NamedTuple):
    """A control parameter: its name, its value in each head, and the layer whose scores it multiplies.

    Without a layer it multiplies the logarithms of the weights.
    """

    name: str
    own: Values
    layer: Attention | None


def _control(attention: Attention, gammas: Values) -> _Control:
    """The exponent of powers, else gamma."""
    if isinstance(attention.normaliser, ReluPower | Power):
        return _Control("p", np.full(len(gammas), float(attention.normaliser.p)), None)
    return _Control("gamma", gammas, attention)


@jax.jit
def _crossings(
    layer: Attention | None, own: Array, context: RowContext, where: Array
) -> tuple[Array, tuple[Array, Array]]:
    """(2, heads) least factors at which the largest and the own weight are 1/2, and both weights at the factor 1.

    A factor is 0 where the weight is above 1/2 at once, and infinite where it never is.

    Args:
        layer: of the scores; None where factors multiply the logarithms of the weights.
        own: these scores or logarithms, (sequences, heads, rows, keys).
        context: of the rows.
        where: (rows, keys), keys that a row sees.
    """
    heads = own.shape[1]
    both = partial(_shares, layer, own, context, where)
    grid = jnp.asarray(GRID)
    table = jax.lax.map(lambda factor: jnp.stack(both(jnp.full(heads, factor))), grid)
    above = table >= 0.5
    first = jnp.argmax(above, axis=0)

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = jnp.sqrt(low * high)
        up = jnp.stack([both(middle[which])[which] for which in (0, 1)]) >= 0.5
        return jnp.where(up, low, middle), jnp.where(up, middle, high)

    low, high = jax.lax.fori_loop(0, HALVINGS, halve, (grid[jnp.maximum(first - 1, 0)], grid[first]))
    found = jnp.where(first == 0, 0.0, jnp.sqrt(low * high))
    return jnp.where(jnp.any(above, axis=0), found, jnp.inf), both(jnp.ones(heads))


def _shares(
    layer: Attention | None, own: Array, context: RowContext, where: Array, factors: Array
) -> tuple[Array, Array]:
    """Means over rows of the largest and of the own weight, (heads,) each, at factors (heads,)."""
    logs = factors[:, None, None] * own
    if layer is not None:
        logs = log_weights(layer.normaliser, layer.logits(logs, context), context, where)
    logs = jnp.where(where & ~jnp.isneginf(own), logs, -jnp.inf)
    masses = jnp.exp(logs - jnp.max(logs, axis=-1, keepdims=True))
    total = jnp.sum(masses, axis=-1)
    places = context.query_positions[:, None]
    mine = jnp.take_along_axis(masses, jnp.broadcast_to(places, (*masses.shape[:-1], 1)), axis=-1)[..., 0]
    return jnp.mean(1 / total, axis=(0, 2)), jnp.mean(mine / total, axis=(0, 2))
