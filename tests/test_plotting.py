import os
import re
import subprocess
import sys
import zlib

import matplotlib as mpl
import numpy as np
import pytest
import xarray

from critattn import plotting
from critattn.errors import SpecError, StoreError
from critattn.theory import simplex

ORIGIN = plotting.Provenance("critattn figures x", "0" * 64, "1.2.3")


@plotting.styled
def drawing():
    figure, axes = plotting.canvas()
    for look in plotting.sequence(3):
        axes[0, 0].plot([0, 1], [1, 0], color=look.color, ls=look.dashes, marker=look.marker)
    axes[0, 0].set(xlabel=plotting.label("gamma"), ylabel=plotting.label("self_weight"))
    return figure


def small(values, **coordinates):
    dims = tuple(coordinates)
    return xarray.Dataset({"a": (dims, np.asarray(values, dtype=float))}, coords=coordinates)


def test_style_leaves_the_settings_of_the_user_alone():
    before = dict(mpl.rcParams)
    with plotting.style():
        assert mpl.rcParams["pdf.fonttype"] == 42
        assert mpl.rcParams["font.size"] == 8
    drawing()
    assert dict(mpl.rcParams) == before


def test_settings_return_after_an_error():
    before = dict(mpl.rcParams)

    @plotting.styled
    def fail():
        raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    assert dict(mpl.rcParams) == before


def test_drawing_opens_no_window_and_no_pyplot_figure():
    from matplotlib import pyplot

    count = len(pyplot.get_fignums())
    drawing()
    assert len(pyplot.get_fignums()) == count


def test_looks_differ_in_more_than_colour():
    for looks in (plotting.sequence(5), plotting.categories(5)):
        assert len({look.marker for look in looks}) == 5
        assert len({str(look.dashes) for look in looks}) == 5
        assert len({tuple(look.color) for look in looks}) == 5


def test_a_sequence_darkens():
    def luminance(look):
        return float(np.dot(look.color[:3], (0.2126, 0.7152, 0.0722)))

    shades = [luminance(look) for look in plotting.sequence(4)]
    assert shades == sorted(shades, reverse=True)
    assert shades[0] < 0.7


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gamma", r"coefficient of $\log n$, $\gamma$"),
        ("rho", r"common cosine $\rho$"),
        ("entropy", r"mean entropy of a row $H$ (nats)"),
    ],
)
def test_labels_have_name_symbol_and_unit(name, text):
    assert plotting.label(name) == text


def test_label_with_a_scaled_symbol_has_no_unit():
    assert plotting.label("entropy", symbol=r"H/\log n").endswith(r"$H/\log n$")


def test_unknown_label_is_refused():
    with pytest.raises(SpecError, match="nothing_such"):
        plotting.label("nothing_such")


def test_save_writes_each_format_and_the_caption(tmp_path):
    files = plotting.save(drawing(), tmp_path / "deep" / "one", caption="A caption.", provenance=ORIGIN, title="One")
    assert [file.name for file in files] == ["one.png", "one.svg", "one.pdf", "one.md"]
    assert files[0].read_bytes().startswith(b"\x89PNG")
    assert files[1].read_bytes().startswith(b"<?xml")
    assert files[2].read_bytes().startswith(b"%PDF")
    text = files[3].read_text(encoding="utf-8")
    assert text.startswith("# One\n\nA caption.\n")
    for part in ("critattn figures x", "0" * 64, "critattn 1.2.3"):
        assert part in text
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == sorted(file.name for file in files)


def test_files_carry_the_provenance_and_no_time(tmp_path):
    png, svg, pdf, _ = plotting.save(drawing(), tmp_path / "one", caption="c", provenance=ORIGIN)
    for file in (png, svg, pdf):
        content = file.read_bytes()
        assert b"critattn figures x" in content
        assert b"0" * 64 in content
        assert not re.search(rb"CreationDate|ModDate|<dc:date>|tIME", content)


def test_pdf_embeds_true_type_fonts(tmp_path):
    (pdf, _) = plotting.save(drawing(), tmp_path / "one", caption="c", provenance=ORIGIN, formats=["pdf"])
    content = pdf.read_bytes()
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", content, re.DOTALL)
    assert b"/FontFile2" in content
    assert b"/Type3" not in content
    assert any(zlib.decompressobj().decompress(stream)[:4] == b"\0\1\0\0" for stream in streams if stream[:1] == b"x")


def test_same_figure_gives_same_bytes(tmp_path):
    first, second = (
        plotting.save(drawing(), tmp_path / where / "one", caption="c", provenance=ORIGIN) for where in "ab"
    )
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]


