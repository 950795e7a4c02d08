import csv
import json
import sys

import numpy as np
import pytest
import xarray as xr
import zarr

from critattn import datasets, storage
from critattn.datasets import Axis, Column, Layout
from critattn.errors import SpecError, StoreError
from critattn.storage import Store

LAYOUT = Layout(
    unit_axes=(Axis("n", (64, 512)), Axis("rho", (0.0, 0.5, 0.9), "common cosine")),
    block_axes=(Axis("gamma", (0.0, 1.0, 2.0, 3.0)),),
    observables=(Column("self_weight", "", "mean self weight"), Column("entropy", "nat")),
    followers=(Axis("d", (64, 512), along="n"),),
)
SPEC = {"seed": 0, "axes": {"n": [64, 512], "rho": [0, 0.5, 0.9], "gamma": [0, 1, 2, 3]}, "dtype": "float64"}


def block_of(unit):
    block = np.arange(16, dtype=float).reshape(4, 2, 2) + 100 * unit[0] + 1000 * unit[1]
    block[:, 0, 1] = np.nan
    return block


@pytest.fixture
def store(tmp_path):
    return Store.create(tmp_path / "runs" / "study", name="study", spec=SPEC, layout=LAYOUT)


def fill(store, units=None):
    for unit in units if units is not None else LAYOUT.units():
        store.write_unit(unit, block_of(unit), seconds=0.25)
    return store


def flip(file, at=20):
    data = bytearray(file.read_bytes())
    data[at] ^= 0xFF
    file.write_bytes(data)


def test_units_are_missing_until_written(store):
    assert len(store.missing_units()) == 6
    fill(store, [(0, 1), (1, 2)])
    assert store.missing_units() == [(0, 0), (0, 2), (1, 0), (1, 1)]
    assert Store.open(store.path).missing_units() == store.missing_units()


def test_one_chunk_is_one_unit(store):
    fill(store, [(1, 2)])
    files = [file for file in (store.path / "estimates" / "c").rglob("*") if file.is_file()]
    assert files == [store.chunk_file((1, 2))]


def test_read_gives_a_variable_an_observable_and_its_error(store):
    data = fill(store).read()
    assert set(data.data_vars) == {"self_weight", "self_weight_se", "entropy", "entropy_se"}
    assert data.self_weight.dims == ("n", "rho", "gamma")
    assert data.entropy.sel(n=512, rho=0.9, gamma=3.0) == block_of((1, 2))[3, 1, 0]
    assert data.entropy_se.sel(n=64, rho=0.5, gamma=0.0) == block_of((0, 1))[0, 1, 1]
    assert np.isnan(data.self_weight_se).all()
    assert data.entropy.attrs == {"units": "nat", "long_name": "entropy"}
    assert data.d.dims == ("n",)
    assert json.loads(data.attrs["spec"]) == SPEC
    assert data.attrs["units_missing"] == 0


def test_a_missing_unit_reads_as_nan(store):
    data = fill(store, [(0, 0)]).read()
    assert np.isfinite(data.entropy.sel(n=64, rho=0.0)).all()
    assert np.isnan(data.entropy.sel(n=512)).all()
    assert data.attrs["units_missing"] == 5


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "zero"])
def test_a_damaged_chunk_is_named_and_missing(store, damage, caplog):
    fill(store)
    file = store.chunk_file((1, 1))
    size = file.stat().st_size
    if damage == "flip":
        flip(file)
    else:
        file.write_bytes({"cut": file.read_bytes()[:-9], "empty": b"", "zero": b"\0" * (size - 1) + b"\1"}[damage])
    assert store.damaged_units() == [(1, 1)]
    assert store.missing_units() == [(1, 1)]
    assert str(file) in caplog.text
    assert np.isnan(store.values()[1, 1]).all()
    assert np.array_equal(store.values()[0], fill_values()[0], equal_nan=True)
    store.write_unit((1, 1), block_of((1, 1)))
    assert store.missing_units() == []
    assert np.array_equal(store.values(), fill_values(), equal_nan=True)


