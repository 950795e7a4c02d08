# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Beyond the training length
#
# A language model is trained on windows of $T$ bytes and then asked to read $16\,T$. Three papers say what should
# happen: softmax with rotary positions gets worse and worse [arXiv 2501.13428, arXiv 2608.03994], a re-weighting
# $\mathrm{ReLU}^p$ with a high power holds, so does a bias that falls with the distance, and scores that grow with
# $\log n$ keep a head on its side of the transition [arXiv 2510.05554]. Here are decoders small enough to check: bytes
# of Python's own library, a few layers, $T\approx100$.
#
# The results of twelve attentions at several seeds each come with the package, with the weights of some. Everything
# below is read off them, and the last section trains one more.

# %%
import dataclasses
import math

import jax.numpy as jnp
import numpy as np

from critattn import plotting
from critattn.models import texts
from critattn.protocols import precision
from critattn.training import (
    batches,
    collected,
    corpus,
    evaluation,
    experiments,
    inspected,
    loop,
    ranking,
    results,
    validation,
    variants,
)
from critattn.training.heads import read as heads_of
from critattn.training.presets import Preset, Shape

study = experiments.experiment("length_extrapolation")
found = collected.records(study, experiments.RECORDED)
names = [one.name for one in study.variants]
sizes = study.preset.shape
print(f"{len(found)} runs of {len(names)} variants: {sizes.layers} layers, width {sizes.width}, ", end="")
print(f"{sizes.heads} heads, T = {sizes.length} bytes")

# %% [markdown]
# ## 1. Loss against length
#
# Every length scores *the same bytes*: held-out text in blocks of $16\,T$, cut into windows of $T$, $2T$, ... . More
# context can only help a model that knows how to use it. A uniform guess costs $\log 256=5.5$ nats a byte; a model that
# knows no more than how frequent bytes are pays their entropy.

# %%
table = results.table(found)
losses = {name: {row.at: row for row in table if (row.variant, row.quantity) == (name, "loss")} for name in names}
multiples = sorted(next(iter(losses.values())))
ordered = sorted(names, key=lambda name: losses[name][multiples[-1]].mean)
library = corpus.load()
print(f"bytes that know no context: {corpus.unigram_entropy(library.held_out):.2f} nats each")
print(f"{'nats a byte at':18s}", *(f"{multiple:>5d} T" for multiple in multiples))
for name in ordered:
    print(f"{name:18s}", *(f"{losses[name][multiple].mean:7.3f}" for multiple in multiples))


@plotting.styled
def against_length(chosen):
    """Loss of each variant over the length, with intervals where there are seeds."""
    figure, axes = plotting.canvas(height=2.8)
    panel = axes[0, 0]
    for name in chosen:
        rows = [losses[name][multiple] for multiple in multiples]
        (line,) = panel.plot(multiples, [row.mean for row in rows], marker="o", ms=3, lw=1, label=name)
        if all(row.low is not None for row in rows):
            panel.fill_between(
                multiples, [row.low for row in rows], [row.high for row in rows], color=line.get_color(), alpha=0.15
            )
    panel.set(xlabel="length over the training length", ylabel="loss, nats a byte", xscale="log")
    panel.set_xticks(multiples, [str(multiple) for multiple in multiples])
    panel.minorticks_off()
    panel.legend(fontsize=6)
    return figure


against_length(ordered[:4] + ordered[-4:] if len(ordered) > 8 else ordered)

# %% [markdown]
# Which of the published orderings are there? A difference smaller than the interval over seeds is no ordering at all.

# %%
CLAIMS = (
    ("re-weighting with p = 15 beats softmax at 8 T", "lssar-p15", "softmax-rope"),
    ("p = 15 beats p = 3 there", "lssar-p15", "lssar-p3"),
    ("softplus alone beats softmax there", "lssa", "softmax-rope"),
    ("ALiBi beats rotary positions there", "softmax-alibi", "softmax-rope"),
    ("log distance beats ALiBi there", "alibi-log", "softmax-alibi"),
    ("log n on cosines beats softmax there", "cosine-logn-high", "softmax-rope"),
)
for words, better, worse in CLAIMS:
    one, other = (losses[name][8] for name in (better, worse))
    verdict = "yes" if one.mean < other.mean else "NO"
    sure = "intervals apart" if one.high < other.low or other.high < one.low else "intervals overlap"
    print(f"{words}: {verdict} ({one.mean:.2f} against {other.mean:.2f}, {sure})")

