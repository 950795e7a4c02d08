# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Which normalisers localise?
#
# Softmax is one way to turn scores into weights: exponentiate, divide by the sum. A recent proposal says that the
# exponential does not matter, only the division does, and replaces it by softplus, $\mathrm{sp}(z)=\log(1+e^z)$,
# scaled by $\log d\,\log n$; a second step then raises what exceeds the row's mean to a power $p$ [Gao 2025, arXiv
# 2501.13428]. Does the choice matter? Put the question to tokens of known geometry:

# %%
import math

import numpy as np

import critattn as ca
from critattn import plotting

rho, d = 0.3, 64
steep = ca.LogN(math.log(d))  # the published scale: beta = log d log n
tokens = ca.near_simplex(0, 1024, d, rho=rho, fix_common=True)


def self_weight(normaliser, scale=steep, of=tokens, **how):
    """Mean weight that a token gives to itself."""
    return ca.measure(ca.Attention(scale, normaliser=normaliser), of, ["self_weight"], **how)["self_weight"].value


first_look = {
    "softmax": self_weight(ca.Softmax()),
    "softplus": self_weight(ca.SoftplusL1()),
    "softplus, p = 3": self_weight(ca.ReluPower(3.0)),
    "softplus, p = 15": self_weight(ca.ReluPower(15.0)),
}
assert first_look["softmax"] > 0.99
assert first_look["softplus"] < 0.01
first_look

# %% [markdown]
# The same scores and the same scale: softmax attends to itself, softplus to everybody, and the power $p$ decides in the
# third case. The rest of this lesson says why, and where the borders are.
#
# ## 1. Why softplus over its sum never localises
#
# On a simplex a token scores $1$ on itself and $\rho$ on $n-1$ others. Whatever function $\phi$ makes the weights,
#
# $$A_{ii} = \frac{\phi(\beta)}{\phi(\beta) + (n-1)\,\phi(\beta\rho)}\,,\qquad
# A_{ii}=\tfrac12 \iff \frac{\phi(\beta)}{\phi(\beta\rho)} = n-1 .$$
#
# For the exponential the ratio is $e^{\beta(1-\rho)}$: a large enough $\beta$ beats any $n$. For softplus, which is
# $\mathrm{sp}(z)\approx z$ at large $z$, it never exceeds $1/\rho$. Steeper scores do not help: **one score is at most
# $1/\rho$ times the others, and there are $n-1$ of them.** So $n A_{ii}\to 1/\rho$ at every scale.

# %%
n = 256
simplex = ca.simplex(n, n, rho=rho)
for gamma in (0.5, 4.0, 30.0, 1000.0):
    simulated = self_weight(ca.SoftplusL1(), ca.LogN(gamma), simplex)
    assert abs(simulated - ca.theory.softplus.self_weight(gamma, rho, math.log(n))) < 1e-12
    assert n * simulated < 1 / rho
assert math.isnan(ca.theory.softplus.half_weight_gamma(rho, math.log(n)))  # no gamma gives weight 1/2
n * simulated, 1 / rho

# %% [markdown]
# It follows that the entropy of a softplus row stays close to that of the uniform row,
# $n(\log n - H)\to\frac1\rho\log\frac1\rho-(\frac1\rho-1)$, a constant. "The entropy keeps pace with $\log n$" is true,
# and means that the layer averages.

# %%
entropy = ca.measure(ca.Attention(steep, normaliser=ca.SoftplusL1()), simplex, ["entropy"])["entropy"].value
deficit = n * (math.log(n) - entropy)
limit = ca.theory.softplus.entropy_deficit_limit(rho)
assert abs(deficit - ca.theory.softplus.scaled_entropy_deficit(math.log(d), rho, math.log(n))) < 1e-8
assert abs(deficit / limit - 1) < 0.05
deficit, limit

