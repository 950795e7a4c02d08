"""Forward passes of tiny transformers in plain loops, written from the papers; they share no code with critattn."""

import math

import numpy as np


def gelu(x):
    return np.array([v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in np.ravel(x)]).reshape(np.shape(x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def silu(x):
    return x / (1 + np.exp(-x))


def layer_norm(x, weight, bias, eps):
    out = np.zeros_like(x)
    for i, row in enumerate(x):
        mean = sum(row) / len(row)
        variance = sum((v - mean) ** 2 for v in row) / len(row)
        out[i] = (row - mean) / math.sqrt(variance + eps) * weight + bias
    return out


def rms_norm(x, weight, eps):
    return np.stack([row / math.sqrt(sum(v * v for v in row) / len(row) + eps) * weight for row in x])


def turned(vector, position, theta, dims, neighbours):
    """Pairs of channels as complex numbers, turned by position x theta^(-2c/dims)."""
    out = vector.copy()
    for c in range(dims // 2):
        a, b = (2 * c, 2 * c + 1) if neighbours else (c, c + dims // 2)
        z = complex(vector[a], vector[b]) * np.exp(1j * position * theta ** (-2 * c / dims))
        out[a], out[b] = z.real, z.imag
    return out


def one_head(q, k, v, logit, sees):
    """Rows of `sum_j p_ij v_j`, and the logits, of a head with logit(i, j, q_i.k_j) and sees(i, j)."""
    n = len(q)
    out, logits = np.zeros((n, v.shape[1])), np.full((n, n), -np.inf)
    for i in range(n):
        for j in range(n):
            if sees(i, j):
                logits[i, j] = logit(i, j, sum(q[i] * k[j]))
        p = np.exp(logits[i] - logits[i].max())
        out[i] = sum(p[j] / p.sum() * v[j] for j in range(n))
    return out, logits


def many_heads(heads, group, q, k, v, logit, sees):
    """Outputs (n, heads head_dim) and logits (heads, n, n) of q (n, heads head_dim), k, v (n, kv_heads head_dim)."""
    size = q.shape[1] // heads
    parts = []
    for h in range(heads):
        mine, theirs = slice(h * size, (h + 1) * size), slice(h // group * size, (h // group + 1) * size)
        one = one_head(q[:, mine], k[:, theirs], v[:, theirs], lambda i, j, s, h=h: logit(h, i, j, s), sees)
        parts.append(one)
    return np.concatenate([one[0] for one in parts], axis=1), np.stack([one[1] for one in parts])


def causal(i, j):
    return j <= i


def llama(tensors, config, tokens, *, factor=1.0, neighbours=False):
    """[arXiv 2302.13971]: final states, and the logits of every layer (layers, heads, n, n), -inf where masked."""
    w = {name: array.astype(np.float64) for name, array in tensors.items()}
    heads, kv, size = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    window, cap = config.get("sliding_window"), config.get("attn_logit_softcapping")
    eps, theta = config["rms_norm_eps"], config["rope_theta"]

    def sees(i, j):
        return j <= i and (window is None or i - j < window)

    def logit(h, i, j, score):
        plain = score / math.sqrt(size)
        return factor * (plain if cap is None else cap * math.tanh(plain / cap))

    def rotated(x, count):
        rows = [
            np.concatenate([turned(part, i, theta, size, neighbours) for part in np.split(row, count)])
            for i, row in enumerate(x)
        ]
        return np.stack(rows)

    x, found = w["model.embed_tokens.weight"][tokens], []
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        y = rms_norm(x, w[p + "input_layernorm.weight"], eps)
        q, k, v = (y @ w[f"{p}self_attn.{one}_proj.weight"].T for one in "qkv")
        mixed, logits = many_heads(heads, heads // kv, rotated(q, heads), rotated(k, kv), v, logit, sees)
        found.append(logits)
        x = x + mixed @ w[p + "self_attn.o_proj.weight"].T
        y = rms_norm(x, w[p + "post_attention_layernorm.weight"], eps)
        gate, up = (y @ w[f"{p}mlp.{one}_proj.weight"].T for one in ("gate", "up"))
        x = x + (silu(gate) * up) @ w[p + "mlp.down_proj.weight"].T
    return rms_norm(x, w["model.norm.weight"], eps), np.stack(found)


def gpt2(tensors, config, tokens):
    """GPT-2: matrices (in, out), columns [q k v]."""
    w = {name: array.astype(np.float64) for name, array in tensors.items()}
    heads, eps = config["n_head"], config["layer_norm_epsilon"]
    size, found = config["n_embd"] // heads, []
    x = w["wte.weight"][tokens] + w["wpe.weight"][: len(tokens)]
    for layer in range(config["n_layer"]):
        p = f"h.{layer}."

        def logit(h, i, j, score, layer=layer):
            return score / math.sqrt(size) / (layer + 1)

        y = layer_norm(x, w[p + "ln_1.weight"], w[p + "ln_1.bias"], eps)
        q, k, v = np.split(y @ w[p + "attn.c_attn.weight"] + w[p + "attn.c_attn.bias"], 3, axis=1)
        mixed, logits = many_heads(heads, 1, q, k, v, logit, causal)
        found.append(logits)
        x = x + mixed @ w[p + "attn.c_proj.weight"] + w[p + "attn.c_proj.bias"]
        y = layer_norm(x, w[p + "ln_2.weight"], w[p + "ln_2.bias"], eps)
        y = gelu_tanh(y @ w[p + "mlp.c_fc.weight"] + w[p + "mlp.c_fc.bias"])
        x = x + y @ w[p + "mlp.c_proj.weight"] + w[p + "mlp.c_proj.bias"]
    return layer_norm(x, w["ln_f.weight"], w["ln_f.bias"], eps), np.stack(found)


def bloom(tensors, config, tokens):
    """BLOOM: rows of each head q, k, v in turn; the bias -m (i - j) stands beside q.k/sqrt(d) [arXiv 2211.05100]."""
    w = {name: array.astype(np.float64) for name, array in tensors.items()}
    heads, eps = config["n_head"], config["layer_norm_epsilon"]
    size, found, t = config["n_embed"] // heads, [], "transformer."

    def logit(h, i, j, score):
        return score / math.sqrt(size) - 2 ** (-8 * (h + 1) / heads) * (i - j)

    def norm(x, name):
        return layer_norm(x, w[f"{name}.weight"], w[f"{name}.bias"], eps)

    def linear(x, name):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    x = norm(w[t + "word_embeddings.weight"][tokens], t + "word_embeddings_layernorm")
    for layer in range(config["n_layer"]):
        p = f"{t}h.{layer}."
        fused = linear(norm(x, p + "input_layernorm"), p + "self_attention.query_key_value")
        columns = np.split(fused, 3 * heads, axis=1)
        q, k, v = (np.concatenate(columns[part::3], axis=1) for part in range(3))
        mixed, logits = many_heads(heads, 1, q, k, v, logit, causal)
        found.append(logits)
        x = x + linear(mixed, p + "self_attention.dense")
        y = gelu_tanh(linear(norm(x, p + "post_attention_layernorm"), p + "mlp.dense_h_to_4h"))
        x = x + linear(y, p + "mlp.dense_4h_to_h")
    return norm(x, t + "ln_f"), np.stack(found)


def gpt_neox(tensors, config, tokens):
    """GPT-NeoX: a quarter of the channels turns, attention and MLP read the same stream [arXiv 2204.06745]."""
    w = {name.removeprefix("gpt_neox."): array.astype(np.float64) for name, array in tensors.items()}
    heads, eps = config["num_attention_heads"], config["layer_norm_eps"]
    size, found = config["hidden_size"] // heads, []
    dims = int(size * config["rotary_pct"])

    def norm(x, name):
        return layer_norm(x, w[f"{name}.weight"], w[f"{name}.bias"], eps)

    def linear(x, name):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def rotated(columns):
        rows = [[turned(part, i, config["rotary_emb_base"], dims, False) for part in one] for i, one in columns]
        return np.stack([np.concatenate(row) for row in rows])

    x = w["embed_in.weight"][tokens]
    for layer in range(config["num_hidden_layers"]):
        p = f"layers.{layer}."
        fused = linear(norm(x, p + "input_layernorm"), p + "attention.query_key_value")
        parts = fused.reshape(len(tokens), heads, 3, size)
        q, k = (rotated(enumerate(parts[:, :, part])) for part in range(2))
        v = parts[:, :, 2].reshape(len(tokens), -1)
        mixed, logits = many_heads(heads, 1, q, k, v, lambda h, i, j, s: s / math.sqrt(size), causal)
        found.append(logits)
        y = gelu(linear(norm(x, p + "post_attention_layernorm"), p + "mlp.dense_h_to_4h"))
        x = x + linear(mixed, p + "attention.dense") + linear(y, p + "mlp.dense_4h_to_h")
    return norm(x, "final_layer_norm"), np.stack(found)


def bert(tensors, config, tokens):
    """BERT: norms after the sums, every key seen [arXiv 1810.04805]."""
    w = {name.removeprefix("bert."): array.astype(np.float64) for name, array in tensors.items()}
    heads, eps = config["num_attention_heads"], config["layer_norm_eps"]
    size, found = config["hidden_size"] // heads, []
    new = "embeddings.LayerNorm.weight" in w
    scale, shift = ("weight", "bias") if new else ("gamma", "beta")

    def norm(x, name):
        return layer_norm(x, w[f"{name}.{scale}"], w[f"{name}.{shift}"], eps)

    def linear(x, name):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    e = "embeddings."
    x = w[e + "word_embeddings.weight"][tokens] + w[e + "position_embeddings.weight"][: len(tokens)]
    x = norm(x + w[e + "token_type_embeddings.weight"][0], e + "LayerNorm")
    for layer in range(config["num_hidden_layers"]):
        p = f"encoder.layer.{layer}."
        q, k, v = (linear(x, f"{p}attention.self.{one}") for one in ("query", "key", "value"))
        mixed, logits = many_heads(heads, 1, q, k, v, lambda h, i, j, s: s / math.sqrt(size), lambda i, j: True)
        found.append(logits)
        x = norm(x + linear(mixed, p + "attention.output.dense"), p + "attention.output.LayerNorm")
        x = norm(x + linear(gelu(linear(x, p + "intermediate.dense")), p + "output.dense"), p + "output.LayerNorm")
    return x, np.stack(found)


def next_token_losses(final, head, tokens):
    """`-log softmax(W h_i)[token_(i+1)]`."""
    found = []
    for i in range(len(tokens) - 1):
        logits = [float(row @ final[i]) for row in head.astype(np.float64)]
        top = max(logits)
        found.append(top + math.log(sum(math.exp(one - top) for one in logits)) - logits[tokens[i + 1]])
    return np.array(found)
