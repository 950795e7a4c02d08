# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Blind heads
#
# An attention weight is an exponential of a gap: how far a key's logit lies below the best of its row. Numbers in a
# computer end somewhere, so an exponential of a large gap is *exactly* zero. Such a key gives no value, and, since its
# weight is a factor of every derivative, gets no gradient: the head is blind there, and cannot learn to look. ALiBi
# [arXiv 2108.12409] subtracts $m\,(i-j)$ from the logit, so every one of its heads is blind from some distance on. From
# which? A paper answers with one number for each model [arXiv 2608.03994]. This lesson takes the number apart.
#
# ## 1. Where an exponential ends

# %%
import math

import numpy as np

import critattn as ca
from critattn import biases, blindness, formats, plotting

thresholds = {name: formats.get(name).thresholds() for name in ("fp32", "bf16", "fp16", "e4m3")}
for name, found in thresholds.items():
    print(f"{name:5s} normal {found.normal:9.3f}   subnormal {found.subnormal:9.3f}   zero {found.zero:9.3f}")

# %% [markdown]
# Three candidates a format, in nats: below `normal` the result has fewer digits, at `subnormal` it is the smallest
# number there is, at `zero` it rounds to nothing, $\tau_0=(e-p)\ln 2$. In bf16 they are 5.5 nats apart, and in fp16
# almost 8. Which one counts? Not the format decides but the program: one that *flushes* subnormals loses them all.

# %%
measured = [one for library in ("numpy", "jax") for one in formats.measure_backend(library, ("fp32", "bf16", "fp16"))]
for one in measured:
    if one.operation in ("exp", "softmax"):
        print(f"{one.backend:6s}{one.operation:8s}{one.format:5s} first zero {one.first_zero:10.4f}  class {one.kind}")
assert all(one.kind in ("zero", "normal", "own") for one in measured if one.first_zero is not None)

# %% [markdown]
# So "the threshold of bf16" does not exist. `critattn formats` measures it for the libraries on your machine.
#
# ## 2. From a threshold to a distance
#
# With equal scores the weight of a key at distance $\delta$ has the numerator $e^{-m\delta}$, and it is zero from
# $\delta=\lceil -\tau/m\rceil$ on. BLOOM-560m has 16 heads with slopes $2^{-1/2},2^{-1},\dots,2^{-8}$:

# %%
slopes = biases.alibi_slopes(16)
heads = biases.Alibi(slopes)
published = blindness.blindness_distance(heads, thresholds["bf16"].normal, convention="rounded")
kept = blindness.blindness_distance(heads, thresholds["bf16"].zero)
print("published convention:", published[0], "to", published[-1])
print("where bf16 rounds to zero:", kept[0], "to", kept[-1])
assert (published[0], published[-1]) == (124, 22358)
assert (kept[0], kept[-1]) == (132, 23778)

# %% [markdown]
# The published 124 and 22,358 belong to the onset of subnormals, rounded to the nearest whole number; a program that
# keeps subnormals sees 132 and 23,778. Neither is wrong: they answer different questions. `critattn blindness --errata`
# lists every published figure with the convention that gives it.

# %% [markdown]
# ## 3. How much is lost?
#
# Blindness sounds terrible. How much *weight* do the invisible keys hold?

# %%
for name, found in thresholds.items():
    distance = blindness.blindness_distance(biases.Alibi(slopes[0]), found.zero)[0]
    print(f"{name:5s} blind from {distance:4.0f}: mass {blindness.flushed_mass(slopes[0], distance):.1e}")
lost = blindness.flushed_mass(slopes[0], 132)
assert lost < 1e-40

# %% [markdown]
# In bf16, $10^{-41}$: nothing that any sum could notice. Long before a weight is zero it is *absorbed*: it cannot
# change a sum of size one. What remains of blindness in wide formats is the gradient that is exactly zero. In fp16 and
# in eight bits the mass itself is real.
#
# ## 4. The larger effect
#
# Many programs add $+m\,j$ in place of $-m\,(i-j)$: the difference is $m\,i$, the same for the whole row, and softmax
# does not see it. In exact arithmetic. In bf16, with eight significant bits, $m\,j$ is rounded at the size of the
# *position*; $m\,(i-j)$ at the size of the *distance*, where it matters least.

# %%
lengths = [2**power for power in range(7, 15)]


