import csv
import dataclasses
import json

import numpy as np
import pytest
import tiny_models
from click.testing import CliRunner
from matplotlib.text import Text

from critattn import plotting, rooms, tables
from critattn.cli import inspections, main, reproduce, trainings
from critattn.cli.common import Settings
from critattn.errors import SpecError
from critattn.models import inspection
from critattn.models.agreement import validation
from critattn.models.opening import opened
from critattn.models.scale_runs import ScalePlan, run_scale, scale_sweep
from critattn.models.texts import texts as texts_of
from critattn.sweeps import Axes, SweepSpec, load_study, run_sweep, store_path
from critattn.theory import simplex
from critattn.training import collapse, collected, experiments, ranking
from critattn.training.published import PUBLISHED

NAMES = rooms.names("figures")
SMALL = {
    "angle_ratio": {"n": (24,), "d": (2, 24), "rho": (0.0, 0.3, 0.6, 0.9), "gamma": (0.0, 1.0, 2.0, 4.0)},
    "gradient_norm": {"n": (24,), "d": (2, 24), "rho": (0.0, 0.3, 0.6, 0.9), "gamma": (0.0, 1.0, 2.0, 4.0)},
    "order_parameters": {"n": (8, 16), "gamma": (0.0, 1.0, 2.0, 3.0, 4.0)},
    "finite_dimension": {"n": (16, 32), "d": (8, 16), "replicates": 2},
    "depth": {"n": (8,), "gamma": (1.0, 4.0)},
    "relu_power": {"n": (32, 64), "d": (16, 64), "rho": (0.3,), "replicates": 2},
    "random_scores": {"n": (64,), "tau": (0.0, 0.1, 0.2, 0.3, 0.4), "gamma": (0.0, 2.0, 4.0, 8.0)},
}


