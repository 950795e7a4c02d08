import json
import logging
import math
import os
import subprocess
import sys
import time
import warnings

import click
import numpy as np
import pytest
from click.testing import CliRunner

from critattn.cli import COMMANDS, common, main
from critattn.cli.common import (
    Command,
    Count,
    Grid,
    Group,
    Number,
    Settings,
    emit,
    mapped,
    outer,
    plain,
)
from critattn.cli.root import Root, log
from critattn.errors import DomainError, SpecError, StoreError
from critattn.grids import parse_count, parse_counts, parse_grid, parse_number


@click.group(cls=Root)
def app():
    pass


@app.group(cls=Group)
def nested():
    pass


@nested.command()
@click.pass_obj
def show(settings):
    emit(settings, {"seed": settings.seed, "dtype": settings.dtype, "quiet": settings.quiet})


@app.command(cls=Command)
@click.option("--n", type=Count())
@click.option("--gamma", type=Grid())
@click.option("--rho", type=Number(-1, 1))
@click.pass_obj
def values(settings, n, gamma, rho):
    emit(settings, {"n": n, "gamma": gamma, "rho": rho})


@app.command(cls=Command)
@click.argument("what")
@click.option("--begun", is_flag=True)
@click.pass_obj
def fail(settings, what, begun):
    errors = {
        "domain": DomainError.of("rho", 1.5, "in [0, 1)"),
        "spec": SpecError("two\nlines"),
        "store": StoreError("store 'x': cannot be written"),
        "missing": FileNotFoundError(2, "No such file or directory", "tokens.npy"),
        "full": OSError(28, "No space left on device", "chunk"),
        "bug": ZeroDivisionError("division by zero"),
        "ctrl-c": KeyboardInterrupt(),
    }
    if begun:
        with common.working(settings, "critattn sweep collapse"):
            raise errors[what]
    raise errors[what]


@app.command(cls=Command)
@click.pass_obj
def noisy(settings):
    warnings.warn("take care", UserWarning, stacklevel=1)
    log.info("at work")
    with common.progress(settings, 3, "units") as advance:
        advance(1)
    emit(settings, {"nothing": math.nan})


def run(*args):
    return CliRunner().invoke(app, list(args))


def one_line(result, code, *parts):
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    for part in parts:
        assert part in result.stderr


@pytest.mark.parametrize(
    "args",
    [
        ("--json", "--seed", "7", "nested", "show"),
        ("nested", "--json", "--seed", "7", "show"),
        ("nested", "show", "--seed", "7", "--json"),
        ("--seed", "3", "nested", "--json", "show", "--seed", "7"),
    ],
)
def test_global_options_count_wherever_they_stand(args):
    result = run(*args)
    assert json.loads(result.stdout) == {"schema_version": 1, "seed": 7, "dtype": None, "quiet": False}


def test_a_default_further_down_does_not_undo_an_option():
    found = json.loads(run("--seed", "7", "-q", "--json", "nested", "show").stdout)
    assert found["seed"] == 7
    assert found["quiet"] is True


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (("values", "--rho", "word"), ["--rho", "'word'", "number"]),
        (("values", "--rho", "nan"), ["--rho", "'nan'", "finite"]),
        (("values", "--rho", "2"), ["--rho", "2", ">= -1 and <= 1"]),
        (("values", "--n", "0"), ["--n", "'0'", ">= 1"]),
        (("values", "--n", "2.5"), ["--n", "'2.5'", "whole"]),
        (("values", "--n", "1e400"), ["--n", "log"]),
        (("values", "--gamma", "0:4"), ["--gamma", "start:stop:points"]),
        (("values", "--gamma", "1,,2"), ["--gamma", "empty item"]),
        (("values", "--gama", "1"), ["--gama", "--gamma"]),
        (("values", "--seed", "-1"), ["--seed", "-1", "0<=x<="]),
        (("values", "--dtype", "float16"), ["--dtype", "float16", "float32"]),
        (("valuse",), ["valuse"]),
        (("fail",), ["WHAT"]),
        (("fail", "domain"), ["rho = 1.5: must be in [0, 1)"]),
        (("fail", "spec"), ["two lines"]),
        (("fail", "missing"), ["tokens.npy: No such file"]),
        (("fail", "store"), ["cannot be written"]),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(args, parts):
    one_line(run(*args), 2, *parts)


