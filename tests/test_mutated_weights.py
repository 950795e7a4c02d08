import collections
import io
import random
import struct
import time
import tracemalloc
import warnings
import zipfile

import numpy as np
import pytest
from safetensors.numpy import save_file
from weight_files import FIELDS, MATRIX, VECTOR, Tensor, a_state, check_message, torch_writer, write_gguf, written

from critattn.errors import CritattnError
from critattn.models.sources import open_source


@pytest.fixture
def torch_save(monkeypatch):
    return torch_writer(monkeypatch)


# ---------------------------------------------------------------- mutations of whole files


SQUARE = np.ascontiguousarray(MATRIX[:4, :4])
EXTREMES = [0, 1, 2**8, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**60, 2**63 - 1, 2**63, 2**64 - 1]


def mutated(data, rng):
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        at = rng.randrange(len(data))
        match rng.randrange(7):
            case 0:
                data[at] = rng.randrange(256)
            case 1:
                data[at] ^= 1 << rng.randrange(8)
            case 2:
                wide = rng.choice(["<Q", "<I", "<H"])
                new = struct.pack(wide, rng.choice(EXTREMES) % 2 ** (8 * struct.calcsize(wide)))
                data[at : at + len(new)] = new
            case 3:
                data = data[:at] if at else data
            case 4:
                del data[at : at + rng.randrange(1, 9)]
            case 5:
                other = rng.randrange(len(data))
                data[at:at] = data[other : other + rng.randrange(1, 65)]
            case 6:
                data[at:at] = rng.randbytes(rng.randrange(1, 9))
        data = data or bytearray(1)
    return bytes(data)


def mutated_numbers(text, rng):
    """JSON with one number or word put in another's place, and the right length in front."""
    tokens = text.replace("[", "[ ").replace("]", " ]").replace(",", " , ").replace("}", " } ").split(" ")
    at = rng.randrange(len(tokens))
    pool = [*tokens, *map(str, EXTREMES), "-1", "1e9", "null", "NaN", '"a"', "{", "]"]
    return " ".join(tokens[:at] + [rng.choice(pool)] + tokens[at + 1 :]).encode()


@pytest.fixture
def seeds(tmp_path, torch_save):
    folder = tmp_path / "seeds"
    folder.mkdir()
    small = {"a": MATRIX[:2], "b.weight": MATRIX[2:4], "c": VECTOR}
    save_file({**small, "d": VECTOR.astype(np.float16)}, folder / "m.safetensors", metadata={"format": "pt"})
    arrays = {"a": (MATRIX[:2], "Q4_1"), "b.weight": (MATRIX[2:4], "Q8_0"), "c": (VECTOR, "F16"), "d": (VECTOR, "F32")}
    write_gguf(folder / "m.gguf", arrays, FIELDS)
    states = {name: Tensor(array) for name, array in small.items()}
    torch_save(folder / "m.bin", collections.OrderedDict(states | {"t": Tensor(SQUARE.T, storage=SQUARE.ravel())}), 2)
    torch_save(folder / "m.pt", {"state_dict": a_state()}, 4)
    files = sorted(folder.iterdir())
    assert all(one_case(file) == "read" for file in files)
    return [(file.suffix, file.read_bytes()) for file in files]


def a_mutation(suffix, data, rng):
    if suffix == ".safetensors" and rng.random() < 0.6:
        (size,) = struct.unpack("<Q", data[:8])
        text = data[8 : 8 + size]
        new = mutated_numbers(text.decode(), rng) if rng.random() < 0.7 else mutated(text, rng)
        return struct.pack("<Q", len(new)) + new + data[8 + size :]
    if suffix in (".bin", ".pt") and rng.random() < 0.7:
        stream = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(stream, "w") as new:
            for member in old.infolist():
                held = old.read(member)
                new.writestr(member.filename, mutated(held, rng) if member.filename.endswith("data.pkl") else held)
        return stream.getvalue()
    return mutated(data, rng)


def fuzz(folder, seeds, count, seed):
    """Outcomes of that many mutated files; anything but success and CritattnError breaks out."""
    rng = random.Random(seed)
    outcomes = collections.Counter()
    for case in range(count):
        suffix, data = seeds[case % len(seeds)]
        path = written(folder / f"m{suffix}", a_mutation(suffix, data, rng))
        outcomes[suffix, one_case(path)] += 1
    return outcomes


def one_case(path):
    tracemalloc.start()
    start = time.perf_counter()
    outcome = "read"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            source = open_source(path)
            for name, info in source.tensors.items():
                if info.dtype[0] != "I":
                    assert source.read(name).shape == info.shape
        except CritattnError as error:
            check_message(error)
            outcome = "refused"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Files of 8 kB take milliseconds and 100 kB; a claim that is believed takes far more of either.
    assert peak < 4e6, path.read_bytes()
    assert time.perf_counter() - start < 5, path.read_bytes()
    return outcome


def test_mutated_files_never_break_out(tmp_path, seeds):
    outcomes = fuzz(tmp_path, seeds, 1000, seed=1)
    for suffix, _ in seeds:
        assert outcomes[suffix, "refused"] > 100
        assert outcomes[suffix, "read"] > 2


@pytest.mark.slow
def test_many_mutated_files_never_break_out(tmp_path, seeds):
    outcomes = fuzz(tmp_path, seeds, 8000, seed=2)
    assert sum(outcomes.values()) == 8000