SOURCES = {name: rooms.load("figures", name).DATA for name in NAMES}
OF_TABLES = [name for name in NAMES if tables.named(SOURCES[name]) is not None]
OF_MODELS = [name for name in NAMES if SOURCES[name] in inspections.KINDS]
OF_TRAINING = [name for name in NAMES if SOURCES[name].startswith("training:")]
OF_HEADS = [name for name in NAMES if SOURCES[name].startswith(trainings.HEADS)]
OF_STUDIES = [name for name in NAMES if name not in (*OF_TABLES, *OF_MODELS, *OF_TRAINING, *OF_HEADS)]
# measured where the figure is drawn
MEASURED = ("format_thresholds",)
# transitions in p, for which the width in gamma is not
IN_P = ("critical_p",)
# in fast tests the figures of tables, whose data take a second at most, and most of those of trained models
LONGER = (*OF_STUDIES, "ranking", "retrieval_against_distance", "head_map", "layer_profile")
SOME = [name if name not in LONGER else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
PLAN = inspection.Plan((16, 48), windows=1, rows=8, probes=2)
# of the results that come with the package
TRAINED = """
kind = "training"
title = "Four attentions"
measures = ["loss", "passkey"]
preset = "small"
seeds = [0, 1, 2]
variants = ["softmax-rope", "lssa", "sigmoid", "cosine-logn-low"]
"""
FOUR = ["softmax-rope", "lssa", "sigmoid", "cosine-logn-low"]
SCALES = ScalePlan((16, 48), windows=1, rows=8, factors=(0.5, 1.0, 2.0))


def study_of(name):
    return SOURCES[name].removeprefix("study:")


def shrunken(study) -> SweepSpec:
    spec = load_study(study).spec(quick=True)
    axes: Axes = dataclasses.replace(spec.axes, **SMALL[study])
    return dataclasses.replace(spec, axes=axes)


@pytest.fixture(scope="module")
def datasets():
    return {study: run_sweep(shrunken(study)) for study in SMALL}


@pytest.fixture(scope="module")
def closed_forms():
    return {name: tables.make(name) for name in tables.names()}


@pytest.fixture(scope="module")
def model_store(tmp_path_factory):
    """Stores of a small random model: every head read, and its losses under factors."""
    root = tmp_path_factory.mktemp("stores")
    model, encoder = opened(str(tiny_models.write(tmp_path_factory.mktemp("models") / "tiny")))
    chosen = texts_of(("topics", "licence"))
    inspection.inspect(model, encoder, chosen, PLAN, store=root / inspections.DEFAULT)
    run_scale(model, encoder, chosen, SCALES, store=root / f"{inspections.DEFAULT}-scale")
    return root


@pytest.fixture(scope="module")
def inspected(model_store):
    return {source: inspections.dataset(source, store=str(model_store))[1] for source in inspections.KINDS}


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """A study of four attentions whose results come with the package."""
    path = tmp_path_factory.mktemp("studies") / "four.toml"
    path.write_text(TRAINED)
    return path


@pytest.fixture(scope="module")
def trained(four):
    label, data = trainings.dataset("training:x", name=str(four), store=str(four.parent))
    assert label == f"{four}-recorded"
    return data


@pytest.fixture(scope="module")
def trained_heads(four):
    return trainings.dataset("training-heads:x", name=str(four), store=str(four.parent))[1]


def recorded(name, seed):
    return json.loads((experiments.RECORDED / "small" / f"{name}-seed{seed}.json").read_text())


@pytest.fixture
def data_of(request, closed_forms):
    """Maps a figure to its data; studies and models run only where one is asked for."""

    def find(name):
        if name in OF_TRAINING:
            return request.getfixturevalue("trained")
        if name in OF_HEADS:
            return request.getfixturevalue("trained_heads")
        if name in OF_MODELS:
            return request.getfixturevalue("inspected")[SOURCES[name]]
        table = tables.named(SOURCES[name])
        return request.getfixturevalue("datasets")[study_of(name)] if table is None else closed_forms[table]

    return find


@pytest.fixture(scope="module")
def drawn():
    return {}


@pytest.fixture
def figure_of(data_of, drawn):
    def find(name):
        if name not in drawn:
            drawn[name] = rooms.load("figures", name).draw(data_of(name))
        return drawn[name]

    return find


def texts(figure):
    figure.draw_without_rendering()
    return [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]


def panels(figure):
    return [axes for axes in figure.axes if axes.axison]


def test_the_figures_that_the_package_promises():
    studies = "angle_ratio collapse critical_p depth finite_dimension gradient_norm order_parameters random_scores"
    normalisers = {"family", "relu_power_weights", "scaling_laws", "softplus_entropy"}
    number_formats = {"blind_heads", "blind_matrix", "format_thresholds", "position_rounding"}
    assert studies.split() == OF_STUDIES
    assert OF_MODELS == ["head_map", "heads_plane", "layer_profile", "perplexity_scale", "predicted_multipliers"]
    assert set(OF_TABLES) == normalisers | number_formats
    assert OF_TRAINING == ["gradient_in_training", "loss_against_length", "ranking", "retrieval_against_distance"]
    assert OF_HEADS == ["trained_transitions"]


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_has_data_and_a_title(name):
    table = tables.named(SOURCES[name])
    study = study_of(name).partition(":")[2] or study_of(name)
    assert table in tables.names() if table else name in OF_MODELS or study in rooms.names("simulations")
    assert rooms.load("figures", name).TITLE


@pytest.mark.parametrize("name", SOME)
def test_text_is_legible_and_inside_the_figure(figure_of, name):
    figure = figure_of(name)
    found = texts(figure)
    assert min(text.get_fontsize() for text in found) >= 6
    box = figure.bbox.padded(1)
    renderer = figure.canvas.get_renderer()
    ticks = {
        text for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for text in axis.get_ticklabels(which="both")
    }
    outside = [
        text.get_text()
        for text in found
        if text not in ticks and not box.contains(*text.get_window_extent(renderer).min)
    ]
    assert outside == []


@pytest.mark.parametrize("name", SOME)
def test_axis_labels_do_not_overlap(figure_of, name):
    figure = figure_of(name)
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    labels = [
        label for axes in figure.axes for label in (axes.xaxis.label, axes.yaxis.label, axes.title) if label.get_text()
    ]
    boxes = [label.get_window_extent(renderer) for label in labels]
    for index, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[index + 1 :]), labels[index].get_text()