@pytest.mark.parametrize(
    "args", [("store", "--begun"), ("missing", "--begun"), ("full",), ("full", "--begun"), ("bug",)]
)
def test_failed_work_is_one_line_and_exit_1(args):
    one_line(run("fail", *args), 1)


def test_debug_shows_the_traceback_wherever_it_stands():
    for args in (("--debug", "fail", "bug"), ("fail", "bug", "--debug")):
        result = run(*args)
        assert result.exit_code == 1
        assert "Traceback" in result.stderr
        assert "ZeroDivisionError" in result.stderr
    assert "Traceback" not in run("fail", "bug").stderr


def test_an_interrupt_says_how_to_go_on():
    result = run("fail", "ctrl-c", "--begun")
    assert result.exit_code == 130
    assert "critattn sweep collapse" in result.stderr
    assert "Traceback" not in result.stderr


def test_json_is_all_of_stdout_and_the_rest_goes_to_stderr():
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        result = run("noisy", "--json", "-v")
        silent = run("noisy", "--json", "-q")
    assert json.loads(result.stdout) == {"schema_version": 1, "nothing": None}
    assert result.stderr.splitlines() == ["Warning: take care", "info: at work"]
    assert silent.stderr == ""


def test_a_handler_of_the_root_logger_says_nothing_once_more():
    heard = []
    handler = logging.Handler()
    handler.emit = heard.append
    logging.getLogger().addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            assert "info: at work" in run("noisy", "--json", "-v").stderr
    finally:
        logging.getLogger().removeHandler(handler)
    assert heard == []
    assert logging.getLogger("critattn").propagate


def test_numbers_reach_the_command():
    result = run("values", "--n", "1e6", "--gamma", "0:4:5", "--rho", "-0.3", "--json")
    assert json.loads(result.stdout) == {
        "schema_version": 1,
        "n": 1000000,
        "gamma": [0, 1, 2, 3, 4],
        "rho": -0.3,
    }
    assert json.loads(run("values", "--n", "1e300", "--gamma", "1.2", "--json").stdout)["n"] == 1e300


def test_people_get_a_table():
    text = run("values", "--n", "64", "--gamma", "1,2").stdout
    assert "quantity" in text
    assert "64" in text
    assert "1, 2" in text


def test_counts():
    assert parse_count("512") == 512
    assert isinstance(parse_count("1e6"), int)
    assert isinstance(parse_count(10**30), float)
    assert parse_counts("64,512,1e6") == (64, 512, 1000000)
    assert parse_counts("16:64:4") == (16, 32, 48, 64)
    for wrong in ("", "n", "-3", "nan", "inf", True, None, "16:65:4", []):
        with pytest.raises(SpecError):
            parse_counts(wrong)


def test_a_range_equals_linspace():
    assert parse_grid("0:0.95:20") == tuple(np.linspace(0, 0.95, 20))
    assert parse_grid("1e-3:4:81") == tuple(np.linspace(1e-3, 4, 81))
    assert parse_grid([1, 2.5]) == (1.0, 2.5)
    assert parse_grid(1) == 1.0


@pytest.mark.parametrize(
    "wrong", ["0:4:1", "0:4:x", "0:4:2.5", "a:4:3", "0:inf:3", "1,b", ",", "", ":", "0:1:2:3", "0:1:10000000"]
)
def test_a_wrong_grid_is_one_line(wrong):
    with pytest.raises(SpecError) as caught:
        parse_grid(wrong)
    assert "\n" not in str(caught.value)


def test_a_long_wrong_value_is_not_repeated_in_full():
    with pytest.raises(SpecError) as caught:
        parse_number("x" * 10_000)
    assert len(str(caught.value)) < 200


