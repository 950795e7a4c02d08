"""Facts of model families with additive biases: heads, slopes, the order of scale and bias, the dtype path."""

import difflib
from dataclasses import dataclass

from critattn.errors import SpecError

HF = "huggingface/transformers"
BERT = "public copies of bert_layers.py"


@dataclass(frozen=True)
class Family:
    """How a named model makes its biases.

    Attributes:
        name: name on the command line.
        heads: number of heads.
        head_dim: dimension d of a head.
        bias_max: B, the exponent of the last slope.
        rule: rule of the slopes, of `critattn.biases.RULES`.
        form: "+m j" (absolute positions), "m (j - (N - 1))" (from the newest key) or "-m |i - j|".
        scaled_bias: the bias is multiplied by 1/sqrt(d) with the scores, so that the slope at work is m/sqrt(d).
        two_sided: keys on both sides of the query are seen.
        recipe: how the biases are rounded, of `critattn.blindness.RECIPES`.
        dtype_path: the types in which they are computed.
        trained_length: length of the training contexts.
        source: where form, order and types are read.
        unverified: what is known from secondary texts only.
    """

    name: str
    heads: int
    head_dim: int
    bias_max: float
    rule: str
    form: str
    scaled_bias: bool
    two_sided: bool
    recipe: str
    dtype_path: str
    trained_length: int
    source: str
    unverified: tuple[str, ...] = ("heads", "head_dim", "trained_length")

    @property
    def scale(self) -> float:
        """What multiplies the bias: 1/sqrt(d) where it is scaled with the scores, else 1."""
        return self.head_dim**-0.5 if self.scaled_bias else 1.0


def _bloom(name: str, heads: int, head_dim: int) -> Family:
    path = "slopes and product in float32, cast to the model's format; baddbmm in that format; softmax in float32"
    source = f"{HF} src/transformers/models/bloom/modeling_bloom.py build_alibi_tensor"
    return Family(name, heads, head_dim, 8.0, "press", "+m j", False, False, "bloom", path, 2048, source)


def _falcon(name: str, heads: int) -> Family:
    path = "slopes cast to bfloat16 times integer positions, whatever the model's dtype; the sum times 1/sqrt(d)"
    source = f"{HF} src/transformers/models/falcon/modeling_falcon.py build_alibi_tensor"
    return Family(name, heads, 64, 8.0, "press", "+m j", True, False, "falcon", path, 2048, source)


def _mpt(name: str, shape: tuple[int, int], bias_max: float, trained_length: int) -> Family:
    path = "integers times float32 slopes, cast to the dtype of the bias; the same vector for every row"
    source = f"{HF} src/transformers/models/mpt/modeling_mpt.py; mosaicml/llm-foundry attention.py, issue 172"
    form = "m (j - (N - 1))"
    return Family(name, *shape, bias_max, "mpt", form, False, False, "mpt", path, trained_length, source)


def _encoder(name: str, trained_length: int, source: str) -> Family:
    path = "the full symmetric matrix in float32, cast where it is used"
    return Family(name, 12, 64, 8.0, "press", "-m |i - j|", False, True, "relative", path, trained_length, source)


FAMILIES = {
    one.name: one
    for one in (
        _bloom("bloom-560m", 16, 64),
        _bloom("bloom-1b1", 16, 96),
        _bloom("bloom-1b7", 16, 128),
        _bloom("bloom-3b", 32, 80),
        _bloom("bloom-7b1", 32, 128),
        _bloom("bloom-176b", 112, 128),
        _falcon("falcon-rw-1b", 32),
        _falcon("falcon-rw-7b", 64),
        _mpt("mpt-7b", (32, 128), 8.0, 2048),
        _mpt("mpt-7b-storywriter", (32, 128), 16.0, 65536),
        _mpt("mpt-30b", (64, 112), 8.0, 8192),
        Family(
            "baichuan-13b",
            40,
            128,
            8.0,
            "press",
            "+m j",
            False,
            False,
            "absolute",
            "mask in float32, cast to the type of the scores",
            4096,
            "public copies of modeling_baichuan.py",
        ),
        _encoder("jina-v2", 512, BERT),
        _encoder("mosaicbert", 128, BERT),
        _encoder("dnabert-2", 128, BERT),
    )
}


def get(name: str) -> Family:
    """The facts of a named model.

    Raises:
        SpecError: for an unknown name, with the closest one and all that are known.
    """
    given = name.strip().lower()
    if given not in FAMILIES:
        close = difflib.get_close_matches(given, FAMILIES, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise SpecError(f"model {name[:40]!r} is unknown; {hint}known: {', '.join(FAMILIES)}")
    return FAMILIES[given]


def names() -> tuple[str, ...]:
    """Names of the models."""
    return tuple(FAMILIES)