@pytest.mark.parametrize("name", SOME)
def test_axes_are_labelled(figure_of, name):
    labelled = panels(figure_of(name))
    assert labelled
    for axes in labelled:
        shared_x = axes.get_shared_x_axes().get_siblings(axes)
        shared_y = axes.get_shared_y_axes().get_siblings(axes)
        assert any("$" in other.get_xlabel() for other in shared_x) or axes.get_label() == "<colorbar>"
        named = any("$" in other.get_ylabel() or "cos" in other.get_ylabel() for other in shared_y)
        words = (label.get_text() for other in shared_y for label in other.get_yticklabels())
        assert named or any(word[:1].isalpha() for word in words)


@pytest.mark.parametrize("name", [name for name in OF_TABLES if name not in MEASURED])
def test_captions_of_closed_forms_say_that_nothing_is_simulated(closed_forms, name):
    data = closed_forms[tables.named(SOURCES[name])]
    caption = rooms.load("figures", name).caption(data)
    assert caption.endswith(".")
    assert "othing is simulated" in caption
    assert f"n = {data['n'].values[0]:,.0f}" in caption
    assert "docs/theory.md" in caption or "[Chen 2025" in caption
    unverified = [law for law, mark in zip(*map(np.atleast_1d, marks(data)), strict=True) if "nverified" in mark]
    assert all(law in caption.partition("Unverified in part: ")[2] for law in unverified)


def marks(data):
    return (data["law"].values, data["mark"].values) if "law" in data.coords else ([], [])


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_STUDIES)
def test_captions_say_what_was_done(datasets, name):
    module, data = rooms.load("figures", name), datasets[study_of(name)]
    caption = module.caption(data)
    assert caption.endswith(".")
    assert ("4.394/((1-ρ) log n)" in caption) == (name not in IN_P)
    assert f"n = {data['n'].values[0]:,.0f}" in caption
    if "replicate" in data.dims:
        assert "seed 0" in caption
        assert "draw" in caption
    else:
        assert "deterministic" in caption


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_files_are_the_same_twice(data_of, name, tmp_path):
    module, data = rooms.load("figures", name), data_of(name)
    made = []
    for where in "ab":
        origin = plotting.provenance("critattn figures", data)
        files = plotting.save(
            module.draw(data), tmp_path / where / name, caption=module.caption(data), provenance=origin
        )
        made.append([file.read_bytes() for file in files])
    assert made[0] == made[1]


@pytest.mark.slow
def test_order_parameters_have_the_closed_form_under_every_point(datasets):
    module, data = rooms.load("figures", "order_parameters"), datasets["order_parameters"]
    rho, gamma = data["rho"].item(), data["gamma"].values
    for name, closed_form in module.CLOSED_FORMS.items():
        for n in data["n"].values:
            simulated = data[name].sel(n=n).squeeze().values
            np.testing.assert_allclose(simulated, closed_form(gamma, rho, np.log(n)), rtol=2e-4, atol=2e-5)


@pytest.mark.slow
def test_critical_line_of_the_maps_is_the_one_of_theory(figure_of):
    for name in ("angle_ratio", "gradient_norm"):
        for axes in [panel for panel in panels(figure_of(name)) if panel.get_label() != "<colorbar>"]:
            (line,) = axes.get_lines()
            rho, gamma = line.get_data()
            np.testing.assert_allclose(gamma, simplex.critical_gamma(rho))


@pytest.mark.parametrize("name", OF_MODELS)
def test_captions_of_models_say_what_was_read_and_how(inspected, name):
    data = inspected[SOURCES[name]]
    caption = rooms.load("figures", name).caption(data)
    assert caption.endswith(".")
    assert "texts topics and licence, 1 window of each" in caption
    assert "8 " in caption
    assert "docs/theory.md (16.1)" in caption
    assert "smollm2 (tiny, llama)" in caption
    command = caption.partition("Data: ")[2]
    assert command.startswith("critattn inspect smollm2 --length 16,48 --windows 1 --rows 8 ")
    assert "--text topics --text licence" in command
    assert ("--sweep-scale" in command) == (SOURCES[name] == "intervention")


def test_thick_lines_are_percentiles_of_the_heads(figure_of, inspected):
    point = inspected["inspection"]["operating_point"].mean(["window", "text"])
    for sink, panel in enumerate(panels(figure_of("heads_plane"))[:2]):
        for q, line in zip((5, 50, 95), panel.get_lines()[:3], strict=True):
            expected = [np.percentile(point.sel(n=n).isel(sink=sink), q) for n in (16, 48)]
            np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-12)


