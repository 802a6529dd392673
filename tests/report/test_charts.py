"""What charts, their keys, the slider and the tables of classes say, without a browser."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import sparsebag.report
from sparsebag import CompressionReport
from sparsebag.judge.curve import RiskCurve
from sparsebag.report import charts
from sparsebag.report.changed_section import SHOWN_CLASSES, changed_section
from sparsebag.report.metrics import reliability_curve
from sparsebag.report.prediction_changes import prediction_changes
from sparsebag.report.slider import slider_points
from sparsebag.report.svg import AFTER, BEFORE, PAGE, Axis, Chart

CSS = (Path(sparsebag.report.__file__).parent / "page.css").read_text()


def curve_of(n_nodes, ratio, error=0.02):
    n_nodes, ratio = np.asarray(n_nodes, dtype=float), np.asarray(ratio, dtype=float)
    error = np.append(np.full(len(ratio) - 1, error), 0.0)
    members = np.maximum(n_nodes // 100, 1)
    share = n_nodes / n_nodes[-1]
    return RiskCurve(
        share, n_nodes, members, ratio, error, ratio, error, 0.2, "Brier score", "rehearsal"
    )


CURVE = curve_of([100, 400, 1600, 6400, 20000], [1.9, 1.2, 1.01, 0.99, 1.0])


def drawn_of(curve, kept):
    svg = ElementTree.fromstring(charts.curve_chart(curve, kept))
    marks = {m.get("class"): m for m in svg.findall("circle")}
    return svg, marks


@pytest.mark.parametrize("kept", range(5))
def test_the_kept_size_is_marked_where_it_is(kept):
    svg, marks = drawn_of(CURVE, kept)
    path = json.loads(marks["sb-marker"].get("data-path"))
    assert len(path["x"]) == len(path["y"]) == len(CURVE)
    for name in ("sb-marker", "sb-chosen"):
        at = float(marks[name].get("cx")), float(marks[name].get("cy"))
        assert at == (path["x"][kept], path["y"][kept])
    assert np.all(np.diff(path["x"]) > 0)
    assert np.argsort(path["y"]).tolist() == np.argsort(-CURVE.ratio).tolist()
    told = f"Kept: {CURVE.n_nodes[kept]:,.0f} of 20,000 nodes"
    assert told in svg.find("desc").text


def test_sizes_that_lose_far_more_do_not_flatten_the_others():
    curve = curve_of([10, 100, 1000, 10000], [np.inf, 40.0, 1.1, 1.0])
    svg, marks = drawn_of(curve, 2)
    path = json.loads(marks["sb-marker"].get("data-path"))
    assert path["y"][0] == path["y"][1] == 12.0, "at the upper edge"
    assert path["y"][3] - path["y"][2] > 50.0
    assert "nan" not in ElementTree.tostring(svg).decode()


def test_a_size_that_was_kept_is_in_sight_whatever_it_loses():
    _, marks = drawn_of(curve_of([1000, 10000], [5.0, 1.0]), 0)
    assert 12.0 < float(marks["sb-marker"].get("cy")) < 250.0


def test_members_that_are_no_trees_are_counted_as_members():
    curve = replace(CURVE, n_nodes=np.zeros(5))
    assert "of 200 members" in charts.curve_chart(curve, 1)
    point = slider_points(curve, 1)[1]
    assert point["nodes"] == "–"
    assert "nodes" not in point["words"]


def test_the_slider_has_the_figures_of_every_size():
    points = slider_points(CURVE, 2)
    assert [p["nodes"] for p in points] == ["100", "400", "1,600", "6,400", "20,000"]
    assert [p["share"] for p in points] == ["0.5 %", "2 %", "8 % (kept)", "32 %", "100 %"]
    assert points[2]["ratio"] == "1.010 ± 0.020"
    assert points[2]["change"] == "+1.0%"
    assert points[2]["risk"] == "0.202"
    assert points[-1]["ratio"] == "1.000 ± 0.000"


def test_the_sliders_words_hold_every_figure():
    """A screen reader hears the slider's value; what is not in it is not heard."""
    for point in slider_points(CURVE, 2):
        for name in ("share", "nodes", "members", "ratio", "change", "risk"):
            assert point[name] in point["words"], name
    words = [point["words"] for point in slider_points(CURVE, 2)]
    assert "1 member," in words[0]
    assert "200 members," in words[-1]


def test_before_and_after_are_told_apart_without_colour():
    rng = np.random.default_rng(0)
    p = rng.uniform(size=500)
    y = (rng.uniform(size=500) < p).astype(int)
    before, after = reliability_curve(y, 0.5 * p + 0.25), reliability_curve(y, p)
    drawn = ElementTree.fromstring(charts.reliability_chart(before, after))
    squares = [m for m in drawn.findall("rect") if BEFORE in m.get("style")]
    assert len(squares) == len(before.count)
    assert all(f"fill:{PAGE}" in m.get("style") for m in squares)
    discs = drawn.findall("circle")
    assert len(discs) == len(after.count)
    assert all(m.get("style") == f"fill:{AFTER}" for m in discs)
    assert "full ensemble: open" in charts.reliability_key()


def test_speed_is_also_compared_with_the_whole_ensemble_compiled():
    full = {"members": 1500.0, "ms / 1000 rows": 43.2, "ms, compiled": 2.25}
    small = {"members": 30.0, "ms / 1000 rows": 0.09, "ms, compiled": 0.09}
    report = CompressionReport({"full (1500)": full, "sparsebag (30)": small}, n_rows=9)
    assert "480 times as fast (25 times the ensemble compiled)" in report.sentence()


def test_of_many_classes_those_that_changed_most_are_shown():
    n = 300
    before = np.eye(n)
    after = before.copy()
    after[[7, 250]] = before[[250, 7]]
    labels = np.array([f"class {c}" for c in range(n)])
    found = prediction_changes(np.arange(n), before, after, labels)
    open_part, _, folded = changed_section(found).partition("<details>")
    shown = re.findall(r"<th scope='row'>(class \d+)</th>", open_part)
    assert len(shown) == SHOWN_CLASSES
    assert shown[:2] == ["class 7", "class 250"]
    assert f"The other {n - SHOWN_CLASSES} classes" in folded
    others = re.findall(r"<th scope='row'>(class \d+)</th>", folded)
    assert sorted(shown + others) == sorted(labels)
    few = replace(found, classes=found.classes[:SHOWN_CLASSES])
    assert "The other" not in changed_section(few)


@pytest.mark.parametrize("high", [10.0, 1500.0, 100_000.0])
def test_the_last_label_of_an_axis_is_not_cut(high):
    chart = Chart(Axis("members", 0.0, high), Axis("weight", 0.0, 1.0), width=560.0)
    last = [
        label
        for label in ElementTree.fromstring(chart.svg("c", "t", "d")).findall("text")
        if float(label.get("x")) > 500.0
    ][-1]
    letters = 3.6 * len(last.text)
    end = float(last.get("x")) + (0.0 if last.get("text-anchor") == "end" else letters)
    assert end <= 560.0


def test_print_has_a_colour_of_its_own_for_all_that_dark_mode_changes():
    """Or a dark-mode reader's pale green is printed on white paper."""
    dark, printed = CSS.split("prefers-color-scheme: dark")[1], CSS.split("@media print")[1]
    changed = set(re.findall(r"(--sb-[a-z-]+):", dark.split("}")[0]))
    assert changed - {"--sb-shade"} <= set(re.findall(r"(--sb-[a-z-]+):", printed.split("}")[0]))
    assert "color-scheme: light" in printed
    assert len(changed) > 10