# %% [markdown]
# A bias repairs it. With $\mathrm{sp}(\beta(s-b))$ and $\rho<b\le 1$ the others sit on the exponential flank of
# softplus and only the own score on the straight one; the transition is back, near $\gamma=1/(b-\rho)$ for large $n$.

# %%
bias = 0.5


def shifted(gamma):
    return ca.Attention(ca.Shift(bias), ca.LogN(gamma), normaliser=ca.SoftplusL1())


measured = ca.half_weight(simplex, layer=shifted).critical
exact = ca.theory.softplus.half_weight_gamma(rho, math.log(n), bias=bias)
assert abs(measured - exact) < 1e-6
measured, exact

# %% [markdown]
# ## 2. Why a power of the excess does
#
# Re-weighting takes $y_j = (n a_j - 1)_+$, what a weight exceeds the row's mean by, and returns $y_j^p/\sum_k y_k^p$.
# On the simplex the mean lies above the $n-1$ equal weights and below the own one. All others are cut to zero, and
# the layer is the identity at **every** $p>0$ and every scale:

# %%
for p in (0.1, 3.0, 15.0):
    assert abs(self_weight(ca.ReluPower(p), of=simplex) - 1) < 1e-12

# %% [markdown]
# That is a trap of the symmetric case. Near the simplex scores scatter around $\rho$; about half of them lie above the
# mean and survive. With $\sigma$ their spread and $\mathrm{SNR}=(1-\rho)/\sigma$, each survivor counts about
# $(g/\mathrm{SNR})^p$ with $g$ Gaussian. A contest again, $n$ of them against $\mathrm{SNR}^p$, and it is decided by
# **$p$ against $\log n$**; the scale $\gamma$ has dropped out:

# %%
at_scales = [self_weight(ca.ReluPower(3.0), ca.LogN(gamma)) for gamma in (2.0, 4.0, 8.0, 16.0)]
assert max(at_scales) - min(at_scales) < 0.02
at_scales

# %% [markdown]
# Where is the border? Find the $p$ at which the measured mean self weight is $1/2$, on these tokens, and hold it
# against three formulas: the leading term $\log n/\log\mathrm{SNR}$, Gaussian scores, and the average over the
# geometry of the tokens (docs/theory.md, 12.9). The last one is heuristic too, yet within 2 %.


# %%
def critical_p(of, **how):
    def curve(p):
        layer = ca.Attention(steep, normaliser=ca.ReluPower(p))
        return ca.measure(layer, of, ["self_weight"], **how)["self_weight"]

    return ca.find_crossing(curve, bracket=(1.0, 12.0), parameter="p", tolerance=1e-4).critical


theory = ca.theory.relu_power
log_n = math.log(1024)
borders = {
    "measured": critical_p(tokens),
    "log n / log SNR": log_n / math.log(theory.signal_to_noise(rho, d)),
    "Gaussian scores": theory.critical_p_gaussian(rho, log_n, d),
    "average over the geometry": theory.critical_p(rho, log_n, d),
}
assert abs(borders["average over the geometry"] / borders["measured"] - 1) < 0.02
assert borders["Gaussian scores"] > 1.02 * borders["measured"]
borders

# %% [markdown]
# The leading term looks good here by accident: its error changes sign, from +23 % at $d=n=256$ to -31 % at $d=16$,
# $n=4096$.
#
# ## 3. What p = 3 and p = 15 mean
#
# Published are $p=3$, found best at 1,024 tokens, and $p=15$, found best beyond. Put both on the map at $n=1024$ and
# $n=8192$ (512 sampled rows there; each row still sees all keys):

# %%
long_tokens = ca.near_simplex(1, 8192, d, rho=rho, fix_common=True)
sampled = {"sample_rows": 512, "dtype": "float32"}
powers = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 11.0, 15.0])
curves = {
    size: [self_weight(ca.ReluPower(p), of=where, **how) for p in powers]
    for size, where, how in ((1024, tokens, {}), (8192, long_tokens, sampled))
}
for size, curve in curves.items():
    assert np.allclose(curve, theory.self_weight(powers, rho, math.log(size), d), atol=0.03)
