import runpy
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.py"))
# ten seconds and more each: layers of a thousand tokens, trained models
LONG = ("01_phase_transition", "02_normalisers", "05_trained_heads", "06_length_extrapolation")
ALL = [pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in LONG else []) for path in NOTEBOOKS]


@pytest.mark.parametrize("notebook", ALL)
def test_notebook_runs_from_top_to_bottom(notebook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    runpy.run_path(str(notebook), run_name="__main__")
    assert list(tmp_path.iterdir()) == []


def test_there_is_a_notebook():
    names = ["phase_transition", "normalisers", "blind_heads", "proofs", "trained_heads", "length_extrapolation"]
    assert [path.stem for path in NOTEBOOKS] == [f"{number:02d}_{name}" for number, name in enumerate(names, 1)]
