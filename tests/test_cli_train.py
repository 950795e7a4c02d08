"""`critattn train` and `critattn extrapolate`: keys, resuming, interrupts, tables against records, wrong input."""

import argparse
import csv
import dataclasses
import errno
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_training
from click.testing import CliRunner
from scipy import stats

from critattn.cli import extrapolate_tables, main, trainings
from critattn.training import (
    collected,
    evaluation,
    experiments,
    loop,
    presets,
    results,
    validation,
    variants,
    verdicts,
)

KEYS = {"variant", "preset", "seed", "steps", "losses", "retrieval", "record", "weights"}
STUDY = """
kind = "training"
title = "Two attentions"
measures = ["loss"]
preset = "smoke"
seeds = [0, 1]
variants = ["softmax-nope", "softmax-rope"]
[quick]
seeds = [0]
"""


@pytest.fixture(autouse=True)
def _tiny(monkeypatch, tmp_path):
    """Presets that take a second under the names of those that take minutes."""
    monkeypatch.setattr(evaluation, "CALL_BYTES", tiny_training.CALL_BYTES)
    monkeypatch.setitem(presets.PRESETS, "smoke", tiny_training.TEXT)
    monkeypatch.setitem(presets.PRESETS, "wild", tiny_training.WILD)
    monkeypatch.setenv("CRITATTN_STORE", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)


def run(*arguments, code=0):
    result = CliRunner().invoke(main, [str(one) for one in arguments])
    assert result.exit_code == code, result.output
    return result


def found(*arguments, code=0):
    return json.loads(run(*arguments, "--json", code=code).stdout)


def refused(*arguments, code=2, part):
    result = run(*arguments, code=code)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert part in line, line
    return line


@pytest.fixture
def interrupted(monkeypatch):
    """Makes a Ctrl-C come after ten steps, once."""
    real, done = trainings.Follow.__call__, []

    def struck(self, run, heard):
        real(self, run, heard)
        if not done:
            done.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(trainings.Follow, "__call__", struck)


def test_a_run_is_recorded_and_then_shown(tmp_path):
    first = found("train", "softmax-nope", "--smoke", "--seed", 3)
    assert first.keys() >= KEYS
    assert (first["variant"], first["preset"], first["seed"], first["steps"]) == ("softmax-nope", "smoke", 3, 20)
    assert [one["length"] for one in first["losses"]] == [16, 32, 64, 128, 256]
    assert first["retrieval"] == []
    assert not first["reused"]
    record = json.loads((tmp_path / "runs/training/smoke/softmax-nope-seed3.json").read_text(encoding="utf-8"))
    assert first["losses"] == record["losses"]
    assert record["command"] == first["command"] == "critattn train softmax-nope --preset smoke --seed 3"
    assert np.load(first["weights"])["embedding"].dtype == np.float16
    again = found("train", "softmax-nope", "--preset", "smoke", "--seed", 3)
    assert again == {**first, "reused": True}
    shown = run("train", "softmax-nope", "--smoke", "--seed", 3).stdout
    assert "trained before" in shown
    assert f"{record['losses'][4]['window']:.6g}" in shown


def test_steps_have_a_folder_of_their_own(tmp_path):
    made = found("train", "softmax-nope", "--smoke", "--steps", 2, "--out", "elsewhere")
    assert (made["steps"], made["preset"]) == (2, "smoke-2steps")
    assert (tmp_path / "elsewhere" / "smoke-2steps" / "softmax-nope-seed0.json").is_file()
    assert not (tmp_path / "runs").exists()


def test_ctrl_c_keeps_a_checkpoint_and_the_same_command_ends_with_the_same_bits(interrupted, tmp_path):
    how = ("train", "softmax-nope", "--smoke")
    stopped = run(*how, code=130)
    assert stopped.stdout == ""
    assert stopped.stderr.splitlines()[-1] == (
        "Interrupted. To go on: critattn train softmax-nope --preset smoke --seed 0"
    )
    assert (tmp_path / "runs/training/smoke/softmax-nope-seed0.checkpoint.npz").is_file()
    resumed = found(*how)
    assert not (tmp_path / "runs/training/smoke/softmax-nope-seed0.checkpoint.npz").exists()
    whole = found(*how, "--out", "whole")
    assert resumed["losses"] == whole["losses"]


