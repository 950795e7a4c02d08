"""Writers of small files of weights, and what every refusal has to look like."""

import collections
import io
import json
import pickle
import sys
import tracemalloc
import types
import zipfile

import gguf
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from critattn.errors import SpecError
from critattn.models import torch_pickle
from critattn.models.sources import open_source

RNG = np.random.default_rng(5)
MATRIX = RNG.normal(size=(6, 64)).astype(np.float32)
VECTOR = RNG.normal(size=5).astype(np.float32)


def refuse(path, *parts, error=SpecError, read=None):
    with pytest.raises(error) as caught:
        read_one(path, read)
    check_message(caught.value)
    for part in parts:
        assert part in str(caught.value)


def read_one(path, name=None):
    source = open_source(path)
    return source.read(name or next(iter(source.tensors)))


def check_message(error):
    assert str(error).isprintable()
    assert len(str(error)) < 500


def written(path, data):
    path.write_bytes(data)
    return path


def sharded(folder, weight_map, **shards):
    for name, arrays in shards.items():
        save_file(arrays, folder / f"{name}.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
    return index


def write_gguf(path, arrays, fields=(), alignment=32):
    writer = gguf.GGUFWriter(path, "llama")
    if alignment != 32:
        writer.add_custom_alignment(alignment)
    for add, key, value in fields:
        getattr(writer, add)(key, value)
    for name, (array, kind) in arrays.items():
        raw = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, gguf.quantize(array, raw), raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


FIELDS = [
    ("add_uint8", "u8", 200),
    ("add_int8", "i8", -3),
    ("add_uint16", "u16", 65535),
    ("add_int16", "i16", -30000),
    ("add_uint32", "u32", 2**32 - 1),
    ("add_int32", "i32", -(2**31)),
    ("add_uint64", "u64", 2**64 - 1),
    ("add_int64", "i64", -(2**63)),
    ("add_float32", "f32", 0.25),
    ("add_float64", "f64", 0.1),
    ("add_bool", "yes", True),
    ("add_string", "words", "Füße\nand more"),
    ("add_array", "tokens", ["Ġthe", "", "\u4e2d"]),
    ("add_array", "types", [1, 2, 3]),
    ("add_array", "scores", [0.5, -2.0]),
    ("add_array", "flags", [True, False]),
]


class Tensor:
    """Pickles as torch's tensors do."""

    def __init__(self, array, kind="FloatStorage", offset=0, storage=None, parameter=False):
        self.array, self.kind, self.offset, self.parameter = array, kind, offset, parameter
        self.storage = np.ascontiguousarray(array).ravel() if storage is None else storage

    def __reduce__(self):
        utils = sys.modules["torch._utils"]
        strides = tuple(stride // self.array.itemsize for stride in self.array.strides)
        arguments = (Storage(self), self.offset, self.array.shape, strides, False, collections.OrderedDict())
        if not self.parameter:
            return utils._rebuild_tensor_v2, arguments
        inner = Tensor(self.array, self.kind, self.offset, self.storage)
        return utils._rebuild_parameter, (inner, True, collections.OrderedDict())


class Storage:
    def __init__(self, tensor):
        self.tensor = tensor


def torch_writer(monkeypatch):
    """A writer of torch's zip files with Python's own pickler, and no torch."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for kind in torch_pickle.STORAGES:
        setattr(torch, kind, type(kind, (), {"__module__": "torch"}))
    for name in ("_rebuild_tensor_v2", "_rebuild_parameter"):
        function = types.FunctionType((lambda *arguments: None).__code__, {"__name__": "torch._utils"}, name)
        function.__module__, function.__qualname__ = "torch._utils", name
        setattr(utils, name, function)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)

    def save(path, state, protocol=2):
        keys = {}

        class Writer(pickle.Pickler):
            def persistent_id(self, thing):
                if not isinstance(thing, Storage):
                    return None
                tensor = thing.tensor
                key = keys.setdefault(id(tensor.storage), (str(len(keys)), tensor.storage))[0]
                return ("storage", getattr(torch, tensor.kind), key, "cuda:0", tensor.storage.size)

        stream = io.BytesIO()
        Writer(stream, protocol).dump(state)
        return archive(path, stream.getvalue(), {key: storage.tobytes() for key, storage in keys.values()})

    return save


def archive(path, pickled, storages=None, root="archive", method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as made:
        made.writestr(f"{root}/data.pkl", pickled)
        made.writestr(f"{root}/byteorder", b"little")
        for key, data in (storages or {}).items():
            made.writestr(f"{root}/data/{key}", data)
        made.writestr(f"{root}/version", b"3\n")
    return path


def a_state():
    shared = RNG.normal(size=30).astype(np.float32)
    transposed = shared[6:18].reshape(3, 4).T
    return collections.OrderedDict(
        {
            "double": Tensor(MATRIX.astype(np.float64), "DoubleStorage"),
            "float": Tensor(MATRIX),
            "half": Tensor(MATRIX.astype(np.float16), "HalfStorage"),
            "bfloat": Tensor(MATRIX.astype(ml_dtypes.bfloat16), "BFloat16Storage"),
            "ids": Tensor(np.arange(4), "LongStorage"),
            "tied": Tensor(shared[:5], storage=shared),
            "end": Tensor(shared[18:].reshape(2, 2, 3), offset=18, storage=shared),
            "turned": Tensor(transposed, offset=6, storage=shared),
            "parameter": Tensor(VECTOR, parameter=True),
            "scalar": Tensor(np.array(2.5, np.float32)),
            "none": Tensor(np.zeros((0, 3), np.float32)),
            "step": 7,
        }
    )


def peak_of(function):
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
