"""The report page: sound HTML, every part of it right, nothing fetched."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.ensemble import (
    BaggingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier

import sparsebag as sb
from sparsebag.report.prediction_changes import prediction_changes
from sparsebag.report.svg import Axis

VOID = {"meta", "input", "link", "br", "img"}


class Checker(HTMLParser):
    """Every tag is closed in order, ids are unique, references lead somewhere."""

    def __init__(self, text):
        super().__init__()
        self.stack, self.ids, self.refs, self.headings = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.stack
        assert len(self.ids) == len(set(self.ids))
        assert set(self.refs) <= set(self.ids)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag not in VOID:
            self.stack.append(tag)
        if "id" in found:
            self.ids.append(found["id"])
        for name in ("aria-labelledby", "aria-describedby", "for"):
            self.refs += (found.get(name) or "").split()
        if (found.get("href") or "").startswith("#"):
            self.refs.append(found["href"][1:])
        if re.fullmatch(r"h\d", tag):
            self.headings.append(int(tag[1]))
        assert "src" not in found
        assert tag != "link"

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.stack.pop()

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag


@pytest.fixture(scope="module")
def classified():
    X, y = load_breast_cancer(return_X_y=True)
    names = np.array(["<malignant>", "benign & well"])[y]
    X, X_test, y, y_test = train_test_split(X, names, random_state=0)
    forest = RandomForestClassifier(40, random_state=0).fit(X, y)
    small = sb.compress(forest, X, y, max_estimators=8)
    return small, X_test, y_test, small.report(X_test, y_test)


@pytest.fixture(scope="module")
def regressed():
    X, X_test, y, y_test = train_test_split(*load_diabetes(return_X_y=True), random_state=0)
    forest = RandomForestRegressor(40, random_state=0).fit(X, y)
    small = sb.compress(forest, X, y, tolerance=0.1)
    return small, X_test, y_test, small.report(X_test, y_test)


@pytest.mark.parametrize("kind", ["classified", "regressed", "untested", "penalised", "bare"])
def test_every_page_is_sound(kind, classified, regressed):
    report = {
        "classified": lambda: classified[3],
        "regressed": lambda: regressed[3],
        "untested": lambda: classified[0].report(),
        "penalised": penalised,
        "bare": lambda: sb.CompressionReport(
            {"full (2)": {"members": 2.0}, "sparsebag (1)": {"members": 1.0}}, n_rows=0
        ),
    }[kind]()
    page = report.to_html()
    checked = Checker(page)
    assert not re.search("https?:", page)
    assert "url(" not in page.replace("url(#", "")
    assert checked.headings[0] == 1
    assert all(b <= a + 1 for a, b in zip(checked.headings, checked.headings[1:], strict=False))
    Checker(report._repr_html_())
    for svg in re.findall(r'<svg class="sb-chart".*?</svg>', page, flags=re.S):
        tree = ElementTree.fromstring(svg)
        assert tree.get("role") == "img"
        assert tree[0].tag == "title"
        assert tree[1].tag == "desc"
        assert "nan" not in svg


def penalised():
    X, y = load_breast_cancer(return_X_y=True)
    bag = BaggingClassifier(LogisticRegression(max_iter=5000), 25, random_state=0)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    small = sb.compress(bag.fit(X[::2], y[::2]), X[::2], y[::2], lam=0.0)
    return small.report(X[1::2], y[1::2])


def test_the_sentence_says_what_was_kept_and_what_it_cost(classified, regressed):
    small, _, y, report = classified
    told = report.sentence()
    assert told.startswith(f"{small.n_active_} of 40 trees kept: ")
    full, sparse = list(report.rows.values())[:2]
    alike = full["ms, compiled"] / sparse["ms, compiled"]
    shown = f"{alike:.2g}" if alike < 10 else f"{alike:,.0f}"
    assert f"({shown} times the ensemble compiled)" in told
    assert re.search(r"log-loss \S+ → \S+ \(.*\) and accuracy", told)
    assert f"on {len(y)} test rows" in told
    assert "MSE " in regressed[3].sentence()
    assert "expected Brier score " in small.report().sentence()
    assert told in report.to_html().replace("&#x27;", "'")


def test_sizes_are_those_of_pickles_and_files(classified, tmp_path):
    small, *_, report = classified
    small.save(tmp_path / "small.sbag")
    size = (tmp_path / "small.sbag").stat().st_size / 1000
    full, sparse = list(report.rows.values())[:2]
    assert sparse["file (kB)"] == size
    assert f"{size:.1f} kB in place of {full['pickled (kB)']:.1f} kB" in report.sentence()
    assert sparse["file (kB)"] < full["file (kB)"] < full["pickled (kB)"]


def test_the_page_may_run_its_own_script_and_fetch_nothing(classified):
    page = classified[3].to_html()
    allowed = re.search(r'Content-Security-Policy" content="(.*?)"', page)[1]
    assert "default-src 'none'" in allowed
    for tag in ("script", "style"):
        (body,) = re.findall(f"<{tag}>(.*?)</{tag}>", page, flags=re.S)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in allowed, tag
    assert "'unsafe-eval'" not in allowed
    assert "script-src 'unsafe-inline'" not in allowed


def test_what_needs_the_script_is_hidden_without_it(classified):
    page = classified[3].to_html()
    controls = re.search(r"<div id='sb-controls' hidden>(.*?)</div>", page)[1]
    assert "<input id='sb-size'" in controls
    assert "<button" in controls
    assert page.count("<input") == page.count("<button") == 1


def test_tables_that_scroll_are_reached_by_the_tab_key(classified):
    page = classified[3].to_html()
    boxes = re.findall(r"<div class='sb-scroll'([^>]*)><table><caption>(.*?)</caption>", page)
    assert len(boxes) == page.count("<table>") >= 5
    for attributes, caption in boxes:
        assert "role='region' tabindex='0'" in attributes
        assert f"aria-label='{caption}'" in attributes


def test_reports_in_one_notebook_share_no_id(classified):
    report = classified[3]
    Checker(report._repr_html_() + report._repr_html_())


def test_charts_in_a_notebook_have_their_key(classified):
    cell = classified[3]._repr_html_()
    for text in (
        "expected, ± one standard error",
        "whole ensemble",
        "full ensemble: open",
        "perfectly calibrated",
    ):
        assert text in re.sub(r"<desc.*?</desc>", "", cell), text


def test_the_slider_has_every_size(classified):
    small, *_, report = classified
    page = report.to_html()
    points = json.loads(re.search(r"id='sb-curve-data'>(.*?)</script>", page)[1])
    curve, kept = small.path_, small.selection_.position
    assert len(points) == len(curve)
    assert [p["share"].endswith("(kept)") for p in points] == [
        i == kept for i in range(len(points))
    ]
    assert f"max='{len(points) - 1}' step='1' value='{kept}'" in page
    assert points[kept]["ratio"] == f"{curve.ratio[kept]:.3f} ± {curve.error[kept]:.3f}"
    (path,) = re.findall(r"data-path='(.*?)'", page)
    assert len(json.loads(path)["x"]) == len(points)


def test_the_page_has_the_selections_words(classified):
    small, *_, report = classified
    assert html.escape(str(small.selection_)) in report.to_html()


def test_labels_are_escaped(classified):
    page = classified[3].to_html()
    assert "<malignant>" not in page
    assert "&lt;malignant&gt;" in page


def test_changed_predictions_are_counted(classified):
    small, X, y, report = classified
    before, after = small._full.predict(X), small.predict(X)
    found = report.details.changed
    assert found.n_changed == np.sum(before != after)
    assert found.mended == np.sum((before != y) & (after == y))
    assert found.broken == np.sum((before == y) & (after != y))
    assert sum(c.n_rows for c in found.classes) == len(y)
    for row in found.rows:
        assert str(before[row.row]) == row.before
        assert str(after[row.row]) == row.after
        assert str(y[row.row]) == row.truth


def test_changed_numbers_are_counted(regressed):
    small, X, y, report = regressed
    moved = np.abs(small._full.predict(X) - small.predict(X))
    found = report.details.changed
    assert found.n_changed == np.sum(moved > 0.1 * np.std(y))
    assert found.mended + found.broken == found.n_changed
    assert found.quantiles["largest"] == pytest.approx(moved.max())
    assert found.rows[0].row == moved.argmax()


def test_nothing_changed():
    p = np.array([[0.9, 0.1], [0.2, 0.8]])
    found = prediction_changes(np.array([0, 1]), p, p, np.array([0, 1]))
    assert found.n_changed == len(found.rows) == 0


def test_few_test_rows_are_a_warning(classified):
    small, X, y, report = classified
    assert any("only 143 test rows" in text for text in report.details.cautions)
    few = small.report(X[:20], y[:20])
    assert any("only 20 test rows" in text for text in few.details.cautions)
    assert "There are only 20 test rows" in few.to_html()
    assert any("No test rows were given" in text for text in small.report().details.cautions)


def test_training_rows_are_no_test_rows():
    X, y = load_breast_cancer(return_X_y=True)
    forest = RandomForestClassifier(20, random_state=0).fit(X, y)
    small = sb.compress(forest, X, y, max_nodes=0.1)
    report = small.report(X, y)
    assert report.rows_are == "training rows"
    for text in (str(report), report.to_html(), report.to_markdown()):
        assert "trained on: every score is too good" in text
    changed = small.report(X[::-1], y[::-1])  # what is not proved is not claimed
    assert changed.rows_are == "test rows"


def test_what_nothing_proved_is_a_warning():
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    bag = BaggingClassifier(LogisticRegression(max_iter=5000), 25, random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match="nothing shows whether"):
        small = sb.compress(bag, X, y, lam=0.0)
    assert any("Nothing proved" in text for text in small.report().details.cautions)


def test_a_budget_that_breaks_the_tolerance_is_a_warning():
    X, y = load_breast_cancer(return_X_y=True)
    forest = RandomForestClassifier(40, random_state=0).fit(X, y)
    small = sb.compress(forest, X, y, max_estimators=1, tolerance=0.0)
    told = "the budget allows nothing within the tolerance"
    assert any(told in text for text in small.report().details.cautions)
    spent = sb.compress(forest, X, y, max_estimators=1)
    assert not any(told in text for text in spent.report().details.cautions)


def test_settings_and_versions_are_told(classified):
    details = classified[3].details
    assert details.settings["max_estimators"] == "8"
    assert details.settings["estimator"] == "RandomForestClassifier, fitted beforehand"
    assert details.versions["sparsebag"] == sb.__version__
    assert set(details.settings) == set(classified[0].get_params(deep=False))


def test_scikit_learns_diagram_and_the_notebook(classified):
    small, *_, report = classified
    assert "SparseBaggingClassifier" in small._repr_html_()
    assert "SparseBaggingClassifier" in small._repr_mimebundle_()["text/html"]
    cell = report._repr_html_()
    assert cell.count('<svg class="sb-chart"') == 2
    assert report.sentence() in cell


def test_the_diagram_of_a_list_of_models():
    X, y = load_breast_cancer(return_X_y=True)
    models = [DecisionTreeClassifier(max_depth=d).fit(X[::2], y[::2]) for d in (1, 2, 3)]
    small = sb.compress(models, X[1::2], y[1::2], evidence="holdout")
    assert "SparseBaggingClassifier" in small._repr_html_()


def test_frames_with_names_are_reported_too():
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    forest = RandomForestClassifier(40, random_state=0).fit(X[:400], y[:400])
    small = sb.compress(forest, X[:400], y[:400], max_estimators=5)
    report = small.report(X[400:], pd.Series(y[400:]))
    assert report.n_rows == len(X) - 400


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        (Axis("", 0.0, 10.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]),
        (Axis("", 0.035, 0.071), [0.04, 0.05, 0.06, 0.07]),
        (Axis("", 1.0, 300.0, is_log=True), [1, 2, 5, 10, 20, 50, 100, 200]),
        (Axis("", 1.0, 3000.0, is_log=True), [1.0, 10.0, 100.0, 1000.0]),
        (Axis("", 2.0, 30.0, is_log=True), [2.0, 5.0, 10.0, 20.0]),
        (Axis("", 1.3, 1.9, is_log=True), [1.4, 1.6, 1.8]),
        (Axis("", 3.0, 3.0), [3.0]),
    ],
)
def test_ticks_are_round(axis, expected):
    assert axis.ticks() == pytest.approx(expected)
