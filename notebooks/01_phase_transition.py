# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # A phase transition in attention
#
# Attention with a fixed temperature blurs as the context grows: a softmax over $n$ scores spreads over ever more
# competitors. Several long-context models therefore multiply the scores by something that grows like $\log n$. How fast
# is fast enough? Too slow, and every token becomes the average of all tokens. Too fast, and every token sees only
# itself. In between there is a transition, and it can be computed.
#
# Five lines from tokens to a threshold:

# %%
import critattn as ca

tokens = ca.near_simplex(0, 512, 64, rho=0.5, fix_common=True)  # 512 tokens in 64 dimensions, common cosine 1/2
layer = ca.Attention(ca.LogN(1.2))  # softmax(beta * cosines), beta = 1.2 log n
before = ca.measure(layer, tokens)["self_weight"].value  # mean weight that a token gives to itself
threshold = ca.half_weight(tokens)  # the gamma at which that mean is 1/2
before, threshold.critical

# %% [markdown]
# ## 1. The half-weight point, by hand
#
# Take the cleanest tokens there are: a simplex, $n$ unit vectors any two of which have the same cosine $\rho$. A token
# scores $1$ on itself and $\rho$ on each of the $n-1$ others. With $\beta = \gamma\log n$ the weight on itself is
#
# $$A_{ii} = \frac{e^{\beta}}{e^{\beta} + (n-1)\,e^{\beta\rho}} = \frac{1}{1 + (n-1)\,n^{-\gamma(1-\rho)}} .$$
#
# It is a contest: the self score is ahead by a factor $n^{\gamma(1-\rho)}$, but $n-1$ others stand against it. They
# balance, $A_{ii} = 1/2$, where $n^{\gamma(1-\rho)} = n-1$, that is at
#
# $$\gamma_{1/2} = \frac{\log(n-1)}{(1-\rho)\log n} \;\longrightarrow\; \frac{1}{1-\rho} .$$
#
# This is the critical scaling of [Chen 2025, arXiv 2510.05554]. Simulation and formula agree to rounding:

# %%
import math

rho, n = 0.5, 512
by_hand = math.log(n - 1) / ((1 - rho) * math.log(n))
by_theory = ca.theory.simplex.half_weight_gamma(rho, math.log(n))
by_simulation = ca.half_weight(ca.simplex(n, n, rho=rho)).critical
assert abs(by_hand - by_theory) < 1e-12
assert abs(by_hand - by_simulation) < 1e-9
by_hand, by_theory, by_simulation

# %% [markdown]
# ## 2. See it, and see it sharpen slowly
#
# Points are simulations of the whole layer, lines the closed form above.

# %%
import numpy as np

from critattn import plotting

gammas = np.linspace(0, 4, 17)
sizes = (16, 64, 256)


def self_weights(tokens):
    """Mean self weight on the same tokens at every gamma, in one call."""
    return ca.measure_batch(ca.Attention(ca.LogN(gammas)), tokens, ["self_weight"])["self_weight"].value


@plotting.styled
def show_transition():
    figure, axes = plotting.canvas(height=2.6)
    fine = np.linspace(0, 4, 200)
    for look, size in zip(plotting.sequence(len(sizes)), sizes, strict=True):
        closed_form = ca.theory.simplex.self_weight(fine, rho, np.log(size))
        axes[0, 0].plot(fine, closed_form, color=look.color, ls=look.dashes)
        simulated = self_weights(ca.simplex(size, size, rho=rho))
        axes[0, 0].plot(gammas, simulated, look.marker, color=look.color, label=f"$n$ = {size}")
        at_points = ca.theory.simplex.self_weight(gammas, rho, np.log(size))
        assert np.allclose(simulated, at_points, atol=1e-12)
    axes[0, 0].axvline(1 / (1 - rho), color=plotting.THEORY, lw=0.6, ls=":")
    axes[0, 0].set(xlabel=plotting.label("gamma"), ylabel=plotting.label("self_weight"))
    axes[0, 0].legend()
    return figure


show_transition()

# %% [markdown]
# All curves pass through nearly the same point and get steeper with $n$. How much? Write $\gamma = \gamma_c + c/\log n$
# with $\gamma_c = 1/(1-\rho)$. Then $A_{ii} \to 1/(1 + e^{-c(1-\rho)})$: the whole curve is one sigmoid in
# $c = (\gamma-\gamma_c)\log n$. It rises from 10 % to 90 % over
#
# $$\Delta\gamma = \frac{2\log 9}{(1-\rho)\log n} = \frac{4.394}{(1-\rho)\log n} .$$
#
# **The width shrinks as $1/\log n$.** At $n = 65{,}536$ and $\rho = 1/2$ it is still 0.79: no picture at a reachable
# $n$ shows a sharp line. To halve the width you must *square* $n$:

# %%
widths = [ca.theory.simplex.transition_width(rho, np.log(size)) for size in (256, 256**2, 256**4)]
assert np.allclose(np.diff(np.log2(widths)), -1)
assert abs(widths[1] - 0.79) < 0.005
widths