def fill_values():
    result = np.empty(LAYOUT.shape)
    for unit in LAYOUT.units():
        result[unit] = block_of(unit)
    return result


def test_a_chunk_of_nothing_but_nan_is_done(store):
    store.write_unit((0, 0), np.full(LAYOUT.block_shape, np.nan))
    assert (0, 0) not in store.missing_units()


def test_attributes_say_where_it_came_from(store):
    kept = json.loads((store.path / "zarr.json").read_text())["attributes"]["critattn"]
    assert kept["spec"] == SPEC
    assert kept["spec_hash"] == storage.content_hash(SPEC)
    assert {"python", "numpy", "jax", "jaxlib"} <= set(kept["made"]["versions"])
    assert kept["made"]["threads"] >= 1
    assert kept["made"]["devices"]


def test_wall_times_are_kept_and_a_torn_line_is_passed_over(store):
    fill(store, [(0, 0)])
    with (store.path / storage.JOURNAL).open("ab") as journal:
        journal.write(b'\n{"unit": [0, 1], "sec')
    fill(store, [(1, 0)])
    journal = store.journal()
    assert set(journal) == {(0, 0), (1, 0)}
    assert journal[1, 0]["seconds"] == 0.25
    assert journal[1, 0]["threads"] >= 1


def test_others_can_open_it_without_us(store):
    fill(store)
    data = xr.open_zarr(store.path, consolidated=False)
    assert data.estimates.dims == ("n", "rho", "gamma", "observable", "statistic")
    assert data.rho.values.tolist() == [0.0, 0.5, 0.9]
    assert all(data[name].dtype.kind in "if" for name in data.coords)
    assert zarr.open_array(store.path / "estimates", mode="r").chunks == (1, 1, 4, 2, 2)


def test_the_same_study_continues(store):
    fill(store, [(0, 0)])
    again = Store.create(store.path, name="study", spec=SPEC, layout=LAYOUT)
    assert len(again.missing_units()) == 5
    assert again.layout == LAYOUT


def test_a_changed_study_refuses_to_mix(store):
    changed = {**SPEC, "seed": 1, "axes": {**SPEC["axes"], "gamma": [0, 1]}, "mask": "causal"}
    with pytest.raises(StoreError) as caught:
        Store.create(store.path, name="study", spec=changed, layout=LAYOUT)
    message = str(caught.value)
    for part in ("seed was 0, is 1", "axes.gamma was [0,1,2,3], is [0,1]", 'mask was absent, is "causal"'):
        assert part in message
    assert "axes.rho" not in message
    assert "dtype" not in message
    assert "\n" not in message


def test_a_store_that_cannot_be_written_leaves_nothing(tmp_path):
    (tmp_path / "file").write_text("in the way")
    for target in (tmp_path / "file" / "study", tmp_path / "file" / "deep" / "study", tmp_path / "file"):
        with pytest.raises(StoreError, match="cannot be"):
            Store.create(target, name="study", spec=SPEC, layout=LAYOUT)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_creation_that_fails_halfway_leaves_nothing(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage.zarr.Group, "create_array", full)
    with pytest.raises(StoreError, match="No space left"):
        Store.create(tmp_path / "study", name="study", spec=SPEC, layout=LAYOUT)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_while_writing_loses_nothing(store, monkeypatch):
    fill(store, [(0, 0)])

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("zarr.storage._local._put", full)
        with pytest.raises(StoreError, match=r"unit \(0, 1\) was not written: No space left"):
            fill(store, [(0, 1)])
    assert store.missing_units() == [unit for unit in LAYOUT.units() if unit != (0, 0)]
    assert fill(store).missing_units() == []


def test_a_block_of_the_wrong_shape(store):
    with pytest.raises(StoreError, match="allowed"):
        store.write_unit((0, 0), np.zeros((3, 2, 2)))