def test_a_checkpoint_or_a_record_of_another_configuration_is_refused(interrupted, monkeypatch):
    how = ("train", "softmax-nope", "--smoke")
    run(*how, code=130)
    other = dataclasses.replace(tiny_training.TEXT, learning_rate=1e-3)
    with monkeypatch.context() as changed:
        changed.setitem(presets.PRESETS, "smoke", other)
        refused(*how, part="preset.learning_rate was 0.003, is 0.001")
    run(*how)
    monkeypatch.setitem(presets.PRESETS, "smoke", other)
    line = refused(*how, part="preset.learning_rate was 0.003, is 0.001")
    assert "record" in line


def test_damaged_files_are_one_line_and_exit_2(interrupted, tmp_path):
    how, place = ("train", "softmax-nope", "--smoke"), tmp_path / "runs/training/smoke"
    run(*how, code=130)
    file = place / "softmax-nope-seed0.checkpoint.npz"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    refused(*how, part="softmax-nope-seed0.checkpoint.npz': cannot be read: File is not a zip file")
    (place / "softmax-nope-seed0.json").write_text('{"format": 99}', encoding="utf-8")
    refused(*how, part="softmax-nope-seed0.json': cannot be read: it has format 99; allowed: 1")


def test_a_diverging_run_is_one_line_and_exit_1(tmp_path):
    line = refused("train", "softmax-nope", "--preset", "wild", code=1, part="softmax-nope, seed 0: diverged at step ")
    assert "uniform guess" in line
    assert "another seed may help" in line
    (tmp_path / "two.toml").write_text(STUDY.replace("smoke", "wild").replace('"softmax-nope", ', ""))
    ended = run("extrapolate", "two.toml", "--quick", "--json", code=1)
    assert json.loads(ended.stdout)["diverged"] == [{"variant": "softmax-rope", "seed": 0}]
    assert ended.stderr.splitlines()[-1] == "Error: 1 of 1 runs diverged: softmax-rope seed 0"