def test_the_map_shows_means_of_operating_points(figure_of, inspected):
    point = inspected["inspection"]["operating_point"].mean(["window", "text"]).isel(n=-1)
    for sink, panel in enumerate(panels(figure_of("head_map"))[:2]):
        (image,) = panel.get_images()
        np.testing.assert_allclose(2.0 ** image.get_array(), point.isel(sink=sink).values, rtol=1e-6)


@pytest.mark.parametrize("name", OF_MODELS)
def test_one_length_one_layer_and_no_gradient_can_be_drawn(inspected, name):
    data = inspected[SOURCES[name]].isel(n=[0])
    if "layer" in data.dims:
        data = data.isel(layer=[1]).drop_vars(["gradient_norm", "gradient_norm_se"])
    if "factor" in data.dims:
        data = data.sel(factor=[1.0])
    module = rooms.load("figures", name)
    assert texts(module.draw(data))
    caption = module.caption(data)
    assert "Hutchinson" not in caption
    assert "of each of" not in caption.partition("; ")[0]


def test_the_verdicts_in_the_panels_are_those_of_the_agreement(figure_of, inspected):
    data = inspected["inspection"]
    found = iter(panels(figure_of("predicted_multipliers")))
    for sink in range(2):
        for name in ("annealed", "random_energy", "tail", "spread"):
            predicted, measured = (
                data[one].isel(sink=sink).values for one in (f"predicted_{name}", "critical_multiplier")
            )
            share = validation({name: predicted}, measured)[name].within
            (text,) = next(found).texts
            assert f"within 25 %: {share * 100:.0f} %" in text.get_text()


def test_curves_of_perplexity_are_exponentials_of_mean_losses(figure_of, inspected):
    data, panel = inspected["intervention"], panels(figure_of("perplexity_scale"))[0]
    expected = np.exp(data["loss"].mean(["text", "window"]))
    drawn = [line.get_ydata() for line in panel.get_lines() if len(line.get_xdata()) == data.sizes["factor"]]
    np.testing.assert_allclose(drawn, expected.transpose("n", "factor").values, rtol=1e-12)
    assert len(drawn) == len(scale_sweep(data).best)


@pytest.mark.parametrize("name", OF_TRAINING)
def test_captions_of_trainings_say_what_was_trained_and_how(trained, four, name):
    caption = rooms.load("figures", name).caption(trained)
    assert caption.endswith(f"Data: critattn extrapolate {four} --recorded, preset small.")
    assert "3 layers, width 128 and 4 heads, trained at T = 128 bytes for 600 steps of 32 sequences, 50% of" in caption
    assert "seeds 0, 1, 2" in caption
    lost = trained.isel(seed=[0]).assign_attrs(units_missing=1)
    assert "One run each, seed 0" in rooms.load("figures", name).caption(lost)
    assert "1 of 12 runs are not there" in rooms.load("figures", name).caption(lost)


def test_curves_of_loss_are_means_of_the_records(figure_of):
    for panel, key in zip(panels(figure_of("loss_against_length")), ("window", "last"), strict=True):
        lines = [line for line in panel.get_lines() if not str(line.get_label()).startswith("_")]
        assert [line.get_label() for line in lines] == FOUR
        # each of three seeds of four as a thin line
        assert sum(len(line.get_xdata()) == 5 for line in panel.get_lines()) == 16
        for line in lines:
            each = [recorded(line.get_label(), seed) for seed in range(3)]
            wanted = np.mean([[one[key] for one in record["losses"]] for record in each], axis=0)
            np.testing.assert_allclose(line.get_ydata(), wanted, rtol=1e-12)
            np.testing.assert_array_equal(line.get_xdata(), 128 * 2 ** np.arange(5))


@pytest.mark.slow
def test_retrieval_is_drawn_at_the_distances_of_the_records(figure_of):
    found = recorded("lssa", 0)["retrieval"]
    for panel, kind in zip(panels(figure_of("retrieval_against_distance")), ("passkey", "needle"), strict=True):
        measured = [one["distance"] for one in found if one["kind"] == kind]
        line = next(line for line in panel.get_lines() if line.get_label() == "lssa")
        there = np.asarray(line.get_xdata())[np.isfinite(line.get_ydata())]
        np.testing.assert_array_equal(there, measured)