at_three, at_fifteen = ({size: curve[index] for size, curve in curves.items()} for index in (2, 8))
assert 0.2 < at_three[1024] < 0.5
assert at_three[8192] < 0.1
assert min(at_fifteen.values()) > 0.999
at_three, at_fifteen


# %%
@plotting.styled
def show_powers():
    figure, axes = plotting.canvas(height=2.6)
    panel, fine = axes[0, 0], np.linspace(1, 15, 29)
    for look, (size, curve) in zip(plotting.sequence(len(curves)), curves.items(), strict=True):
        expected = theory.self_weight(fine, rho, math.log(size), d)
        panel.plot(fine, expected, color=look.color, ls=look.dashes)
        panel.plot(powers, curve, look.marker, color=look.color, label=f"$n$ = {size:,}")
    for published in (3, 15):
        panel.axvline(published, color=plotting.THEORY, lw=0.6, ls=":")
    panel.set(xlabel="exponent $p$", ylabel=plotting.label("self_weight"))
    panel.legend(loc="center right")
    return figure


show_powers()

# %% [markdown]
# * $p=3$ at $n=1024$ stands **on the slope**: a third of the weight on the token itself, the rest on its neighbours.
#   The layer mixes and still tells tokens apart.
# * $p=3$ at $n=8192$ is **diffuse**: the border has moved to $p\approx5$, and the layer averages again. It moves with
#   $\log n$, so a fixed $p$ is a fixed context length.
# * $p=15$ is **past the border at both**: every token attends to its largest score alone.
#
# That agrees with the published preference, and is no proof of it: scores of trained heads are not these scores. It
# also has a price. Where one key survives, its weight is 1 whatever the scores do, and no gradient reaches them. On
# the simplex the identity is exact, and with it the frozen layer:

# %%
frozen = ca.measure(ca.Attention(steep, normaliser=ca.ReluPower(15.0)), ca.simplex(32, 32, rho=rho), ["gradient_norm"])
without_scores = ca.measure(
    ca.Attention(steep, normaliser=ca.Hardmax()), ca.simplex(32, 32, rho=rho), ["gradient_norm"]
)
assert abs(frozen["gradient_norm"].value - without_scores["gradient_norm"].value) < 1e-12
frozen["gradient_norm"].value, without_scores["gradient_norm"].value

# %% [markdown]
# How long may a context be at a given $p$? For one sharp score in Gaussian noise, $n$ up to $1+\mathrm{SNR}^p/\mu_p$
# with $\mu_p=E\,g_+^p$. To raise $p$ helps up to about $\log n$ only; beyond, the largest noise decides, and it grows
# with the same $p$.

# %%
longest = {p: 1 + math.exp(p * math.log(8.0) - ca.theory.needle.log_half_moment(p)) for p in (2.0, 3.0, 4.0, 6.0)}
assert all(longest[a] < longest[b] for a, b in ((2.0, 3.0), (3.0, 4.0), (4.0, 6.0)))
longest

# %% [markdown]
# A last warning, on $x^{15}$. In float16 it overflows from $x=2.1$ and is zero below $0.31$. The package raises
# ratios to the largest excess instead, which neither overflows nor loses the maximum.

# %%
low, high = theory.usable_excess(15.0, "float16")
assert abs(high - 2.0946) < 1e-3
assert abs(low - 0.3150) < 1e-3
low, high

# %% [markdown]
# ## What to take along
#
# * Dividing by the sum is not enough. What counts is $\log\phi(\beta)-\log\phi(\beta\rho)$: if it is bounded, as for
#   softplus, ReLU and the sigmoid, no scale localises.
# * A power of the excess localises, in $p$ against $\log n$. The border for your $n$ and $d$:
#   `ca.theory.relu_power.critical_p(rho, log_n, d)`.
# * All normalisers on one page: `critattn figures family`.