# %% [markdown]
# All of it at once: Spearman's correlation between a published column and ours. With six attentions its interval is
# wide; it says how much the choice of these six decides.

# %%
for one in ranking.rankings(collected.dataset(study, found)):
    value, low, high, _ = one.correlation
    if value is not None:
        print(f"{one.published.source}, {one.published.place:12s} {value:5.2f} [{low:.2f}, {high:.2f}]", end="")
        print(f", {len(one.here)} attentions, {one.same} of {one.pairs} pairs in that order")

# %% [markdown]
# ## 2. Where the heads sit
#
# A head is *localised* where a row puts half of its weight on one key. What decides is not the same in every layer:
# under softmax the factor on the scores, in units of $\log n$ on cosines $\gamma$; under $\mathrm{ReLU}^p$ the power
# $p$, in which $\gamma$ drops out (docs/theory.md, section 12). So each head has a **critical** $\gamma$ or $p$ of its
# own: leave its cosines and its bias as they are and turn that one number until the mean of the largest weight is
# $1/2$.


# %%
def weights_of(name):
    """The weights of a variant at seed 0; None where they do not come with the package."""
    place = experiments.RECORDED / study.preset.name / f"{name}-seed0.npz"
    return inspected.load(place) if place.exists() else None


(text,) = texts.texts(("topics",))
points = {}
for name in names:
    model = weights_of(name)
    if model is None:
        continue
    sequences = texts.excerpts(lambda given: np.frombuffer(given.encode(), np.uint8), text, model.shape.length, 3)
    points[name] = validation.read_heads(model, [one.astype(np.int32) for one in sequences])
    heads = points[name]
    local = np.mean([one.largest > 0.5 for one in heads])
    middle = np.median([one.measured for one in heads])
    now = np.median([one.value for one in heads])
    print(
        f"{name:18s} {heads[0].control:5s} = {now:6.2f}, critical {middle:6.2f} (medians); localised heads: {local:.0%}"
    )

# %% [markdown]
# Those are heads of one seed, read on one text. The heads of all seeds come with the package as tables. The median of
# *own over critical*, layer by layer: above 1, most heads of the layer are localised. Plain softmax is free to choose
# its scale. Where does it end?

# %%
for name in names:
    runs = [run for run in study.runs(experiments.RECORDED) if run.variant.name == name]
    kept = [line.point for run in runs for line in heads_of(run) if line.point.measured > 0]
    ratios = [[one.value / one.measured for one in kept if one.layer == layer] for layer in range(sizes.layers)]
    print(f"{name:18s} {len(kept)} heads; own over critical:", *(f"{np.median(each):5.2f}" for each in ratios))

# %% [markdown]
# And the theory? It knows tokens with one common cosine $\rho$, queries that *are* their keys, and rows that look at
# themselves. Trained heads are none of that. A prediction is called favourable where its median error and most of the
# heads are within 25 %.

# %%
for name, heads in points.items():
    for one in validation.agreement(heads):
        error = "no root" if math.isnan(one.agreement.median) else f"median error {one.agreement.median:+.0%}"
        print(
            f"{name:18s} {one.prediction:18s} {error:22s} right side for {one.sides:4.0%} of heads: "
            f"{'favourable' if one.agreement.favourable else 'not favourable'}"
        )

# %% [markdown]
# ## 3. Does a head below the threshold stop learning?
#
# Below $\gamma_c=1/(1-\rho)$ the rows are nearly uniform, and the Jacobian of the layer vanishes with $n$. Does the
# gradient of the matrices that make queries and keys? Two gammas on cosines were trained at the same seeds: $\gamma=1$,
# below for every $\rho>0$, and $\log32=3.47$.

# %%
collapse = validation.gradient_collapse(found)
for row in collapse.rows:
    print(f"gamma = {row.gamma:4.2f}: {row.share:6.1%} of the gradient is of queries and keys, loss {row.loss:.2f}")