# %% [markdown]
# Measured on the simulation rather than on the formula: find where the self weight is 10 % and 90 %.


# %%
def measured_width(size):
    simplex = ca.simplex(size, size, rho=rho)

    def crossing(level):
        def curve(gamma):
            return ca.measure(ca.Attention(ca.LogN(gamma)), simplex, ["self_weight"])["self_weight"]

        return ca.find_crossing(curve, level=level, bracket=(0.0, 8.0)).critical

    return crossing(0.9) - crossing(0.1)


measured = {size: measured_width(size) for size in (16, 256)}
assert abs(measured[16] / measured[256] - 2) < 1e-6  # log 256 = 2 log 16
measured

# %% [markdown]
# ## 3. The gradient steps as well
#
# Below the transition all tokens move to one point and the layer forgets its input; above it the layer is the identity
# on directions. The mean square of its Jacobian, $\eta = \|\nabla X'\|_F^2/(nd)$, tends to $0$, $(1-1/d)/4$ and $1-1/d$
# below, at and above $\gamma_c$ [Chen 2025, Thm 2.4]: a layer that averages passes no gradient back.

# %%
size = 128
simplex = ca.simplex(size, size, rho=rho)
steps = {}
for gamma in (0.5, 2.0, 6.0):
    measured_norm = ca.measure(ca.Attention(ca.LogN(gamma)), simplex, ["gradient_norm"])["gradient_norm"].value
    exact = ca.theory.simplex.gradient_norm(gamma, rho, np.log(size), log_d=np.log(size))
    assert abs(measured_norm - exact) < 1e-10
    steps[gamma] = (measured_norm, float(ca.theory.simplex.gradient_norm_limit(gamma, rho, log_d=np.log(size))))
steps

# %% [markdown]
# ## 4. Break it: few dimensions
#
# A simplex of $n$ tokens needs $n$ dimensions. Put $n$ random tokens into $d \ll n$ dimensions and their cosines
# scatter around $\rho$ by about $1/\sqrt d$. A few neighbours then score well above $\rho$ and compete harder, so the
# half-weight point moves up. Averages of $e^{\beta\cdot\text{score}}$ over the scatter give its new place
# (docs/theory.md, 4.7):

# %%
dimensions = (4, 8, 16, 32, 64)
sizes = (64, 512)
found, predicted = {}, {}
for size in sizes:
    for d in dimensions:
        draws = [ca.near_simplex(seed, size, d, rho=0.0) for seed in range(2)]
        found[size, d] = np.mean([ca.half_weight(draw).critical for draw in draws])
        predicted[size, d] = ca.theory.finite_dimension.half_weight_gamma(0.0, np.log(size), d)
for d in (32, 64):
    assert abs(found[512, d] / predicted[512, d] - 1) < 0.02
found


# %%
@plotting.styled
def show_dimensions():
    figure, axes = plotting.canvas(height=2.6)
    for look, size in zip(plotting.sequence(len(sizes)), sizes, strict=True):
        axes[0, 0].plot(dimensions, [predicted[size, d] for d in dimensions], color=look.color, ls=look.dashes)
        points = [found[size, d] for d in dimensions]
        axes[0, 0].plot(dimensions, points, look.marker, color=look.color, label=f"$n$ = {size}")
    plotting.log_ticks(axes[0, 0].xaxis, dimensions)
    plotting.log_ticks(axes[0, 0].yaxis, [1, 1.5, 2, 3, 5, 7])
    axes[0, 0].set(xlabel=plotting.label("d"), ylabel=r"half-weight point $\gamma_{1/2}$")
    axes[0, 0].legend()
    return figure


show_dimensions()

# %% [markdown]
# At $d = 64$ the point hardly moves with $n$: $\log n$ scaling works, because $d \gg \log n$. At $d = 4$ it runs away:
# the largest cosine of a token with another one tends to 1 as $n$ grows, and no multiple of $\log n$ keeps up. **At
# fixed $d$ there is no transition at $\beta \sim \log n$**; one needs $\beta \sim n^{2/d}$. The same formula holds both
# regimes:

# %%
at_fixed_d = [ca.theory.finite_dimension.half_weight_gamma(0.0, log_n, 4) for log_n in (5.0, 8.0, 11.0)]
with_room = [ca.theory.finite_dimension.half_weight_gamma(0.0, log_n, 4000) for log_n in (5.0, 8.0, 11.0)]
assert at_fixed_d[2] > 10 * at_fixed_d[0]
assert max(with_room) < 1.01
at_fixed_d, with_room

# %% [markdown]
# ## What to take along
#
# * Attention on tokens of common cosine $\rho$ changes from averaging to self-attending at
#   $\beta = \log n/(1-\rho)$, in a window of relative width $4.4/\log n$.
# * The same point is where gradients stop vanishing.
# * It needs room: $d \gg \log n$. With your own tokens: `ca.half_weight(ca.load("tokens.npy"))`.
