"""Tables of trained heads: written, merged, read again, damaged; and what is said of several seeds together."""

import dataclasses
import math

import numpy as np
import pytest

from critattn.errors import StoreError
from critattn.training import experiments, heads, verdicts
from critattn.training.heads import HeadPoint, Line

POINT = HeadPoint(
    layer=0,
    head=1,
    length=128,
    control="gamma",
    value=2.0,
    rho=0.25,
    own=-0.5,
    top=0.75,
    rho_keys=0.1,
    largest=0.6,
    own_weight=0.01,
    measured=1.6,
    measured_own=math.inf,
    predicted={"limit": 1 / 3, "tail": math.nan},
)
POWERS = dataclasses.replace(POINT, control="p", value=15.0, predicted={"needle": math.inf})
LINES = [
    Line("lssar-p15", 0, "00ff", POWERS),
    Line("softmax-rope", 1, "00ff", POINT),
    Line("softmax-rope", 0, "00ff", dataclasses.replace(POINT, head=0, measured=math.inf)),
]


def points(lines):
    # NaN differs from itself
    return [repr(one) for one in lines]


def test_a_table_is_read_as_it_was_written(tmp_path):
    file = heads.table(tmp_path, "small")
    heads.merge(file, LINES)
    found = heads.read(file)
    assert [(one.variant, one.seed) for one in found] == [("lssar-p15", 0), ("softmax-rope", 0), ("softmax-rope", 1)]
    third = dataclasses.replace(POINT, predicted={"limit": 0.333333, "tail": math.nan})
    assert points([found[2], found[0]]) == points([Line("softmax-rope", 1, "00ff", third), LINES[0]])
    assert heads.as_csv(found) == file.read_text()
    assert heads.read(tmp_path / "none.csv") == []


def test_heads_of_a_run_are_replaced_and_others_stay(tmp_path):
    file = heads.table(tmp_path, "small")
    heads.merge(file, LINES)
    heads.merge(file, [Line("softmax-rope", 1, "11ff", dataclasses.replace(POINT, value=3.0))])
    assert [(one.variant, one.seed, one.text, one.point.value) for one in heads.read(file)] == [
        ("lssar-p15", 0, "00ff", 15.0),
        ("softmax-rope", 0, "00ff", 2.0),
        ("softmax-rope", 1, "11ff", 3.0),
    ]
    study = experiments.experiment("length_extrapolation").changed(seeds=[0])
    assert [one.variant for one in heads.of_study(study, tmp_path)] == ["softmax-rope", "lssar-p15"]


def test_a_damaged_table_is_one_line_and_stays(tmp_path):
    file = heads.table(tmp_path, "small")
    heads.merge(file, LINES)
    sound = file.read_text()
    headings, first = sound.splitlines()[:2]
    cells = first.split(",")
    damaged = {
        "it has no column 'measured'": sound.replace("measured,", "unmeasured,", 1),
        "could not convert string to float: 'many'": f"{headings}\n{','.join([*cells[:7], 'many', *cells[8:]])}\n",
        "invalid literal for int": sound.replace("lssar-p15,0", "lssar-p15,zero"),
        "it has no column 'variant'": "",
        "argument must be": f"{headings}\n{','.join(cells[:9])}\n",
    }
    for said, text in damaged.items():
        file.write_text(text)
        for act in (lambda: heads.read(file), lambda: heads.merge(file, LINES)):
            with pytest.raises(StoreError, match=rf"^heads '.*heads\.csv': cannot be read: .*{said}") as caught:
                act()
            assert "\n" not in str(caught.value)
        assert file.read_text() == text
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(StoreError, match="cannot be read"):
        heads.read(file)


def test_seeds_of_a_variant_are_taken_together():
    both = [dataclasses.replace(one, variant="softmax-rope") for one in LINES[1:]]
    (limit, tail) = verdicts.by_variant(both)
    assert (limit["seeds"], limit["heads"], limit["value"], limit["measured"]) == ([0, 1], 2, 2.0, math.inf)
    assert (limit["prediction"], limit["local"], limit["never"], limit["never_predicted"]) == ("limit", 1.0, 1, 0)
    # one head has a measured value, and the other none at all: neither is met
    assert limit["median"] == pytest.approx(1 / 3 / 1.6 - 1)
    assert limit["met"] == 0
    assert math.isnan(tail["median"])
    (powers,) = verdicts.by_variant(LINES[:1])
    assert (powers["control"], powers["prediction"], powers["value"]) == ("p", "needle", 15.0)
    (bare,) = verdicts.by_variant([dataclasses.replace(LINES[0], point=dataclasses.replace(POWERS, predicted={}))])
    assert (bare["prediction"], bare["heads"], bare["control"]) == (None, 1, "p")
    assert np.isnan([bare[key] for key in ("median", "met", "sides")]).all()