def test_plain_turns_arrays_into_json():
    found = plain(
        {
            "a": np.array([1.0, np.nan, np.inf]),
            "b": np.float32(2),
            "c": np.int64(3),
            "d": np.bool_(True),
            5: {1},
        }
    )
    assert found == {"a": [1.0, None, None], "b": 2.0, "c": 3, "d": True, "5": [1]}
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_closed_forms_at_lists_return_lists():
    shaped = outer(gamma=(1.0, 2.0, 3.0), rho=(0.0, 0.5), n=4)
    result = shaped["gamma"] * shaped["rho"] + shaped["n"]
    assert result.shape == (3, 2)
    assert outer(gamma=1.5) == {"gamma": 1.5}
    assert mapped(lambda gamma, rho: gamma + rho, gamma=1.0, rho=2.0) == 3.0
    assert mapped(lambda gamma, rho: gamma + rho, gamma=(1.0, 2.0), rho=2.0).tolist() == [3.0, 4.0]
    assert plain(mapped(lambda gamma: None if gamma > 1 else gamma, gamma=(1.0, 2.0))) == [1.0, None]
    assert mapped(lambda gamma, rho: 10 * gamma + rho, gamma=(1.0, 2.0), rho=(3.0,)).tolist() == [
        [13.0],
        [23.0],
    ]


def test_help_lists_every_command_without_importing_one():
    code = (
        "import sys; from critattn.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'jax', 'rich', 'zarr', 'sympy'} & set(sys.modules)))\n"
    )
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert time.perf_counter() - start < 3 * 0.3
    assert done.stdout.strip().endswith("[]")
    for name, help_line in COMMANDS.items():
        assert name in done.stdout
        assert help_line.split()[0] in done.stdout


def test_no_command_shows_the_help():
    result = CliRunner().invoke(main, [])
    assert result.exit_code == 2
    assert "Commands:" in result.output


def test_version():
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0
    assert result.stdout.startswith("critattn ")


def test_python_m_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "critattn", "solve", "simplx"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "simplx" in line
    assert done.stdout == ""


def test_settings_choose_a_dtype():
    assert Settings().dtype_or("float64") == "float64"
    assert Settings(dtype="float32").dtype_or("float64") == "float32"


def test_json_is_readable_wherever_it_goes():
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    code = (
        "from critattn.cli.common import Settings, emit; emit(Settings(as_json=True), {'name': '\\u4ee4\\u724c.npy'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert json.loads(done.stdout)["name"] == "\u4ee4\u724c.npy"


def test_a_terminal_without_unicode_and_a_closed_one_are_no_error(tmp_path):
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    code = "from critattn.cli import main; main()"
    arguments = [sys.executable, "-c", code, "store", "list", "--store", str(tmp_path / "\u4ee4")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, env=environment)
    assert "??" not in done.stderr
    assert "no results in" in done.stdout
    closed = f"import os; os.close(1); import sys; sys.stdout = None; {code}"
    shut = [sys.executable, "-c", closed, "studies"]
    assert subprocess.run(shut, stderr=subprocess.PIPE, check=True).stderr == b""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["import", "callback", "plain"])
def test_an_interrupt_is_neither_lost_nor_shown_wherever_it_strikes(tmp_path, where):
    (tmp_path / "half_imported.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\ndone = True\n")
    strike = {
        "import": "import half_imported; assert half_imported.done",
        "callback": "gc.callbacks.append(lambda *_: (gc.callbacks.clear(), os.kill(os.getpid(), 2))); gc.collect()",
        "plain": "os.kill(os.getpid(), 2)",
    }[where]
    code = (
        "import click, gc, os, signal, sys, time\n"
        # a shell starts commands in the background with interrupts ignored
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from critattn.cli.common import Command\nfrom critattn.cli.root import Root\n"
        "@click.group(cls=Root)\ndef app(): pass\n"
        f"@app.command(cls=Command)\ndef work():\n    {strike}\n    time.sleep(5)\n"
        "app(['work'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 130, done.stderr
    assert done.stderr.strip() == "Interrupted. To go on: the same command starts again"


SOLVED = ["solve", "random-energy", "--n", "64", "--beta", "1"]


@pytest.mark.parametrize(
    ("args", "buffered"),
    [
        (["studies"], True),
        pytest.param(["studies"], False, marks=pytest.mark.slow),
        (["--version"], True),
        (["--version"], False),
        pytest.param(SOLVED, True, marks=pytest.mark.slow),
        (SOLVED, False),
    ],
)
def test_a_full_disk_behind_stdout_is_one_line(buffered, args):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    environment |= {} if buffered else {"PYTHONUNBUFFERED": "1"}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from critattn.cli import main; main()", *args],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=environment,
        )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "No space left" in line
