"""What charts, their keys, the slider and the tables of classes say, without a browser."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import sparsebag.report
from sparsebag import CompressionReport
from sparsebag.report import charts
from sparsebag.report.changed_section import SHOWN_CLASSES, changed_section
from sparsebag.report.frontier import Frontier
from sparsebag.report.metrics import reliability_curve
from sparsebag.report.page_sections import cards
from sparsebag.report.prediction_changes import prediction_changes
from sparsebag.report.slider import slider_points
from sparsebag.report.svg import AFTER, BEFORE, PAGE, Axis, Chart
from sparsebag.selection.table import PathTable

CSS = (Path(sparsebag.report.__file__).parent / "page.css").read_text()


def frontier_of(k, chosen=0):
    k = np.asarray(k)
    risk = 0.1 + 1.0 / k
    kept = np.arange(len(k)) == chosen
    table = PathTable(k, 99 * k, 5000 * k, risk, 0.1 * risk, 1.2 * risk, kept)
    return Frontier(table, 0.01 * k, np.ones(len(k), dtype=bool), "Brier score")


BUDGET = [*range(1, 31), 1500]


def points_of(mark):
    return np.array([[float(v) for v in pair.split(",")] for pair in mark.get("points").split()])


@pytest.mark.parametrize("by", ["members", "bytes", "latency"])
def test_sizes_nobody_judged_are_not_drawn_as_judged(by):
    frontier = frontier_of(BUDGET, chosen=29)
    svg = ElementTree.fromstring(charts.frontier_chart(frontier, by))
    path = ElementTree.fromstring(charts.frontier_chart(frontier_of(BUDGET[:-1]), by))
    lines = svg.findall(".//polyline")
    dotted = [line for line in lines if "dasharray:1 5" in line.get("style")]
    others = [line for line in lines if line not in dotted]
    edge = max(points_of(line)[:, 0].max() for line in dotted)
    begins = min(points_of(line)[:, 0].min() for line in dotted)
    assert len(dotted) == 2
    for mark in (*others, *svg.findall(".//polygon")):
        drawn = points_of(mark)[:, 0]
        # Beyond there is but the interval of the whole ensemble, upright.
        assert drawn.max() <= begins or drawn.min() == drawn.max() == edge
    assert begins < edge - 100  # most of the axis is what nobody judged
    assert "Sizes 31 to 1499 were not judged" in svg.find("desc").text
    assert not [p for p in path.findall(".//polyline") if "dasharray:1 5" in p.get("style")]
    # The sizes beside the gap have a dot.
    at = {float(dot.get("cx")) for dot in svg.findall(".//circle") if dot.get("class") is None}
    assert {begins, edge} <= at


def test_the_key_and_the_slider_say_which_sizes_were_not_judged():
    frontier = frontier_of(BUDGET, chosen=4)
    assert "Sizes 31 to 1499 were not judged" in charts.frontier_key(frontier)
    assert "not judged" not in charts.frontier_key(frontier_of(BUDGET[:-1]))
    notes = [point["note"] for point in slider_points(frontier)]
    assert notes[29] == "Sizes 31 to 1499 were not judged: the next step is 1,500 members."
    assert notes[30] == "Sizes 31 to 1499 were not judged: the step back is 30 members."
    assert not any(notes[:29])


def test_a_size_between_two_gaps_has_both_notes():
    notes = [point["note"] for point in slider_points(frontier_of([5, 50, 500]))]
    assert notes[1].count("not judged") == 2
    assert "Other sizes were not judged" in charts.frontier_key(frontier_of([5, 50, 500]))


def test_small_steps_are_no_gaps():
    frontier = frontier_of([*range(1, 65), 67, 70, 73, 76])
    assert frontier.gaps == []
    assert np.flatnonzero(frontier.stands_alone()).tolist() == [63, 64, 65, 66, 67]


def test_the_sliders_words_hold_every_figure():
    """A screen reader hears the slider's value; what is not in it is not heard."""
    for point in slider_points(frontier_of(BUDGET, chosen=4)):
        for name in ("risk", "change", "random", "nodes", "bytes", "latency", "note"):
            assert point[name] in point["words"], name
    words = [point["words"] for point in slider_points(frontier_of(BUDGET, chosen=4))]
    assert words[0].startswith("1 member, ")
    assert words[4].startswith("5 members (kept), ")
    one = charts.frontier_chart(frontier_of([1, 2, 3]), "members")
    assert "Kept: 1 member," in one


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
    bars = ElementTree.fromstring(charts.bin_counts_chart(before, after)).findall("rect")
    outlined = [m for m in bars if f"fill:{PAGE};stroke:{BEFORE}" in m.get("style")]
    assert len(outlined) == len(before.count)
    assert len(bars) - len(outlined) == len(after.count)
    assert "full ensemble: open" in charts.reliability_key()


def test_speed_is_also_compared_with_the_whole_ensemble_compiled():
    full = {"members": 1500.0, "ms / 1000 rows": 43.2, "ms, compiled": 2.25}
    small = {"members": 30.0, "ms / 1000 rows": 0.09, "ms, compiled": 0.09}
    report = CompressionReport({"full (1500)": full, "sparsebag (30)": small}, n_rows=9)
    told = "it predicts 480 times as fast (25 times as fast as all 1500 members compiled alike)"
    assert told in report.sentence()
    assert "<strong>25×</strong> <span>as fast as all 1500 compiled alike" in cards(report)


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


@pytest.mark.parametrize("by", ["members", "latency"])
def test_the_kept_size_is_in_sight_where_few_were_judged(by):
    svg = ElementTree.fromstring(charts.frontier_chart(frontier_of([1, 40]), by))
    kept = next(m for m in svg.findall("circle") if m.get("class") == "sb-chosen")
    assert 20.0 < float(kept.get("cy")) < 220.0
    assert [m.get("cy") for m in svg.findall("circle") if m.get("class") == "sb-marker"] == [
        kept.get("cy")
    ]


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