@pytest.mark.parametrize("text", ["", "{", "{}", '{"attributes": {"critattn": {"format": 99}}}', "[]"])
def test_a_store_that_cannot_be_read(tmp_path, text):
    (tmp_path / "zarr.json").write_text(text)
    with pytest.raises(StoreError, match="cannot be read") as caught:
        Store.open(tmp_path)
    assert "\n" not in str(caught.value)
    with pytest.raises(StoreError, match="no results store"):
        Store.open(tmp_path / "absent")


def test_list_find_delete(store, tmp_path):
    root = tmp_path / "runs"
    fill(store, [(0, 0), (0, 1)])
    (root / "other").mkdir()
    (root / "broken").mkdir()
    (root / "broken" / "zarr.json").write_text("{}")
    (info,) = storage.list_stores(root)
    assert (info.name, info.units, info.done) == ("study", 6, 2)
    assert info.bytes > 0
    assert storage.find("study", root) == store
    assert storage.find(str(store.path), tmp_path) == store
    with pytest.raises(StoreError, match="there is: study"):
        storage.find("stduy", root)
    storage.delete(store)
    assert storage.list_stores(root) == []
    assert sorted(entry.name for entry in root.iterdir()) == ["broken", "other"]


def test_the_root_comes_from_the_environment(monkeypatch):
    monkeypatch.delenv("CRITATTN_STORE", raising=False)
    assert str(storage.store_root()) == "runs"
    monkeypatch.setenv("CRITATTN_STORE", "/elsewhere")
    assert str(storage.store_root()) == "/elsewhere"


def test_a_layout_without_unit_axes(tmp_path):
    layout = Layout((), (Axis("gamma", (0.0, 1.0)),), (Column("entropy"),), (Axis("n", (12,)),))
    store = Store.create(tmp_path / "file", name="file", spec={}, layout=layout)
    assert store.missing_units() == [()]
    store.write_unit((), np.ones((2, 1, 2)))
    assert store.missing_units() == []
    data = store.read()
    assert data.entropy.shape == (2,)
    assert data.n.dims == ()
    assert data.n == 12
    assert store.layout == layout


def test_the_hash_is_of_the_content():
    assert storage.content_hash({"a": 1, "b": [1.5]}) == storage.content_hash({"b": [1.5], "a": 1})
    assert storage.content_hash({"a": 1}) != storage.content_hash({"a": 2})
    assert storage.content_hash({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def test_export_to_csv(store, tmp_path):
    data = fill(store).read()
    file = datasets.export(data, tmp_path / "out.csv")
    with file.open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 2 * 3 * 4 * 2
    chosen = [row for row in rows if (row["n"], row["rho"], row["gamma"]) == ("512", "0.9", "3.0")]
    assert {row["observable"]: float(row["value"]) for row in chosen} == {
        "self_weight": block_of((1, 2))[3, 0, 0],
        "entropy": block_of((1, 2))[3, 1, 0],
    }
    assert {row["d"] for row in chosen} == {"512"}
    assert {row["standard_error"] for row in rows if row["observable"] == "self_weight"} == {""}


def test_export_to_netcdf(store, tmp_path):
    data = fill(store).read()
    file = datasets.export(data, tmp_path / "out.nc")
    with xr.open_dataset(file, engine="h5netcdf") as again:
        xr.testing.assert_identical(again.load(), data)


def test_export_that_fails_is_one_line_and_leaves_nothing(store, tmp_path, monkeypatch):
    data = fill(store).read()
    with pytest.raises(SpecError, match=r"\.nc or \.csv"):
        datasets.export(data, tmp_path / "out.txt")
    with pytest.raises(StoreError, match="No such file"):
        datasets.export(data, tmp_path / "absent" / "out.csv")
    monkeypatch.setitem(sys.modules, "h5netcdf", None)
    with pytest.raises(SpecError, match=r"critattn\[export\]"):
        datasets.export(data, tmp_path / "out.nc")
    assert [entry.name for entry in tmp_path.iterdir()] == ["runs"]
