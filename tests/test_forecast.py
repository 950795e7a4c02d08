import io
import itertools
import sys

import pytest

from critattn.cli.common import Settings, duration, progress
from critattn.datasets import Axis, Column, Layout
from critattn.sweeps import Forecast
from critattn.sweeps.forecast import unit_cost

LAYOUT = Layout((Axis("n", (64, 1024)), Axis("d", (16,)), Axis("replicate", (0, 1, 2))), (), (Column("half_weight"),))


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def followed(seconds, units=None):
    """The forecast after each unit, which takes `seconds(unit)`; and how long all of it took."""
    clock = Clock()
    forecast = Forecast(clock)
    units = list(LAYOUT.units()) if units is None else units
    forecast.start(LAYOUT, units)
    told = [(forecast.seconds(), None)]
    total = sum(seconds(unit) for unit in units)
    for unit in units:
        clock.now += seconds(unit)
        forecast.finish(unit)
        told.append((forecast.seconds(), 100.0 + total - clock.now))
    return told, forecast, clock


def cost(unit):
    return unit_cost(LAYOUT.point(unit))


def test_units_count_by_their_cost():
    assert cost((1, 0, 0)) > 4 * cost((0, 0, 0))
    told, _, _ = followed(lambda unit: 1e-7 * cost(unit))
    assert told[0][0] is None
    for expected, left in told[1:]:
        assert expected == pytest.approx(left)


def test_compiling_is_expected_for_each_new_shape_only():
    told, _, _ = followed(lambda unit: 1e-7 * cost(unit) + (3.0 if unit[2] == 0 else 0.0))
    for expected, left in told[2:]:
        assert expected == pytest.approx(left)


def test_it_counts_down_between_units_and_never_below_zero():
    _, forecast, clock = followed(lambda unit: 1.0, [(0, 0, 0)])
    forecast.start(LAYOUT, [(0, 0, 0), (0, 0, 1)])
    clock.now += 2
    forecast.finish((0, 0, 0))
    assert forecast.seconds() == pytest.approx(2)
    clock.now += 0.5
    assert forecast.seconds() == pytest.approx(1.5)
    clock.now += 9
    assert forecast.seconds() == 0


def test_units_of_another_process_say_nothing_about_the_rate():
    clock = Clock()
    forecast = Forecast(clock)
    units = [(0, 0, replicate) for replicate in range(3)]
    forecast.start(LAYOUT, units)
    forecast.finish(units[0], computed=False)
    assert forecast.seconds() is None
    clock.now += 4
    forecast.finish(units[1])
    assert forecast.seconds() == pytest.approx(4)


def test_several_workers_share_the_time():
    clock = Clock()
    forecast = Forecast(clock)
    units = [(0, 0, 0), (0, 0, 1), (0, 0, 2)]
    forecast.start(LAYOUT, units)
    for unit, now in zip(units, itertools.count(102.0, 2.0), strict=False):
        clock.now = now
        forecast.finish(unit)
        assert forecast.seconds() == pytest.approx(106.0 - now)


def test_a_token_file_has_one_unit():
    layout = Layout((), (), (Column("entropy"),))
    forecast = Forecast(Clock())
    forecast.start(layout, [()])
    forecast.finish(())
    assert forecast.seconds() == 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-:--:--"), (0, "0:00:00"), (83.2, "0:01:24"), (3600 * 30 + 61, "30:01:01")],
)
def test_durations_for_people(seconds, text):
    assert duration(seconds) == text


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_bar_shows_the_forecast(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress(Settings(), 7, "study", done=3, remaining=lambda: 83.2) as advance:
        advance()
    shown = sys.stderr.getvalue()
    assert "0:01:24" in shown
    assert "4/7" in shown