def error(recipe, length, slope=slopes[0]):
    """Total variation between the last row with bf16 biases and the exact row."""
    return blindness.position_error(slope, length, "bf16", recipe=recipe).total_variation


curves = {recipe: [error(recipe, length) for length in lengths] for recipe in ("absolute", "relative")}
assert 0.38 < curves["absolute"][lengths.index(2048)] < 0.39
assert max(curves["relative"]) < 1e-3


@plotting.styled
def compare(curves):
    """Both forms against the length."""
    figure, axes = plotting.canvas(height=2.4)
    panel = axes[0, 0]
    names = {"absolute": "$+mj$", "relative": "$-m(i-j)$"}
    for look, (recipe, values) in zip(plotting.categories(2), curves.items(), strict=True):
        panel.plot(lengths, values, color=look.color, ls=look.dashes, marker=look.marker, label=names[recipe])
    panel.set(xscale="log", yscale="log", xlabel="length $N$ (tokens)", ylabel=r"$\mathrm{TV}$ of the last row")
    panel.legend(title="bias in bf16")
    return figure


compare(curves)

# %% [markdown]
# At 2,048 tokens the steepest head puts 39 % of its weight in the wrong places: keys fall into groups whose biases are
# the same number. That is forty orders of magnitude more than what underflow takes, and it is cured by writing the same
# formula the other way round.
#
# The real layer agrees. Here it is with the bias rounded to bf16 in both forms, on equal scores:

# %%
length = 1024


def last_row(form, fmt):
    """Weights of the last row of a causal layer on equal scores."""
    layer = ca.Attention(ca.Alibi(slopes[0], form=form, format=fmt), mask=ca.Causal())
    scores = np.zeros((length, length), np.float32)
    context = ca.RowContext(np.arange(length), np.arange(length), np.arange(length) + 1, length, 64)
    return np.asarray(ca.attention_weights(layer, scores, context))[-1].astype(float)


exact = last_row("relative", None)
for form, recipe in (("absolute", "absolute"), ("relative", "relative")):
    simulated = 0.5 * np.abs(last_row(form, "bf16") - exact).sum()
    print(f"{form}: layer {simulated:.4f}, formula {error(recipe, length):.4f}")
    assert math.isclose(simulated, error(recipe, length), rel_tol=0.01, abs_tol=1e-5)

# %% [markdown]
# ## 5. What a mitigation certifies
#
# "Clamp the bias at -87 and nothing underflows": true for numerators, $e^{-87}$ is a normal number by .34 nats. Then
# the row is divided by its sum.

# %%
flushing = thresholds["bf16"].normal
clamped = biases.Clamp(biases.Alibi(slopes[0]), -87.0)
before = blindness.certify(clamped, flushing, 32768, normalised=False)
after = blindness.certify(clamped, flushing, 32768)
print("numerators:", before.verdict, "| weights:", after.verdict)
assert before.verdict == "visible everywhere"
assert after.verdict == "blind somewhere"

# %%
suggested = blindness.certify(biases.Alibi(slopes[0]), flushing, 32768, spread=10.0)
print(f"safe for logits within 10 nats of each other: clamp at {suggested.safe_clamp:.2f}")
assert blindness.certify(blindness.safe_bias(heads, suggested), flushing, 32768, spread=10.0).verdict.startswith("vis")

# %% [markdown]
# The safe clamp leaves room for the logits, $G=10$ nats, and for the sum, $\ln N$.
#
# ## 6. Scaling by log n makes blind, too
#
# Log-n scaling, $\beta=\gamma\log n$, keeps attention sharp; a key that is $g$ worse than the best has the weight ratio
# $n^{-\gamma g}$. It is invisible from $n=e^{|\tau|/(\gamma g)}$ on:

# %%
for gap in (1, 2, 4, 8):
    row = [blindness.blind_length(gap, thresholds[name].zero) for name in ("bf16", "fp16")]
    print(f"gap {gap}: bf16 from n = {row[0]:.3g}, fp16 from n = {row[1]:.3g}")

# %% [markdown]
# **To try.** (a) Falcon multiplies scores *and* bias by $1/\sqrt{d}$: what becomes of 124? (`critattn blindness --model
# falcon-rw-7b --published`.) (b) From which length on do all 16 heads have a blind key in fp16? (c) Replace the linear
# bias by `biases.LogDistance(slopes)`. Why is the distance of its steepest head a number with 58 digits, and why does
# that not mean that the head sees so far?