def test_a_full_disk_is_one_line_and_exit_1(monkeypatch, tmp_path):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    refused("train", "softmax-nope", "--smoke", code=1, part="No space left on device")
    assert list((tmp_path / "runs/training/smoke").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("train", "softmux-rope"), "did you mean 'softmax-rope'?"),
        (("train", "lssa", "--preset", "huge"), "preset 'huge' is unknown; known: smoke"),
        (("train", "lssa", "--smoke", "--paper"), "--smoke and --paper: allowed: one of them"),
        (("train",), "critattn train --list"),
        (("train", "lssa", "--smoke", "--corpus", "nowhere"), "corpus 'nowhere': is missing; allowed: a folder"),
        (("train", "lssa", "--smoke", "--corpus", "taken"), "corpus 'taken': is a file; allowed: a folder"),
        (("train", "lssa", "--smoke", "--corpus", ""), "corpus '': names no folder"),
        (("train", "lssa", "--smoke", "--out", ""), "--out '': names no folder"),
        (("train", "lssa", "--preset", ""), "preset '' is unknown"),
        (("train", "lssa", "--smoke", "--out", "taken"), "'taken': is a file"),
        (("extrapolate", "lenght_extrapolation"), "did you mean 'length_extrapolation'?"),
        (("extrapolate", "depth"), "critattn sweep depth"),
        (("sweep", "passkey"), "critattn extrapolate passkey"),
        (("threshold", "passkey"), "critattn extrapolate passkey"),
        (("extrapolate", "passkey", "--variants", "lssa,none"), "has no variant 'none'"),
        (("extrapolate", "passkey", "--seeds", "0,x"), "--seeds '0,x': allowed: whole numbers"),
        (("extrapolate", "passkey", "--seeds", f"0,{2**63}"), f"allowed: whole numbers from 0 to {2**63 - 1}"),
        (("extrapolate", "passkey", "--seeds", "1" * 5000), "1...': allowed: whole numbers from 0 to"),
        (("extrapolate", "passkey", "--seeds", "0,1", "--seed", "7"), "--seeds and --seed: allowed: one of them"),
        (("extrapolate", "passkey", "--steps", "3000000000"), "3000000000 is not in the range 1<=x<=10000000"),
        (("train", "lssa", "--steps", "9" * 20), "99999999999999999999 is not in the range 1<=x<=10000000"),
        (("extrapolate", "passkey", "--no-train"), "nothing is there in "),
        (("extrapolate", "passkey", "--smoke", "--preset", "small"), "--preset and --smoke: allowed: one of them"),
        (("extrapolate", "passkey", "--quick", "--csv", "."), "--csv '.': is a folder; allowed: a file"),
        (("extrapolate", "passkey", "--quick", "--csv", "taken/table.csv"), "--csv 'taken': is a file"),
        (
            ("extrapolate", "passkey", "--quick", "--csv", "/proc/none/table.csv"),
            "--csv '/proc/none': cannot be written",
        ),
        (("extrapolate", "passkey", "--quick", "--csv", ""), "--csv '': names no file; allowed: a file"),
        (("extrapolate", "passkey", "--quick", "--csv", "pipe"), "--csv 'pipe': is no regular file; allowed: a file"),
        (("extrapolate", "passkey", "--quick", "--csv", "/dev/null"), "--csv '/dev/null': is no regular file"),
        (("extrapolate", "passkey", "--quick", "--csv", "round"), "--csv 'round': cannot be written: Too many levels"),
        (("extrapolate", "passkey", "--quick", "--csv", "astray"), "cannot be written"),
        (("extrapolate", "twice.toml"), "study 'twice': seeds = [0, 0]"),
        (("extrapolate", "again.toml"), "study 'again': variants = ['lssa', 'lssa']; allowed: each variant once"),
        (("extrapolate", "other.toml"), "study 'other': kind = 'train'; allowed: training (for critattn extrapolate)"),
        (("extrapolate", "bare.toml"), "study 'bare': kind: missing; allowed: training (for critattn extrapolate) or"),
        (("extrapolate", "sweep.toml"), "study 'sweep': is a sweep; run it with: critattn sweep sweep.toml"),
        (("sweep", "twice.toml"), "run it with: critattn extrapolate twice.toml"),
        (("extrapolate", "passkey", "--quick", "--dtype", "float64"), "trained in float32; allowed: float32"),
        (("train", "lssa", "--smoke", "--dtype", "float64"), "trained in float32; allowed: float32"),
        (("extrapolate", "passkey", "--recorded", "--out", "x"), "--recorded: takes no --out"),
        (("extrapolate", "wrong.toml"), "study 'wrong': variants = 'lsssa'; did you mean 'lssa'?"),
        (("extrapolate", "strange.toml"), "study 'strange': variant: unknown key; did you mean 'variants'?"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(tmp_path, arguments, part):
    (tmp_path / "taken").write_text("")
    (tmp_path / "wrong.toml").write_text(STUDY.replace("softmax-nope", "lsssa"))
    (tmp_path / "strange.toml").write_text(STUDY.replace("variants", "variant"))
    (tmp_path / "twice.toml").write_text(STUDY.replace("[0, 1]", "[0, 0]"))
    (tmp_path / "again.toml").write_text(STUDY.replace("softmax-nope", "lssa").replace("softmax-rope", "lssa"))
    (tmp_path / "other.toml").write_text(STUDY.replace("training", "train"))
    (tmp_path / "bare.toml").write_text(STUDY.replace('kind = "training"', ""))
    (tmp_path / "sweep.toml").write_text(STUDY.replace("training", "sweep"))
    (tmp_path / "round").symlink_to("round")
    (tmp_path / "astray").symlink_to("/proc/none/table.csv")
    os.mkfifo(tmp_path / "pipe")
    refused(*arguments, part=part)


@pytest.mark.parametrize("arguments", [("train", "lssa", "--smoke"), ("extrapolate", "passkey", "--quick")])
def test_without_the_packages_that_train_the_way_to_get_them_is_said(monkeypatch, arguments):
    monkeypatch.setitem(sys.modules, "optax", None)
    refused(*arguments, part="training needs optax: pip install 'critattn[training]'")


def test_results_that_come_with_the_package_need_nothing_installed(monkeypatch, tmp_path):
    for name in ("optax", "equinox"):
        monkeypatch.setitem(sys.modules, name, None)
    shown = found("extrapolate", "length_extrapolation", "--recorded")
    assert (shown["runs"], shown["missing"], shown["preset"]) == (48, [], "small")
    assert {one["seeds"] for one in shown["table"]} == {4}
    loss = {one["variant"]: one["mean"] for one in shown["table"] if (one["quantity"], one["at"]) == ("loss", 8)}
    (published,) = [one for one in shown["ranking"] if one["key"] == "loss-8T"]
    assert published["here"] == [loss[name] for name in published["variants"]]
    assert shown["gradients"]["seeds"] == 4
    heads = found("extrapolate", "passkey", "--recorded", "--heads")["heads"]
    assert {one["heads"] for one in heads if one["prediction"] == "tail"} == {48}
    where = ("--no-train", "--heads", "--out", str(experiments.RECORDED))
    assert "pip install 'critattn[training]'" in run("extrapolate", "passkey", *where, code=2).stderr
    monkeypatch.setattr(experiments, "RECORDED", tmp_path / "none")
    line = refused("extrapolate", "passkey", "--recorded", part="no results of the preset 'small' come with this pack")
    assert line.endswith("train with: critattn extrapolate passkey")


def test_every_variant_is_listed_with_its_studies():
    listed = found("train", "--list")["variants"]
    assert [one["name"] for one in listed] == list(variants.every_variant())
    of = {one["name"]: one["studies"] for one in listed}
    assert of["lssar-p15"] == ["length_extrapolation", "needle", "normaliser_ablation", "passkey"]
    assert "lssar-p15" in run("train", "--list").stdout


def test_the_studies_are_the_promised_ones_and_no_attention_is_trained_twice():
    known = {one.name: one for one in experiments.experiments()}
    counts = {name: len(one.variants) * len(one.seeds) for name, one in known.items()}
    # twelve at four seeds; ALiBi, RoPE and fifteen combinations; four stages by three; two and seven gammas
    assert counts == {
        "alibi_mitigations": 17,
        "length_extrapolation": 48,
        "needle": 48,
        "normaliser_ablation": 12,
        "passkey": 48,
        "scaling_laws": 9,
    }
    assert known["length_extrapolation"].variants == variants.main_variants()
    alike = {}
    for one in known.values():
        for variant in one.variants:
            facts = {key: value for key, value in variant.to_json().items() if key != "name"}
            alike.setdefault(repr(facts), set()).add(variant.name)
    assert all(len(names) == 1 for names in alike.values())
    listed = {one["name"]: one for one in found("studies")["studies"] if one["kind"] == "training"}
    assert {name: one["units"] for name, one in listed.items()} == counts
    assert all(one["error"] is None for one in listed.values())


def test_a_study_trains_what_is_missing_and_its_table_is_that_of_the_records(monkeypatch, tmp_path):
    (tmp_path / "two.toml").write_text(STUDY)
    run("train", "softmax-nope", "--smoke", "--seed", 1)
    made = found("extrapolate", "two.toml")
    assert (made["runs"], made["missing"], made["diverged"]) == (4, [], [])
    values = {}
    for file in (tmp_path / "runs/training/smoke").glob("*.json"):
        record = json.loads(file.read_text(encoding="utf-8"))
        for one in record["losses"]:
            values.setdefault((record["config"]["variant"]["name"], one["multiple"]), []).append(one["window"])
    rows = {(one["variant"], one["at"]): one for one in made["table"] if one["quantity"] == "loss"}
    assert rows.keys() == values.keys()
    for key, both in values.items():
        wanted = stats.ttest_1samp(both, 0).confidence_interval()
        assert [rows[key][end] for end in ("mean", "low", "high")] == pytest.approx([np.mean(both), *wanted])

    def forbidden(*rest, **more):
        raise AssertionError

    monkeypatch.setattr(loop, "train", forbidden)
    again = run("extrapolate", "two.toml")
    assert "4 of 4 runs are there" in again.stderr
    assert "softmax-rope" in again.stdout
    assert found("extrapolate", "two.toml", "--no-train")["table"] == made["table"]
    (tmp_path / "runs/training/smoke/softmax-rope-seed1.json").unlink()
    partly = found("extrapolate", "two.toml", "--no-train", "--csv", "kept/table.csv")
    assert partly["missing"] == [{"variant": "softmax-rope", "seed": 1}]
    with (tmp_path / "kept" / "table.csv").open(encoding="utf-8") as file:
        kept = list(csv.DictReader(file))
    assert [(one["variant"], float(one["mean"])) for one in kept] == [
        (one["variant"], one["mean"]) for one in partly["table"]
    ]
    alone = {one["variant"] for one in kept if one["seeds"] == "1" and one["low"] == ""}
    assert alone == {"softmax-rope"}
    data = collected.dataset(
        experiments.experiment("two.toml"),
        collected.records(experiments.experiment("two.toml"), tmp_path / "runs" / "training"),
    )
    assert (data.attrs["units"], data.attrs["units_missing"]) == (4, 1)
    assert np.isnan(data["loss"].sel(variant="softmax-rope", seed=1)).all()


@pytest.fixture
def quick_heads(tmp_path):
    """A study of two attentions whose heads are read, as the command shows it, and the folder of its runs."""
    (tmp_path / "two.toml").write_text(STUDY)
    return found("extrapolate", "two.toml", "--quick", "--heads"), tmp_path / "runs/training/smoke"


HEADS = ("extrapolate", "two.toml", "--quick", "--no-train", "--heads")


def test_heads_are_read_once_and_lie_beside_their_runs(quick_heads, monkeypatch):
    made, place = quick_heads
    assert {(one["variant"], one["heads"]) for one in made["heads"]} == {("softmax-nope", 2), ("softmax-rope", 2)}
    assert [one["prediction"] for one in made["heads"]] == ["limit", "finite_dimension", "gap", "tail"] * 2
    read, real = [], validation.of_run

    def counted(run, *rest, **more):
        read.append(run.variant.name)
        return real(run, *rest, **more)

    monkeypatch.setattr(validation, "of_run", counted)
    (place / "softmax-rope-seed0.heads.csv").unlink()
    again = found(*HEADS)["heads"]
    assert read == ["softmax-rope"]
    assert again == made["heads"]
    (place / "softmax-nope-seed0.heads.csv").write_text("garbage")
    assert found(*HEADS)["heads"] == again
    assert read == ["softmax-rope", "softmax-nope"]
    shown = run("figures", "trained_transitions", "--experiment", "two.toml", "--quick", "--format", "svg").stdout
    assert "two.toml-quick" in shown
    (place / "softmax-nope-seed0.heads.csv").unlink()
    refused(
        *("figures", "trained_transitions", "--experiment", "two.toml", "--quick"),
        part="has no complete results with heads; train with: critattn extrapolate two.toml --quick --heads",
    )


def test_what_stops_the_heads_does_not_keep_the_tables_back(quick_heads):
    made, place = quick_heads
    weights = place / "softmax-rope-seed0.npz"
    sound = weights.read_bytes()
    damaged = {
        "are of another run: variant.": (place / "softmax-nope-seed0.npz").read_bytes(),
        "cannot be read: ": sound[: len(sound) // 2],
    }
    for said, content in damaged.items():
        weights.write_bytes(content)
        result = run(*HEADS, "--json", code=2)
        shown = json.loads(result.stdout)
        assert shown["table"] == made["table"]
        assert {one["variant"] for one in shown["heads"]} == {"softmax-nope"}
        (line,) = result.stderr.splitlines()
        assert "softmax-rope-seed0.npz" in line
        assert said in line
    weights.unlink()
    (place / "softmax-nope-seed0.npz").unlink()
    assert "no weights are there" in run(*HEADS, code=2).stderr


def test_heads_are_not_read_on_another_text(quick_heads, tmp_path):
    (tmp_path / "texts").mkdir()
    # enough of this Python's library for a part of it to be held out
    for source in sorted(Path(argparse.__file__).parent.glob("*.py"))[:80]:
        (tmp_path / "texts" / source.name).write_bytes(source.read_bytes())
    result = run(*HEADS, "--corpus", "texts", code=2)
    assert "are of another run: corpus was" in result.stderr
    assert "smoke" in result.stdout


def test_a_study_that_is_stopped_says_how_to_go_on(interrupted, tmp_path):
    (tmp_path / "two.toml").write_text(STUDY)
    stopped = run("extrapolate", "two.toml", "--seeds", "1,2", "--out", "kept", code=130)
    assert stopped.stderr.splitlines()[-1] == (
        "Interrupted. To go on: critattn extrapolate two.toml --seeds 1,2 --out kept"
    )


@pytest.mark.parametrize("name", ["train", "extrapolate"])
def test_help_has_an_example(name):
    assert f"Example: critattn {name}" in run(name, "--help").stdout


NORMS = ("query_gradient_norm", "key_gradient_norm")


def _put(folder, name, *, seed=0, corpus="aa", accuracies=(1.0, 0.5, 0.25, 0.0), **more):
    """A record of the preset small with a curve of one point, as if it had been trained."""
    config = {"variant": variants.named(name).to_json(), "preset": presets.preset("small").to_json(), "seed": seed}
    place = list(variants.every_variant()).index(name)
    common = {"length": 128, "right": 1, "prompts": 1, "interval": [0.0, 1.0]}
    record = {
        "format": results.FORMAT,
        "config": {**config, "corpus": corpus},
        "corpus": {"sha256": corpus},
        "losses": [{"multiple": one, "window": 2 + place / 64, "last": 2.0, **common} for one in (1, 2, 4, 8, 16)],
        "retrieval": [
            {"kind": kind, "distance": distance, "accuracy": accuracy, **common}
            for kind in ("passkey", "needle")
            for distance, accuracy in zip((64, 128, 192, 256), accuracies, strict=True)
        ],
        "curves": {"step": [10], "loss": [3.0], "gradient_norm": [1.0], **dict.fromkeys(NORMS, [[0.1, 0.2, 0.3]])},
        "rounded_loss": {"float32": 2.0, "float16": 2.0},
        "parameters": 1,
        "seconds": 1.0,
        **more,
    }
    results.write(results.Run(folder, variants.named(name), presets.preset("small"), seed).file(".json"), record)


@pytest.fixture
def kept(tmp_path):
    return tmp_path / "runs" / "training"


def test_replicates_and_several_texts_are_said(kept):
    for name in ("softmax-alibi", "softmax-rope", "alibi-c"):
        _put(kept, name, corpus=name)
    how = ("extrapolate", "alibi_mitigations", "--no-train")
    shown = found(*how)
    loss = next(one for one in shown["ranking"] if one["key"] == "alibi-loss")
    assert (loss["variants"], loss["left_out"]) == (["softmax-alibi", "softmax-rope"], {"alibi-c": "softmax-alibi"})
    assert shown["gradients"] is None
    text = " ".join(run(*how).stdout.split())
    assert "not ranked, because within T the layers are those of another variant: alibi-c (softmax-alibi)." in text
    assert "trained on 3 different texts" in text
    assert "passkey, 0 to T" in text


def test_only_figures_that_have_data_are_offered(kept):
    for one in experiments.experiment("scaling_laws").variants:
        _put(kept, one.name)
    for one in experiments.experiment("length_extrapolation").variants:
        for seed in range(4):
            _put(kept, one.name, seed=seed)
    last = [
        " ".join(run("extrapolate", study, "--no-train").stdout.split()).rpartition("critattn figures ")[2]
        for study in ("scaling_laws", "length_extrapolation")
    ]
    names = "loss_against_length retrieval_against_distance"
    assert last == [
        f"{names} gradient_in_training --experiment scaling_laws",
        f"{names} ranking gradient_in_training --experiment length_extrapolation",
    ]


def test_what_does_not_come_with_the_package_is_named(monkeypatch, kept):
    monkeypatch.setattr(experiments, "RECORDED", kept)
    _put(kept, "lssa")
    part = "no results of the preset 'small' with seeds 7, 8 come with this package"
    line = refused("extrapolate", "passkey", "--recorded", "--seeds", "7,08,8", part=part)
    assert line.endswith("train with: critattn extrapolate passkey --seeds 7,08,8")
    part = "no results of the preset 'small' for softmax-rope with seed 0 come with this package"
    refused("extrapolate", "passkey", "--recorded", "--variants", "softmax-rope", "--seeds", "0", part=part)
    shown = found("extrapolate", "passkey", "--recorded", "--variants", "lssa", "--seeds", "0,00")
    assert (shown["seeds"], shown["runs"], {row["seeds"] for row in shown["table"]}) == ([0], 1, {1})
    assert {row["low"] for row in shown["table"]} == {None}


def test_a_table_as_csv_is_checked_before_the_first_step(monkeypatch, tmp_path):
    (tmp_path / "two.toml").write_text(STUDY)

    def forbidden(*rest, **more):
        raise AssertionError

    monkeypatch.setattr(loop, "train", forbidden)
    refused("extrapolate", "two.toml", "--csv", "two.toml/table.csv", part="--csv 'two.toml': is a file")
    assert not (tmp_path / "runs").exists()


def test_a_table_is_written_through_a_link(kept, tmp_path):
    _put(kept, "softmax-alibi")
    how = ("extrapolate", "alibi_mitigations", "--no-train", "--csv")
    run(*how, "plain.csv")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "old.csv").write_text("old")
    # one that is there, and one that is not yet
    for name in ("old", "new"):
        link, target = tmp_path / f"{name}-link.csv", tmp_path / "elsewhere" / f"{name}.csv"
        link.symlink_to(target)
        run(*how, link)
        assert link.is_symlink()
        assert target.read_text() == (tmp_path / "plain.csv").read_text()


def test_a_file_in_place_of_the_folder_of_the_preset_is_found_before_the_first_step(monkeypatch, tmp_path):
    (tmp_path / "two.toml").write_text(STUDY)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "smoke").write_text("mine")

    def forbidden(*rest, **more):
        raise AssertionError

    monkeypatch.setattr(loop, "train", forbidden)
    for how in (("train", "softmax-nope", "--smoke"), ("extrapolate", "two.toml")):
        refused(*how, "--out", "here", part="--out 'here/smoke': is a file; allowed: a folder")
    assert (tmp_path / "here" / "smoke").read_text() == "mine"


