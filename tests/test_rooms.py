import sys

import pytest

from critattn import rooms
from critattn.errors import SpecError


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.setattr(rooms, "__file__", str(tmp_path / "critattn" / "rooms.py"))
    for room in ("simulations", "figures"):
        (tmp_path / room).mkdir()
    (tmp_path / "simulations" / "collapse.toml").write_text("kind = 'sweep'\nseed = 3\n")
    (tmp_path / "simulations" / "depth.toml").write_text("kind = \n\nnot toml")
    (tmp_path / "figures" / "angle.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\nDATA = 'study:angle'\n"
        "@dataclass\nclass Point:\n    x: float\n"
    )
    (tmp_path / "figures" / "broken.py").write_text("1 / 0")
    (tmp_path / "figures" / "_shared.py").write_text("")
    (tmp_path / "figures" / "notes.txt").write_text("")
    return tmp_path


def test_names_are_the_leaves_of_the_checkout(made):
    assert rooms.names("simulations") == ("collapse", "depth")
    assert rooms.names("figures") == ("angle", "broken")
    assert rooms.names("proofs_check") == ()


def test_a_bundled_room_comes_first(made):
    bundled = made / "critattn" / "_bundled" / "simulations"
    bundled.mkdir(parents=True)
    (bundled / "other.toml").write_text("kind = 'sweep'")
    assert rooms.names("simulations") == ("other",)
    assert rooms.names("figures") == ("angle", "broken")


def test_load(made):
    assert rooms.load("simulations", "collapse") == {"kind": "sweep", "seed": 3}
    module = rooms.load("figures", "angle")
    assert module.DATA == "study:angle"
    assert module.Point(2.0).x == 2.0
    assert rooms.path("figures", "angle") == made / "figures" / "angle.py"


def test_a_leaf_that_fails_leaves_nothing_behind(made):
    with pytest.raises(ZeroDivisionError):
        rooms.load("figures", "broken")
    assert "critattn_figures_broken" not in sys.modules


@pytest.mark.parametrize("name", ["colapse", "../simulations/collapse", "", "collapse.toml", "_shared"])
def test_an_unknown_name_lists_what_exists(made, name):
    with pytest.raises(SpecError, match="there is collapse, depth"):
        rooms.load("simulations", name)


def test_an_unknown_name_gets_a_suggestion(made):
    with pytest.raises(SpecError, match="did you mean 'collapse'"):
        rooms.path("simulations", "colapse")
    with pytest.raises(SpecError, match="nothing yet"):
        rooms.path("proofs_check", "simplex")


def test_an_unknown_room(made):
    with pytest.raises(SpecError, match="'kitchen': allowed: simulations, figures, proofs_check"):
        rooms.names("kitchen")


def test_bad_toml_is_one_line(made):
    with pytest.raises(SpecError, match="is no TOML") as caught:
        rooms.load("simulations", "depth")
    assert "\n" not in str(caught.value)
    with pytest.raises(SpecError, match="No such file"):
        rooms.load_toml(made / "absent.toml")
