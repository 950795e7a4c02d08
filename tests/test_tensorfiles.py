import io
import json
import struct
import tracemalloc
import warnings
import zipfile

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from critattn.errors import CritattnError, DomainError, SpecError
from critattn.tensorfiles import describe, load_array

ARRAY = np.random.default_rng(1).normal(size=(7, 3))


def write(path, array=ARRAY):
    if path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix == ".npz":
        np.savez_compressed(path, tokens=array)
    elif path.suffix == ".csv":
        np.savetxt(path, array, delimiter=",", fmt="%.17g")
    else:
        save_file({"tokens": array}, path)
    return path


def npy(header, payload=b"", version=b"\x01\x00"):
    text = header.encode() + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + payload


def refuse(path, *parts, error=SpecError, **how):
    with pytest.raises(error) as caught:
        load_array(path, **how)
    message = str(caught.value)
    assert "\n" not in message
    assert path.name in message
    assert len(message) < 500
    for part in parts:
        assert part in message


SUFFIXES = [".npy", ".npz", ".csv", ".safetensors"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_gives_the_array(tmp_path, suffix):
    path = write(tmp_path / f"tokens{suffix}")
    assert np.array_equal(load_array(path), ARRAY)
    assert load_array(path).dtype == np.float64
    assert np.array_equal(load_array(path, rows="2:5"), ARRAY[2:5])
    assert np.array_equal(load_array(path, rows=(6, 7)), ARRAY[6:])
    assert [info.shape for info in describe(path)] == [(7, 3)]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("rows", ["5:9", "3:3", "-2:3", "a:b", "3", "1:2:3", (4, 2)])
def test_rows_that_are_not_there(tmp_path, suffix, rows):
    refuse(write(tmp_path / f"tokens{suffix}"), "rows", "allowed", rows=rows)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity(tmp_path, suffix, bad):
    array = ARRAY.copy()
    array[4, 1] = bad
    path = write(tmp_path / f"tokens{suffix}", array)
    refuse(path, "NaN or infinite", "row 4", error=DomainError)
    assert load_array(path, rows="0:4").shape == (4, 3)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors"])
@pytest.mark.parametrize("shape", [(5,), (2, 2, 2), ()])
def test_only_matrices(tmp_path, suffix, shape):
    refuse(write(tmp_path / f"tokens{suffix}", np.ones(shape)), "2-D")


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors"])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_zero_rows_or_columns(tmp_path, suffix, shape):
    refuse(write(tmp_path / f"tokens{suffix}", np.ones(shape)), "at least one row")


@pytest.mark.parametrize("dtype", ["complex128", "S4", "U4", "bool", "M8[s]", "longdouble"])
def test_dtypes_that_are_no_real_numbers(tmp_path, dtype):
    array = np.zeros((2, 2)).astype(dtype)
    refuse(write(tmp_path / "tokens.npy", array), "dtype")
    refuse(write(tmp_path / "tokens.npz", array), "dtype")


def test_pickles_are_not_opened(tmp_path):
    array = np.array([[1, "x"]], dtype=object)
    np.save(tmp_path / "tokens.npy", array, allow_pickle=True)
    refuse(tmp_path / "tokens.npy", "dtype object")
    np.savez(tmp_path / "tokens.npz", a=array)
    refuse(tmp_path / "tokens.npz", "dtype object")


@pytest.mark.parametrize(("dtype", "expected"), [("float32", "float32"), ("int16", "float64"), ("float16", "float32")])
def test_dtypes_on_arrival(tmp_path, dtype, expected):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    found = load_array(write(tmp_path / "tokens.npy", array))
    assert found.dtype == expected
    assert np.array_equal(found, array)


def test_byte_and_memory_order(tmp_path):
    for suffix in (".npy", ".npz"):
        path = write(tmp_path / f"big{suffix}", np.asfortranarray(ARRAY).astype(">f8"))
        assert np.array_equal(load_array(path), ARRAY)
        assert np.array_equal(load_array(path, rows="1:3"), ARRAY[1:3])
        assert load_array(path).dtype.isnative


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_sixteen_bits_become_float32(tmp_path, dtype):
    save_file({"t": ARRAY.astype(dtype)}, tmp_path / "t.safetensors")
    found = load_array(tmp_path / "t.safetensors")
    assert found.dtype == np.float32
    assert np.array_equal(found, ARRAY.astype(dtype).astype(np.float32))


def test_integers_and_bytes_in_safetensors(tmp_path):
    save_file({"ids": np.ones((2, 2), np.int32)}, tmp_path / "t.safetensors")
    refuse(tmp_path / "t.safetensors", "dtype I32", "BF16")


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_choosing_a_tensor(tmp_path, suffix):
    path = tmp_path / f"many{suffix}"
    arrays = {f"layer.{index}": np.full((2, 2), float(index)) for index in range(14)} | {"bias": np.ones(3)}
    save_file(arrays, path) if suffix == ".safetensors" else np.savez(path, **arrays)
    assert load_array(path, tensor="layer.3")[0, 0] == 3
    refuse(path, "14 2-D arrays", "layer.0", "4 more")
    refuse(path, "no tensor 'layer.33'", "layer.3", tensor="layer.33")
    refuse(path, "(3,)", tensor="bias")
    assert len(describe(path)) == 15


def test_the_only_matrix_needs_no_name(tmp_path):
    np.savez(tmp_path / "t.npz", a=ARRAY, b=np.ones(3))
    assert np.array_equal(load_array(tmp_path / "t.npz"), ARRAY)
    refuse(write(tmp_path / "t.npy"), "unnamed", tensor="a")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("1,2\n3\n", ["line 2 has 1 columns", "line 1 has 2"]),
        ("x,y\n1,2\n1,2,3\n", ["line 3 has 3 columns"]),
        ("1,2\n3,word\n", ["word"]),
        ("a,b\nc,d\n", ["could not convert"]),
        ("a,b\n", ["at least one row"]),
        ("\n\n", ["is empty"]),
        ("1;2\n3;4\n", ["3;4"]),
        ("1,\n2,\n", ["could not convert"]),
    ],
)
def test_csv_files_that_are_no_table(tmp_path, text, parts):
    path = tmp_path / "tokens.csv"
    path.write_text(text)
    refuse(path, *parts)