def test_a_sparse_record_is_shown_and_a_damaged_one_is_named(tmp_path):
    (tmp_path / "two.toml").write_text(STUDY)
    how = ("train", "softmax-nope", "--smoke")
    run(*how)
    file = tmp_path / "runs/training/smoke/softmax-nope-seed0.json"
    record = json.loads(file.read_text(encoding="utf-8"))
    # what tables can do without
    for one in record["losses"]:
        del one["window_se"], one["last_se"]
    file.write_text(json.dumps(record), encoding="utf-8")
    assert "trained before" in run(*how).stdout
    record["losses"][2]["window"] = "x"
    file.write_text(json.dumps(record), encoding="utf-8")
    for asked in (how, ("extrapolate", "two.toml"), ("extrapolate", "two.toml", "--no-train")):
        line = refused(*asked, part="it has losses[2].window = 'x'; allowed: a finite number or null")
        assert f"record {str(file)!r}: cannot be read" in line


INTERRUPTED = """
import os, signal, sys, threading
from critattn.training import evaluation, records
# a shell starts commands in the background with interrupts ignored
signal.signal(signal.SIGINT, signal.default_int_handler)
real, seconds = records.evaluate, float(sys.argv.pop())
def evaluate(*rest):
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()
    while True:
        # each time anew: almost all of it is compilation, a second for each length
        evaluation._score.clear_cache()
        real(*rest)
records.evaluate = evaluate
from critattn.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.1, 0.3, 0.5])
def test_ctrl_c_while_it_is_measured_is_exit_130_in_a_process_of_its_own(tmp_path, seconds):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, "train", "sigmoid", "--smoke", "--steps", "2", str(seconds)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 130, (done.returncode, done.stderr)
    how = "critattn train sigmoid --preset smoke --seed 0 --steps 2"
    assert done.stderr.strip() == f"Interrupted. To go on: {how}"
    assert (tmp_path / "runs/training/smoke-2steps/sigmoid-seed0.checkpoint.npz").is_file()


def test_heads_without_a_prediction_or_a_transition_are_shown():
    none = dict.fromkeys(verdicts.KEYS)
    bare = {"variant": "first-stage-relu-l1", "control": "p", "value": 1.0, "measured": math.inf, "heads": 12}
    records = [{**none, **bare, "local": 0.25, "always": 0, "never": 7}]
    (shown,) = extrapolate_tables._heads(records)
    cells = [list(column.cells)[0].plain for column in shown.renderables[1].columns]
    assert cells == ["first-stage-relu-l1", "p", "1", "inf", "12", "0.25", "0", "7"]
    found = {"prediction": "needle", "compared": 5, "median": -0.3333333, "met": math.nan, "sides": 1.0}
    _, told = extrapolate_tables._heads([{**records[0], **found}])
    cells = [list(column.cells)[0].plain for column in told.renderables[1].columns]
    assert cells == ["first-stage-relu-l1", "needle", "5", "-0.333", "-", "1"]
