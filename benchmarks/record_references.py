"""Record what the packaged models give in torch: `python benchmarks/record_references.py`, a few minutes on two cores.

Writes critattn/models/references.json, which the fidelity gates hold loaded models against. Needs torch, transformers,
accelerate and gguf, and the three packages of `critattn models`. No reader or forward pass of critattn takes part, only
its texts: transformers reads the weights and computes, the hidden states of MiniLM in float64.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from critattn.models import installed, texts
from critattn.models.fidelity import ANTIBODY, EVERY, REFERENCES, SENTENCES, checksum, digest

LENGTHS = (128, 1024)
WINDOWS = 16
PLACES = 8


def main() -> None:
    """Compute the three references and write them."""
    made = {"torch": torch.__version__, "transformers": transformers.__version__}
    models = ",\n".join(json.dumps(one) for one in (smollm2(), minilm(), antiberty()))
    REFERENCES.write_text(f'{{"made_with": {json.dumps(made)}, "models": [\n{models}\n]}}\n', encoding="utf-8")
    log(f"wrote {REFERENCES}")


def smollm2() -> dict[str, Any]:
    """Mean loss per token in nats over the first T tokens of Python's topics, and its spread over other windows."""
    file = installed.find("smollm2")
    where = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    model = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32).eval()
    tokens = transformers.AutoTokenizer.from_pretrained(**where)(texts.texts(["topics"])[0].content)["input_ids"]
    sequence = np.asarray(tokens, dtype=np.int32)
    lengths = {}
    for length in LENGTHS:
        first = sequence[:length]
        losses = [loss(model, window) for window in texts.windows(sequence, length, WINDOWS if length < 512 else 4)]
        lengths[str(length)] = {
            "tokens": digest(first),
            "nats": loss(model, first),
            "deviation": float(np.std(losses, ddof=1)),
        }
    return {"model": "smollm2", **identity(file), "kind": "perplexity", "lengths": lengths}


def loss(model: Any, tokens: np.ndarray) -> float:
    """Mean over the n - 1 predicted tokens of minus the log of their probability."""
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens.astype(np.int64))[None]).logits[0, :-1].double()
    chosen = torch.log_softmax(logits, -1)[torch.arange(len(tokens) - 1), torch.from_numpy(tokens[1:].astype(np.int64))]
    return -float(chosen.mean())


def minilm() -> dict[str, Any]:
    """Entries of the last hidden state in float64, at places spread over positions and coordinates."""
    folder = installed.find("minilm")
    model = transformers.BertModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float64).eval()
    encode = transformers.AutoTokenizer.from_pretrained(folder)
    found = []
    for sentence in SENTENCES:
        tokens = encode(sentence)["input_ids"]
        with torch.no_grad():
            state = model(torch.tensor([tokens])).last_hidden_state[0].numpy()
        places = [(k * (len(tokens) - 1) // (PLACES - 1), 7 + 47 * k) for k in range(PLACES)]
        found.append({"tokens": tokens, "places": places, "values": [float(np.float32(state[at])) for at in places]})
    return {"model": "minilm", **identity(folder / "model.safetensors"), "kind": "state", "sentences": found}


def antiberty() -> dict[str, Any]:
    """How many hidden amino acids of an antibody are guessed, one hidden at a time."""
    folder = installed.find("antiberty")
    config = transformers.BertConfig.from_pretrained(folder)
    model = transformers.BertForMaskedLM(config).eval()
    weights = torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
    absent, extra = model.load_state_dict(weights, strict=False)
    log(f"antiberty: absent {absent}, left over {extra}")
    names = (folder.parent / "vocab.txt").read_text(encoding="utf-8").split()
    tokens = torch.tensor([names.index("[CLS]"), *map(names.index, texts.PROTEINS[ANTIBODY]), names.index("[SEP]")])
    places = list(range(1, len(tokens) - 1, EVERY))
    hidden = tokens.repeat(len(places), 1)
    hidden[range(len(places)), places] = names.index("[MASK]")
    with torch.no_grad():
        logits = model(hidden).logits[range(len(places)), places]
    hits = int((logits.argmax(-1) == tokens[places]).sum())
    two = logits.topk(2, -1).values
    log(
        f"antiberty: {hits} of {len(places)}; smallest lead of a first guess {float((two[:, 0] - two[:, 1]).min()):.3f}"
    )
    return {
        "model": "antiberty",
        **identity(folder / "pytorch_model.bin"),
        "kind": "masked",
        "positions": len(places),
        "hits": hits,
    }


def identity(file: Path) -> dict[str, Any]:
    """Size and checksum of the weights."""
    return {"bytes": file.stat().st_size, "sha256": checksum(file)}


def log(line: str) -> None:
    """A line for the person who waits."""
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    main()