def test_gradients_are_drawn_as_the_collapse_is_computed(figure_of):
    curve, end = panels(figure_of("gradient_in_training"))
    row = collapse.gradient_collapse(
        [recorded("cosine-logn-low", seed) for seed in range(3)] + [recorded("cosine-logn-high", 0)]
    ).rows[0]
    point = next(line for line in end.get_lines() if len(line.get_xdata()) == 1)
    assert point.get_xdata()[0] == 1
    assert point.get_ydata()[0] == pytest.approx(row.share)
    bar = next(line for line in end.get_lines() if list(line.get_xdata()) == [1, 1] and max(line.get_ydata()) < 1)
    np.testing.assert_allclose(bar.get_ydata(), [row.share_low, row.share_high])
    (line,) = curve.get_lines()
    assert line.get_label() == "1"
    assert len(line.get_ydata()) == 60


@pytest.mark.slow
def test_points_of_the_ranking_are_published_and_found_here(figure_of, trained):
    column = next(one for one in PUBLISHED if one.key == "loss-8T")
    place = [one.published.key for one in ranking.rankings(trained)].index("loss-8T")
    points = [(line.get_xdata()[0], line.get_ydata()[0]) for line in panels(figure_of("ranking"))[place].get_lines()]
    names = ["softmax-rope", "lssa", "sigmoid"]  # cosines with log n are not in that table
    here = [collected.over_seeds(trained["loss"].sel(variant=name, multiple=8).values).value for name in names]
    assert points == [(column.values[name], pytest.approx(value)) for name, value in zip(names, here, strict=True)]


def test_heads_are_drawn_beside_their_own_transitions(figure_of, trained_heads):
    first, second = panels(figure_of("trained_transitions"))
    assert [text.get_text() for text in first.get_yticklabels()] == FOUR
    files = [experiments.RECORDED / "small" / f"{name}-seed{seed}.heads.csv" for name in FOUR for seed in range(3)]
    rows = [row for file in files for row in csv.DictReader(file.read_text("utf-8").splitlines())]
    assert trained_heads.sizes["row"] == len(rows) == 4 * 36
    dots = [len(one.get_offsets()) for one in first.collections]
    assert sum(dots) == len(rows)
    medians = [line for line in first.get_lines() if len(line.get_xdata()) == 1]
    for place, (name, line) in enumerate(zip(FOUR, medians, strict=True)):
        ratios = [float(row["value"]) / float(row["measured"]) for row in rows if row["variant"] == name]
        assert (line.get_xdata()[0], line.get_ydata()[0]) == (pytest.approx(np.median(ratios)), place)
    # a head is left out where its prediction or its transition is infinite
    names = [text.get_text() for text in second.get_yticklabels()]
    assert names == ["$1/(1-\\rho)$", "$n$, $d$ finite", "largest cosine", "tail of scores", "equal cosines"]
    tails = [one for one in rows if np.isfinite(float(one.get("predicted:tail", "nan")))]
    ratios = [float(one["predicted:tail"]) / float(one["measured"]) for one in tails]
    middle = [line for line in second.get_lines() if len(line.get_xdata()) == 1][3]
    assert middle.get_xdata()[0] == pytest.approx(np.median(ratios))


def test_heads_that_are_local_at_every_value_or_at_none_stand_at_the_edges(trained_heads):
    module = rooms.load("figures", "trained_transitions")
    changed = trained_heads.copy(deep=True)
    rows = np.flatnonzero(changed["of"].values == "cosine-logn-low")
    changed["measured"].values[rows[:20]] = 0.0
    changed["measured"].values[rows[20:]] = np.inf
    negative = np.flatnonzero(changed["of"].values == "softmax-rope")[0]
    ratio = float(changed["value"][negative] / changed["measured"][negative])
    for name in ("value", "measured"):
        changed[name].values[negative] *= -1
    ratios = module.own(changed)
    assert list(ratios) == FOUR
    # a negative gain turns both round
    assert float(ratios["softmax-rope"][0]) == pytest.approx(ratio)
    assert np.isposinf(ratios["cosine-logn-low"].values).sum() == 20
    first = panels(module.draw(changed))[0]
    low, high = first.get_xlim()
    at = np.concatenate([one.get_offsets()[:, 0] for one in first.collections])
    assert len(at) == changed.sizes["row"]
    assert np.all((at >= low) & (at <= high))
    medians = [line.get_xdata()[0] for line in first.get_lines() if len(line.get_xdata()) == 1]
    # twenty of thirty-six are local at every value
    assert medians[FOUR.index("cosine-logn-low")] > high / 1.1