@pytest.mark.slow
def test_same_bytes_whatever_the_hash_seed(tmp_path):
    code = (
        "import sys; from pathlib import Path; from critattn import plotting\n"
        "figure, axes = plotting.styled(plotting.canvas)()\n"
        "axes[0, 0].plot([0, 1], [0, 1], 'o'); axes[0, 0].set(xlabel=plotting.label('rho'))\n"
        "origin = plotting.Provenance('c', 'd', 'v')\n"
        "plotting.save(figure, Path(sys.argv[1]) / 'one', caption='c', provenance=origin)"
    )
    made = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", code, str(tmp_path / seed)], check=True, env=environment)
        made.append([(tmp_path / seed / f"one.{kind}").read_bytes() for kind in plotting.FORMATS])
    assert made[0] == made[1]


def test_nothing_is_left_where_rendering_fails(tmp_path):
    figure = drawing()
    figure.axes[0].set_title("$\\unknowncommand$")
    with pytest.raises(ValueError, match="unknowncommand"):
        plotting.save(figure, tmp_path / "one", caption="c", provenance=ORIGIN)
    assert list(tmp_path.iterdir()) == []


def test_nothing_half_written_is_left_where_writing_fails(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StoreError, match="No space left"):
        plotting.save(drawing(), tmp_path / "one", caption="c", provenance=ORIGIN)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_one_clear_error(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(StoreError, match="taken"):
        plotting.save(drawing(), tmp_path / "taken" / "one", caption="c", provenance=ORIGIN)


@pytest.mark.parametrize(("given", "formats"), [("png", ("png",)), (" PDF, svg,pdf", ("pdf", "svg"))])
def test_formats(given, formats):
    assert plotting.parse_formats(given) == formats


@pytest.mark.parametrize("given", ["jpeg", "png,,svg", ""])
def test_unknown_formats_are_refused(given):
    with pytest.raises(SpecError, match="allowed: png, svg, pdf"):
        plotting.parse_formats(given)


def test_fingerprint_sees_values_and_coordinates_but_no_attributes():
    data = small([1, 2], n=[3, 4])
    same = small([1, 2], n=[3, 4]).assign_attrs(seconds=3.0)
    assert plotting.fingerprint(data) == plotting.fingerprint(same)
    assert plotting.fingerprint(data) != plotting.fingerprint(small([1, 2.5], n=[3, 4]))
    assert plotting.fingerprint(data) != plotting.fingerprint(small([1, 2], n=[3, 5]))
    assert plotting.fingerprint(data) != plotting.fingerprint(data.rename(a="b"))


def test_mean_over_draws_and_its_standard_error():
    mean, error = plotting.over_draws(small([[1, 2, 6]], n=[8], replicate=[0, 1, 2]), "a")
    assert mean.item() == pytest.approx(3)
    assert error.item() == pytest.approx(np.std([1, 2, 6], ddof=1) / np.sqrt(3))


def test_one_draw_has_no_standard_error():
    for data in (small([[5]], n=[8], replicate=[0]), small([5], n=[8])):
        mean, error = plotting.over_draws(data, "a")
        assert mean.item() == 5
        assert np.isnan(error.item())


def test_a_missing_observable_is_named():
    with pytest.raises(SpecError, match=r"'b'.*hold a"):
        plotting.over_draws(small([1], n=[2]), "b")


def test_width_sentence_states_the_width():
    sentence = plotting.width_sentence(0.5, 65536)
    assert "0.79" in sentence
    assert f"{simplex.transition_width(0.5, np.log(65536)):.2f}" in sentence


def test_interpolation_between_grid_points_is_monotone_and_keeps_the_points():
    values = np.array([[0, 0, 1, 1], [0, 0.5, 1, 1], [0, 1, 1, 1], [1, 1, 1, 1]], dtype=float)
    field = xarray.DataArray(values, dims=("gamma", "rho"), coords={"gamma": range(4), "rho": range(4)})
    _, axes = plotting.canvas()
    smooth, image = plotting.phase_map(axes[0, 0], field)
    assert smooth.min() >= 0
    assert smooth.max() <= 1
    assert (np.diff(smooth.values, axis=1) >= -1e-12).all()
    corners = smooth.sel(gamma=[0, 3], rho=[0, 3]).values
    np.testing.assert_allclose(corners, [[0, 1], [1, 1]], atol=1e-12)
    assert image.get_extent() == [0, 3, 0, 3]
