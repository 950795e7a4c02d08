"""Files of trained heads: written, read again, damaged, of another run; and what is said of several seeds together."""

import dataclasses
import math

import numpy as np
import pytest

from critattn.errors import StoreError
from critattn.training import heads, results, variants, verdicts
from critattn.training.heads import HeadPoint, Line
from critattn.training.presets import preset

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
    Line("softmax-rope", 1, "aa", "00ff", POINT),
    Line("softmax-rope", 1, "aa", "00ff", dataclasses.replace(POINT, head=0, measured=math.inf)),
    Line("softmax-rope", 1, "aa", "00ff", dataclasses.replace(POINT, layer=1, measured=0.0)),
]


@pytest.fixture
def run(tmp_path):
    return results.Run(tmp_path, variants.named("softmax-rope"), preset("small"), 1)


def test_heads_are_read_as_they_were_written(run):
    heads.write(run, LINES)
    found = heads.read(run)
    rounded = dataclasses.replace(POINT, predicted={"limit": 0.333333, "tail": math.nan})
    # NaN differs from itself
    assert repr(found[0]) == repr(Line("softmax-rope", 1, "aa", "00ff", rounded))
    assert [(one.point.head, one.point.layer, one.point.measured) for one in found[1:]] == [(0, 0, math.inf), (1, 1, 0)]
    assert heads.as_csv(found) == heads.file(run).read_text()
    assert heads.file(run).name == "softmax-rope-seed1.heads.csv"
    assert heads.read(dataclasses.replace(run, seed=2)) == []


def test_heads_read_by_another_version_are_read_again(run):
    heads.write(run, LINES)
    text = heads.file(run).read_text()
    heads.file(run).write_text(text.replace("\n1,", "\n0,"))
    assert heads.read(run) == []


def test_heads_of_these_weights_and_this_text_are_known(run):
    heads.write(run, LINES)
    run.file(".npz").write_bytes(b"weights")
    digest = heads.digest(run.file(".npz"))
    heads.write(run, [dataclasses.replace(one, weights=digest, text="ab" * 8) for one in LINES])
    assert len(heads.known(run, "ab" * 32)) == 3
    assert heads.known(run, "ac" * 32) == []
    run.file(".npz").write_bytes(b"others")
    assert heads.known(run, "ab" * 32) == []
    run.file(".npz").unlink()
    assert heads.known(run, "ab" * 32) == []


def test_damage_is_one_line(run):
    heads.write(run, LINES)
    file = heads.file(run)
    sound = file.read_text()
    headings, first = sound.splitlines()[:2]
    cells = first.split(",")

    def with_cell(name, text):
        return ",".join(text if one == name else cell for one, cell in zip(headings.split(","), cells, strict=True))

    damaged = {
        "it has no column 'measured'": sound.replace("measured,", "unmeasured,", 1),
        "could not convert string to float: 'many'": f"{headings}\n{with_cell('rho', 'many')}\n",
        "invalid literal for int": f"{headings}\n{with_cell('layer', 'one')}\n",
        "it has no column 'format'": "",
        "a line is too short": f"{headings}\n{','.join(cells[:9])}\n",
        "unexpected end of data": f'{headings}\n"{first}',
        "it is of lssa, seed 1": f"{headings}\n{with_cell('variant', 'lssa')}\n",
        "it is of softmax-rope, seed 7": f"{headings}\n{with_cell('seed', '7')}\n",
        "layer 0, head 1 is there twice": f"{headings}\n{first}\n{first}\n",
        "has control 'beta'": f"{headings}\n{with_cell('control', 'beta')}\n",
        "layer -1, head 1 has": f"{headings}\n{with_cell('layer', '-1')}\n",
        "length 0 and": f"{headings}\n{with_cell('length', '0')}\n",
        "measured nan": f"{headings}\n{with_cell('measured', 'nan')}\n",
    }
    for said, text in damaged.items():
        file.write_text(text)
        with pytest.raises(StoreError, match=rf"^heads '.*heads\.csv': cannot be read: .*{said}") as caught:
            heads.read(run)
        assert "\n" not in str(caught.value)
        assert heads.known(run, "00ff") == []
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(StoreError, match="cannot be read"):
        heads.read(run)


def test_seeds_of_a_variant_are_taken_together():
    both = [LINES[0], dataclasses.replace(LINES[1], seed=0), LINES[2]]
    (limit, tail) = verdicts.by_variant(both)
    assert (limit["seeds"], limit["heads"], limit["value"], limit["measured"]) == ([0, 1], 3, 2.0, 1.6)
    counts = ("always", "never", "never_predicted", "compared")
    assert [limit[key] for key in counts] == [1, 1, 0, 1]
    assert (limit["prediction"], limit["local"]) == ("limit", 1.0)
    # of the two heads that are not local everywhere neither is met
    assert limit["median"] == pytest.approx(1 / 3 / 1.6 - 1)
    assert limit["met"] == 0
    assert math.isnan(tail["median"])
    powers = dataclasses.replace(LINES[0], variant="lssar-p15", point=POWERS)
    (found,) = verdicts.by_variant([powers])
    assert (found["control"], found["prediction"], found["value"]) == ("p", "needle", 15.0)
    bare = dataclasses.replace(powers, point=dataclasses.replace(POWERS, predicted={}, measured=math.inf))
    (none,) = verdicts.by_variant([bare])
    assert (none["prediction"], none["heads"], none["control"], none["never"]) == (None, 1, "p", 1)
    assert none.keys() == found.keys()


def test_heads_whose_gain_is_negative_are_not_met():
    """A negative gain makes the measured value negative: such a head has no transition that a prediction could meet."""
    inverted = dataclasses.replace(POINT, value=-1.0, measured=-math.inf, predicted={"limit": math.inf})
    plain = dataclasses.replace(POINT, predicted={"limit": 1.7})
    (found,) = verdicts.agreement([inverted, inverted, plain])
    assert (found.met, found.never, found.always, found.compared) == (1.0, 0, 0, 1)
    assert not np.isinf(found.agreement.median)