def test_the_caption_of_heads_says_which(trained_heads, four, tmp_path):
    caption = rooms.load("figures", "trained_transitions").caption(trained_heads)
    assert "144 heads of 4 variants, seeds 0, 1, 2, read on the last rows of held-out windows of n = 128" in caption
    assert caption.endswith(f"Data: critattn extrapolate {four} --heads --recorded, preset small.")
    one = trained_heads.isel(row=trained_heads["of"].values == "lssa")
    assert "36 heads of 1 variant, seeds" in rooms.load("figures", "trained_transitions").caption(one)
    said = trainings.dataset("training-heads:x", name="passkey", quick=True, store=str(tmp_path))
    assert said == (
        "study 'passkey' has no complete results with heads; train with: "
        f"critattn extrapolate passkey --quick --heads --out {tmp_path}/training"
    )


@pytest.mark.parametrize("name", OF_TRAINING)
def test_one_run_without_prompts_is_drawn_or_refused(trained, name):
    data, module = trained.isel(seed=[0], variant=[0], distance=[]), rooms.load("figures", name)
    if name == "loss_against_length":
        assert texts(module.draw(data))
    else:
        with pytest.raises(SpecError, match="no retrieval was measured|no published column|no variant has log n"):
            module.draw(data)


@pytest.fixture
def command(tmp_path, monkeypatch):
    monkeypatch.setenv("CRITATTN_STORE", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        return CliRunner().invoke(main, ["figures", *arguments])

    return run


@pytest.fixture
def stored(command):
    def put(study, *, quick):
        path = store_path(study, quick=quick)
        run_sweep(shrunken(study), path)
        return path

    return put


@pytest.mark.slow
def test_command_draws_from_the_store(command, stored, tmp_path):
    stored("depth", quick=True)
    done = command("depth", "--out", "drawn", "--format", "svg", "--json")
    assert done.exit_code == 0, done.output
    (figure,) = json.loads(done.stdout)["figures"]
    assert figure["name"] == "depth"
    assert figure["store"] == "depth-quick"
    assert sorted(path.name for path in (tmp_path / "drawn").iterdir()) == ["depth.md", "depth.svg"]
    assert figure["data_sha256"] in (tmp_path / "drawn" / "depth.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_full_data_are_preferred(command, stored):
    stored("depth", quick=True)
    stored("depth", quick=False)
    done = command("depth", "--format", "svg", "--json")
    assert json.loads(done.stdout)["figures"][0]["store"] == "depth"
    again = command("depth", "--format", "svg", "--json", "--quick")
    assert json.loads(again.stdout)["figures"][0]["store"] == "depth-quick"


def test_command_draws_an_inspection_by_its_name(command, model_store, tmp_path):
    whole = command("heads_plane", "--store", str(model_store), "--format", "svg", "--json")
    assert whole.exit_code == 0, whole.output
    assert json.loads(whole.stdout)["figures"][0]["store"] == "inspect-smollm2"
    assert "made by: critattn figures heads_plane\n" in (tmp_path / "figures_out" / "heads_plane.md").read_text("utf-8")
    for named in ("inspect-other", "inspect-other-scale"):
        done = command("perplexity_scale", "--inspection", named, "--store", str(model_store))
        assert done.exit_code == 2
        assert "no complete intervention 'inspect-other-scale'" in done.stderr
        assert f"critattn inspect smollm2 --sweep-scale --store {model_store}" in done.stderr
        assert done.stderr.count("\n") == 1


def test_command_draws_a_training_study_by_its_name(command, four, tmp_path):
    done = command("loss_against_length", "--experiment", str(four), "--format", "svg", "--json")
    assert done.exit_code == 0, done.output
    (figure,) = json.loads(done.stdout)["figures"]
    assert figure["data"] == "training:length_extrapolation"
    text = (tmp_path / "figures_out" / "loss_against_length.md").read_text("utf-8")
    assert f"made by: critattn figures loss_against_length --experiment {four} --full\n" in text
    nothing = command("ranking", "--experiment", "scaling_laws", "--quick")
    assert nothing.exit_code == 2
    assert "train with: critattn extrapolate scaling_laws --quick" in nothing.stderr
    assert nothing.stderr.count("\n") == 1


def test_the_main_job_takes_an_inspection_that_is_there(model_store, tmp_path):
    there, nothing = (reproduce._Run(Settings(), True, str(root), "out") for root in (model_store, tmp_path))
    for source in inspections.KINDS:
        assert there.dataset(source, {})["n"].values.tolist() == [16, 48]
        assert nothing.dataset(source, {}).startswith(f"no complete {source}")
    assert list(tmp_path.iterdir()) == []


def test_a_store_of_something_else_is_no_inspection(command, model_store, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "inspect-x").symlink_to(model_store / "inspect-smollm2-scale")
    done = command("layer_profile", "--inspection", "inspect-x")
    assert done.exit_code == 2
    assert "holds data of the kind 'intervention'; allowed: 'inspection'" in done.stderr


def test_missing_data_name_the_command_that_makes_them(command, tmp_path):
    done = command("depth")
    assert done.exit_code == 2
    assert "critattn sweep depth" in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_deleted_data_give_a_clear_error(command, stored):
    path = stored("depth", quick=True)
    for chunk in (path / "estimates" / "c").rglob("*"):
        if chunk.is_file():
            chunk.unlink()
    done = command("depth", "--quick")
    assert done.exit_code == 2
    assert "no complete data" in done.stderr
    assert "critattn sweep depth --quick" in done.stderr


def test_run_makes_what_is_missing(command, tmp_path):
    done = command("depth", "--run", "--format", "svg", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["figures"][0]["store"] == "depth-quick"
    assert (tmp_path / "runs" / "depth-quick" / "zarr.json").is_file()


@pytest.mark.slow
def test_without_names_what_is_there_is_drawn_and_what_is_not_is_named(command, stored):
    stored("order_parameters", quick=True)
    done = command("--format", "svg", "--json")
    assert done.exit_code == 0, done.output
    payload = json.loads(done.stdout)
    there = [name for name in (*OF_TRAINING, *OF_HEADS) if not isinstance(trainings.dataset(SOURCES[name]), str)]
    wanted = sorted(["collapse", "order_parameters", *OF_TABLES, *there])
    assert [figure["name"] for figure in payload["figures"]] == wanted
    assert "depth" in payload["missing"]
    assert "critattn sweep depth" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [(["no_such"], "no_such"), (["depth", "--format", "jpeg"], "jpeg"), (["dept"], "did you mean 'depth'")],
)
def test_bad_input_is_one_line_and_exit_2(command, arguments, hint):
    done = command(*arguments)
    assert done.exit_code == 2
    assert hint in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_an_output_folder_that_cannot_be_made_is_one_line(command, stored, tmp_path):
    stored("depth", quick=True)
    (tmp_path / "taken").write_text("")
    done = command("depth", "--out", "taken")
    assert done.exit_code == 2
    assert "taken" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("choice", [[], ["--quick"], ["--full"]])
def test_a_figure_of_closed_forms_needs_no_store(command, tmp_path, choice):
    done = command("scaling_laws", "--out", "drawn", "--format", "svg", "--json", *choice)
    assert done.exit_code == 0, done.output
    (figure,) = json.loads(done.stdout)["figures"]
    assert figure["data"] == figure["store"] == "table:scaling_laws"
    assert figure["data_sha256"] == plotting.fingerprint(tables.make("scaling_laws"))
    text = (tmp_path / "drawn" / "scaling_laws.md").read_text(encoding="utf-8")
    assert "made by: critattn figures scaling_laws\n" in text
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_an_empty_store_still_gives_the_figures_of_closed_forms(command):
    done = command("--format", "svg", "--json")
    assert done.exit_code == 0, done.output
    payload = json.loads(done.stdout)
    assert {figure["name"] for figure in payload["figures"]} == {*OF_TABLES, *(set(NAMES) - {*payload["missing"]})}
    there = [name for name in OF_TRAINING if not isinstance(trainings.dataset(SOURCES[name]), str)]
    assert payload["missing"] == sorted({*OF_STUDIES, *OF_MODELS, *OF_TRAINING} - {*there})
    assert "critattn sweep depth" in done.stderr
    assert "critattn inspect smollm2" in done.stderr