def test_csv_forms(tmp_path):
    path = tmp_path / "tokens.csv"
    path.write_text("\ufeffx,y\r\n1, 2\r\n\r\n3e0,-4\r\n", encoding="utf-8")
    assert load_array(path).tolist() == [[1, 2], [3, -4]]
    assert load_array(path, rows="1:2").tolist() == [[3, -4]]
    path.write_bytes(b"\xff\xfe1,2")
    refuse(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_empty_missing_and_directory(tmp_path, suffix):
    path = tmp_path / f"tokens{suffix}"
    refuse(path, "no such file")
    path.touch()
    refuse(path, "is empty")
    path.unlink()
    path.mkdir()
    refuse(path, "is not a file")


def test_unknown_suffix(tmp_path):
    refuse(tmp_path / "tokens.pt", "'.pt'", ".safetensors")


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 1000000)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -2)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "9" * 4000 + ", 1)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "9" * 6000 + ", 1)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (True, 2)}",
        "{'descr': '<f9', 'fortran_order': False, 'shape': (1, 2)}",
        "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1, 2)}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1, 2)}",
        "{'descr': '<f8', 'fortran_order': False}",
        "[" * 500 + "]" * 500,
        "__import__('os')",
        "",
    ],
)
def test_absurd_npy_headers(tmp_path, header):
    path = tmp_path / "tokens.npy"
    path.write_bytes(npy(header, b"\0" * 16))
    refuse(path)


def test_npy_that_is_cut_or_longer_than_it_says(tmp_path):
    data = write(tmp_path / "good.npy").read_bytes()
    path = tmp_path / "tokens.npy"
    for wrong in (data[:-1], data + b"\0", data[:20], data[:7], b"\x93NUMPY\x07\x00" + data[8:]):
        path.write_bytes(wrong)
        refuse(path)


def safetensors(path, header, payload=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + payload)
    return path


def entry(dtype="F32", shape=(1, 1), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize(
    ("header", "length"),
    [
        ({"a": entry()}, 10**6),
        ({"a": entry()}, 2**63),
        ({"a": entry()}, 0),
        ([1, 2], None),
        (b"{not json", None),
        (b"\xff\xfe", None),
        ({"a": entry("F99")}, None),
        ({"a": entry(shape=(2**40, 2**40))}, None),
        ({"a": entry(shape=(-1, 1))}, None),
        ({"a": entry(offsets=(0, 400))}, None),
        ({"a": entry(offsets=(4, 0))}, None),
        ({"a": entry(), "b": entry()}, None),
        ({"a": entry(shape=(1, 2))}, None),
        ({}, None),
        ({"a": {"dtype": "F32"}}, None),
    ],
)
def test_absurd_safetensors_headers(tmp_path, header, length):
    refuse(safetensors(tmp_path / "t.safetensors", header, b"\0" * 4, length))


def bomb(path, declared_rows, *, real_rows):
    header = io.BytesIO()
    shape = (declared_rows, 1024)
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", header.getvalue() + b"\0" * (real_rows * 8192))
    return path


def test_zip_members_that_lie_about_their_size(tmp_path):
    refuse(bomb(tmp_path / "t.npz", 10**9, real_rows=4), "header declares")
    path = bomb(tmp_path / "u.npz", 4, real_rows=4)
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02") + 24
    data[at : at + 4] = struct.pack("<I", 2**31)
    path.write_bytes(data)
    refuse(path, "more than its compressed data can hold")


def test_zip_with_other_compressions_or_no_arrays(tmp_path):
    path = tmp_path / "t.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.npy", write(tmp_path / "a.npy").read_bytes())
    refuse(path, "compression method")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "text")
    refuse(path, "holds no arrays")


def peak_of(function):
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors"])
def test_only_the_chosen_rows_take_memory(tmp_path, suffix):
    path = write(tmp_path / f"large{suffix}", np.ones((20_000, 100)))
    assert peak_of(lambda: load_array(path, rows="19000:19010")) < 6e6
    assert peak_of(lambda: load_array(path)) > 16e6


CORRUPTION = st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=6)


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=CORRUPTION, cut=st.none() | st.integers(0, 2**16))
def test_corrupted_bytes_never_break_out(tmp_path, suffix, changes, cut):
    data = bytearray(write(tmp_path / f"good{suffix}").read_bytes())
    for at, byte in changes:
        data[at % len(data)] = byte
    path = tmp_path / f"tokens{suffix}"
    path.write_bytes(data if cut is None else data[: cut % len(data)])
    found, messages = [], []

    def read():
        try:
            found.append(load_array(path))
        except CritattnError as error:
            messages.append(str(error))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert peak_of(read) < 100e6
    assert not any("\n" in message for message in messages)
    for array in found:
        assert array.ndim == 2
        assert np.isfinite(array).all()
        # An archive has a checksum: what it still gives is what was stored.
        assert suffix != ".npz" or np.array_equal(array, ARRAY)