print(f"ratio {collapse.ratio:.2f}, 95 %: {collapse.low:.2f} to {collapse.high:.2f}; ", end="")
print(f"in proportion to gamma it would be {collapse.proportional:.2f}; ", end="")
print({True: "collapsed", False: "no collapse", None: "undecided"}[collapse.collapsed])

# %% [markdown]
# ## 4. Blind heads
#
# ALiBi subtracts $m\,d$. Once that exceeds 87 nats the weight is exactly zero in float32 (104 where small numbers are
# not flushed), and so is every gradient through it. With 4 heads the steepest slope is $2^{-2}$: blind from
# $d=350$ on, which a training window of 128 never sees, but a window of $16\,T$ does. Explicit slopes put the
# blindness distances at 2, 13, 81 and 512 bytes: that first head learns from two bytes, whatever the length.

# %%
for name in ("softmax-alibi", "alibi-e"):
    model = weights_of(name)
    for multiple in (1, 4, 16):
        n = multiple * model.shape.length
        tokens = np.frombuffer(text.content.encode(), np.uint8)[:n].astype(np.int32)
        blind = validation.blind_heads(model, [tokens], number_formats=["fp32"])
        flushed = [one for one in blind if one.underflow == "flushed" and one.layer == 0]
        shares = ", ".join(f"{one.share:.0%} ({one.predicted_share:.0%})" for one in flushed)
        print(f"{name:13s} n = {n:4d}: blind pairs of the heads of layer 0 (by the slope alone): {shares}")

# %% [markdown]
# ## 5. Run one again
#
# A run is a function of its variant, sizes, seed and text. Here are the first thirty steps of a recorded one, beside
# the means over ten steps that its record holds. Equal up to rounding, if this Python has the same sources; the whole
# run is `critattn train lssar-p15 --small`, four minutes.

# %%
record = next(one for one in found if one["config"]["variant"]["name"] == "lssar-p15" and not one["config"]["seed"])
with precision("float32"):
    trainable = loop.start(variants.named("lssar-p15"), study.preset, 0).trainable
    step, seen = loop.compiled_step(study.preset), []
    for number in range(30):
        trainable, heard = step(trainable, jnp.asarray(batches.batch(library, study.preset, 0, number)))
        seen.append(float(heard["loss"]))
print("the same text" if library.sha256 == record["config"]["corpus"] else "ANOTHER text than the record's")
print("recorded:", *(f"{loss:.4f}" for loss in record["curves"]["loss"][:3]))
print("again:   ", *(f"{np.mean(seen[begin : begin + 10]):.4f}" for begin in (0, 10, 20)))

# %% [markdown]
# ## 6. Change one thing
#
# Twice the same run has twice the same numbers, bit for bit; one thing changed, and the difference is its doing. Sizes
# that take seconds:

# %%
tiny = Preset("tiny", Shape(layers=1, width=32, heads=2, hidden=48, length=32), 120, 16, 4e-3, 5, eval_blocks=4)
mine = variants.named("softmax-alibi")
first = loop.train(mine, tiny, library)
again = loop.train(mine, tiny, library)
assert np.array_equal(first.curves["loss"], again.curves["loss"])
changed = loop.train(dataclasses.replace(mine, name="mine", log_distance=True), tiny, library)
for name, run in (("linear distance", first), ("log distance", changed)):
    beyond = evaluation.length_losses(run.model, library.held_out, count=tiny.eval_blocks)
    print(f"{name:16s} loss {run.curves['loss'][:10].mean():.2f} -> {run.curves['loss'][-10:].mean():.2f};", end=" ")
    print("at 1, 2, 4, 8, 16 T:", *(f"{one.window:.2f}" for one in beyond))

# %% [markdown]
# **To try.** (a) `critattn inspect trained:lssar-p15`: every head, with the theory beside it. (b) Another power:
# `variants.softplus_family("mine", "softplus-l1", 6.0)`. Where does the loss at $16\,T$ turn? (c) Train `alibi-e`,
# whose first head is blind beyond two bytes. What can it still learn?
