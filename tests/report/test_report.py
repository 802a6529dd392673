"""The report: figures are scikit-learn's, the page is sound HTML and fetches nothing."""

import base64
import hashlib
import html
import json
import pickle
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn import metrics as scores
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
)
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.class_weight import compute_sample_weight

import sparsebag as sb
from sparsebag.report import metrics
from sparsebag.report.changes import ScoreChange, prediction_changes, score_changes
from toy import CANCER, DIABETES, IRIS, halves

N = 40


@pytest.fixture(scope="module")
def classification():
    names = np.array(["setosa", "versicolor", "virginica"])[IRIS[1]]
    X, X_test, y, y_test = halves((IRIS[0], names))
    # Leaves of five rows hold no zero probabilities where it matters, so no clip is compared.
    forest = RandomForestClassifier(N, min_samples_leaf=5, random_state=0).fit(X, y)
    small = sb.compress(forest, X, y)
    return forest, small, X_test, y_test, small.report(X_test, y_test)


def expected_scores(y, proba, classes):
    truth = np.asarray(y)[:, None] == classes
    return {
        "log-loss": scores.log_loss(y, proba, labels=classes),
        "ECE": metrics.expected_calibration_error(y, proba, labels=classes),
        "Brier": np.mean(np.sum((proba - truth) ** 2, axis=1)),
        "accuracy": scores.accuracy_score(y, classes[proba.argmax(axis=1)]),
        "AUC": scores.roc_auc_score(y, proba, multi_class="ovr"),
        "F1": scores.f1_score(y, classes[proba.argmax(axis=1)], average="macro"),
    }


def test_rows_are_the_ensemble_and_the_compressed_estimator(classification):
    forest, small, X, y, report = classification
    full, sparse = report.rows.values()
    assert list(report.rows) == ["full ensemble", "sparsebag"]
    for row, model, trees in ((full, forest, forest), (sparse, small, small.estimators_)):
        for name, value in expected_scores(y, model.predict_proba(X), model.classes_).items():
            assert row[name] == pytest.approx(value, abs=1e-9), name
        assert row["accuracy"] == model.score(X, y)
        assert row["members"] == len(trees)
        assert row["nodes"] == sum(tree.tree_.node_count for tree in trees)
    for change in report.changes:
        figures = (full[change.name], sparse[change.name])
        assert (change.before, change.after) == pytest.approx(figures, rel=1e-12)
    assert full["pickled (kB)"] == pytest.approx(len(pickle.dumps(list(forest), protocol=5)) / 1000)
    assert full["µs per row"] > 0
    assert full["µs, compiled"] > 0
    assert 0 < full["file (kB)"] < full["pickled (kB)"]


@pytest.mark.parametrize("base", [None, LinearRegression()], ids=["trees", "linear models"])
def test_regression_figures(base):
    ensemble = BaggingRegressor(base, n_estimators=N, random_state=0)
    X, X_test, y, y_test = halves(DIABETES)
    small = sb.compress(ensemble.fit(X, y), X, y)
    report = small.report(X_test, y_test)
    full, sparse = report.rows.values()
    for row, model in ((full, ensemble), (sparse, small)):
        predicted = model.predict(X_test)
        assert row["MSE"] == pytest.approx(scores.mean_squared_error(y_test, predicted))
        assert row["R²"] == pytest.approx(scores.r2_score(y_test, predicted))
        assert row["MAE"] == pytest.approx(scores.mean_absolute_error(y_test, predicted))
    for change in report.changes:
        assert (change.before, change.after) == (full[change.name], sparse[change.name])
    assert ("nodes" in report.rows["sparsebag"]) == (base is None)


@pytest.mark.parametrize("problem", [IRIS, DIABETES], ids=["classes", "numbers"])
def test_a_rows_weight_counts_as_repeats(problem):
    """A class's AUC and F1 too, and the interval is of the weighted difference."""
    y, rng = problem[1], np.random.default_rng(0)
    times = rng.integers(0, 4, len(y))
    weight = times / times.mean()
    said = [rng.normal(size=len(y)) + y for _ in range(2)]
    if problem is IRIS:
        said = [rng.dirichlet(np.ones(3), len(y)) for _ in range(2)]
    weighted = score_changes(y, *said, weight)
    repeated = score_changes(np.repeat(y, times), *(np.repeat(s, times, axis=0) for s in said))
    for one, other in zip(weighted, repeated, strict=True):
        assert (one.before, one.after) == pytest.approx((other.before, other.after)), one.name
        assert one.low < one.difference < one.high


def test_scores_are_weighted_by_class_as_the_estimate_is():
    X, y = CANCER
    forest = RandomForestClassifier(40, class_weight="balanced", min_samples_leaf=3, random_state=0)
    small = sb.compress(forest.fit(X[::2], y[::2]), X[::2], y[::2])
    X, y = X[1::2], y[1::2]
    rare = np.flatnonzero(y == 0)[:20]  # other shares of the classes than in training
    rows = np.concatenate([rare, np.flatnonzero(y == 1)])
    report, proba = small.report(X[rows], y[rows]), small.predict_proba(X[rows])
    balanced = compute_sample_weight("balanced", y[rows])
    told = scores.log_loss(y[rows], proba, sample_weight=balanced)
    assert report.rows["sparsebag"]["log-loss"] == pytest.approx(told, rel=0.02)
    assert report.rows_are == "class-weighted test rows"
    assert "Scores are class-weighted, like the estimate" in report.to_markdown()
    assert report.lines()[-6][0] == report.label("log-loss") == "class-weighted log-loss"
    page = text_of(report.to_html())  # all that is weighted is named, and all that is not
    assert not re.findall(r"(?<!weighted )(?:accuracy|AUC|F1|Brier|ECE) +\d", page)
    assert "unweighted rows before" in page
    assert report.reliability[1].count.sum() == pytest.approx(len(rows))
    plain = sb.compress(clone(forest).set_params(class_weight=None).fit(X, y), X, y)
    doubled = plain.report(X[rows], y[rows], sample_weight=1.0 + y[rows])
    told = scores.log_loss(y[rows], plain.predict_proba(X[rows]), sample_weight=1.0 + y[rows])
    assert doubled.rows["sparsebag"]["log-loss"] == pytest.approx(told)
    assert doubled.rows_are == "weighted test rows"
    assert plain.report(X[rows], y[rows]).rows_are == "test rows"


def test_a_voters_own_weights_are_its_before():
    X, X_test, y, y_test = halves(CANCER)
    members = [("nb", GaussianNB()), ("out", "drop"), ("tree", DecisionTreeClassifier(max_depth=3))]
    voter = VotingClassifier(members, voting="soft", weights=[3, 9, 1]).fit(X, y)
    small = sb.compress(voter, X_test, y_test, evidence="holdout")
    full = next(iter(small.report(X_test, y_test).rows.values()))
    assert full["log-loss"] == pytest.approx(scores.log_loss(y_test, voter.predict_proba(X_test)))


def test_markdown_holds_every_figure(classification):
    *_, report = classification
    lines = report.to_markdown().split("\n\n")[0].splitlines()
    assert len({len(line) for line in lines}) == 1, "columns are aligned"
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[:1] + cells[2:] == report.lines()
    full, small = report.rows.values()
    assert [cell[0] for cell in report.lines()[1:]] == list(full) == list(small)


@pytest.mark.parametrize(
    ("file", "took", "expected"),
    [
        (90.0, 0.09, "1,300× smaller, 480× faster in batches."),
        (120_000.0, 50.0, "30 of 1,500 members kept."),
    ],
)
def test_the_verdict_claims_no_gain_there_is_not(file, took, expected):
    full = {"members": 1500.0, "pickled (kB)": 116_900.0, "µs per row": 43.2}
    small = {"members": 30.0, "file (kB)": file, "µs per row": took}
    report = sb.CompressionReport({"full ensemble": full, "sparsebag": small}, n_rows=9)
    assert report.verdict() == expected


def test_what_is_not_installed_is_named(classification, monkeypatch):
    *_, report = classification
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"needs jinja2; run: pip install 'sparsebag\[report\]'"):
        report.to_html()
    assert report._repr_html_() is None  # a notebook shows the text
    assert "full ensemble" in str(report)


@pytest.mark.parametrize("name", ["report.html", "report.md", "REPORT.HTML", "of.two.dots.md"])
def test_save(name, classification, tmp_path):
    *_, report = classification
    report.save(tmp_path / name)
    text = report.to_html() if name.lower().endswith("html") else report.to_markdown()
    assert (tmp_path / name).read_text(encoding="utf-8") == text + "\n"
    report.save(str(tmp_path / name))  # again, by name
    for other in ("report.pdf", "report", ".html"):
        with pytest.raises(ValueError, match=r"cannot write a report to '.*'; use \.html or \.md"):
            report.save(tmp_path / other)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_linear_regressors_are_reported_as_one():
    X, X_test, y, y_test = halves(DIABETES)
    bag = BaggingRegressor(LinearRegression(), 20, max_features=0.5, random_state=0).fit(X, y)
    small = sb.compress(bag, X, y)
    report = small.report(X_test, y_test)
    assert small.n_active_ > 1
    assert small.compile().n_models == 1
    assert small.compile().groups[0].coef.shape == (10, 1)
    assert "collapsed into 1" in repr(small.compile())
    assert report.headline() == "20 members collapsed into one linear model"
    assert [row["members"] for row in report.rows.values()][:2] == [20, 1]
    for text in (" ".join(str(report).split()), report.to_markdown(), report.to_html()):
        assert "weighted average is one linear regressor, exactly" in text
    # exactly: the vote of the members, one by one
    assert_allclose(small.predict(X_test), small._vote.predict(X_test), rtol=1e-12)


def test_what_is_no_regressor_and_no_tree_is_not_reported_as_one(tmp_path):
    X, y = CANCER
    members = [("tree", DecisionTreeClassifier(max_depth=3)), ("nb", GaussianNB())]
    voter = VotingClassifier(members, voting="soft").fit(X[::2], y[::2])
    small = sb.compress(voter, X[1::2], y[1::2], evidence="holdout", max_estimators=1)
    report = small.report(X[1::2], y[1::2])
    assert "nodes" not in str(report)
    assert len({len(row) for row in report.rows.values()}) == 1
    report.save(tmp_path / "report.html")
    X, y = IRIS
    bag = BaggingClassifier(LogisticRegression(max_iter=1000), 30, random_state=0).fit(X, y)
    small = sb.compress(bag, X, y, lam=0.0)
    assert small.compile().n_models == small.n_active_
    assert "collapsed" not in str(small.report(X, y))


BARE = sb.CompressionReport({"full (200)": {"members": 2.0}, "small (1)": {"members": 1.0}}, 0)
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

    def handle_endtag(self, tag):
        assert tag in VOID or self.stack.pop() == tag


@pytest.fixture(scope="module")
def classified():
    names = np.array(["<malignant>", "benign & well"])[CANCER[1]]
    X, X_test, y, y_test = halves((CANCER[0], names))
    forest = RandomForestClassifier(40, random_state=0).fit(X, y)
    small = sb.compress(forest, X, y, max_estimators=8)
    return small, X_test, y_test, small.report(X_test, y_test)


@pytest.fixture(scope="module")
def regressed():
    X, X_test, y, y_test = halves(DIABETES)
    forest = RandomForestRegressor(40, random_state=0).fit(X, y)
    small = sb.compress(forest, X, y, tolerance=0.1)
    return small, X_test, y_test, small.report(X_test, y_test)


@pytest.fixture(scope="module")
def logistic():
    X, y = CANCER
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    bag = BaggingClassifier(LogisticRegression(max_iter=5000), 25, random_state=0)
    bag.fit(X[::2], y[::2])
    with pytest.warns(UserWarning, match="could not verify that"):
        small = sb.compress(bag, X[::2], y[::2], lam=0.0)
    return small.report(X[1::2], y[1::2])


@pytest.mark.parametrize("kind", ["classified", "regressed", "untested", "logistic", "bare"])
def test_every_page_is_sound(kind, classified, regressed, logistic):
    reports = {"classified": classified[3], "regressed": regressed[3], "logistic": logistic}
    report = (reports | {"untested": classified[0].report(), "bare": BARE})[kind]
    page = report.to_html()
    checked = Checker(page)
    assert not re.search("https?:", page), "self-contained: nothing is fetched"
    assert "url(" not in page.replace("url(#", "")
    assert checked.headings[0] == 1
    assert all(b <= a + 1 for a, b in zip(checked.headings, checked.headings[1:], strict=False))
    cell = report._repr_html_()
    assert "<style" not in cell
    assert "<script" not in cell
    Checker(cell + report._repr_html_())  # reports in one notebook share no id
    for svg in re.findall(r'<svg class="sb-chart".*?</svg>', page, flags=re.S):
        tree = ElementTree.fromstring(svg)
        assert tree.get("role") == "img"
        assert tree[0].tag == "title"
        assert tree[1].tag == "desc"
        assert "nan" not in svg


def test_the_verdict_says_what_was_gained_and_what_it_cost(classified, regressed):
    small, _, y, report = classified
    told = report.verdict()
    full, sparse = list(report.rows.values())[:2]
    gains = r"[\d,.]+× smaller \([\d.]+× in the same .*\), [\d,.]+× faster in batches; "
    assert re.match(gains, told)
    for change in report.changes[:2]:
        assert change.name in told
        assert change.verdict in told
    brier = next(c for c in report.changes if c.name == "Brier")
    seen = f"{brier.after / brier.before - 1.0:+.1%} measured"
    estimate = f"{small.selection_.ratio - 1.0:+.1%} expected, {seen}"
    assert told.endswith(f" on {len(y)} test rows; Brier score {estimate}.")
    assert " MSE" in regressed[3].verdict()
    expected = f"Brier score {small.selection_.ratio - 1.0:+.1%} expected on new rows."
    assert small.report().verdict().endswith(expected)
    for text in (report.to_html(), report._repr_html_()):
        assert html.unescape(text).count(told) == 1
    assert sparse["file (kB)"] < full["file (kB)"] < full["pickled (kB)"]
    assert report.headline() == f"{sparse['nodes']:,.0f} of {full['nodes']:,.0f} nodes kept"
    assert " ".join(str(report).split("\n\n")[0].split()) == told
    assert max(map(len, str(report).splitlines())) <= 80, "fits a terminal"


def text_of(page):
    """What a reader sees, without style, script and the charts' axes."""
    text = re.sub(r"<(title|style|script|svg).*?</\1>", " ", page, flags=re.S)
    return html.unescape(re.sub(r"<[^>]*>", " ", text))


@pytest.mark.parametrize("kind", ["classified", "regressed"])
def test_no_figure_is_told_twice(kind, request):
    small, *_, report = request.getfixturevalue(kind)
    text = text_of(report.to_html())
    for change in report.changes:
        before, after = change.in_words.split(" → ")
        assert len(re.findall(rf"{re.escape(before)} →\s+{re.escape(after)}", text)) == 1, change
        assert text.count(change.interval) == 1, change
    assert len(re.findall(rf"(?<![\d,]){small.selection_.before.nodes:,}(?![\d,])", text)) == 1


def test_the_page_may_run_its_own_script_and_fetch_nothing(classified):
    page = classified[3].to_html()
    allowed = html.unescape(re.search(r'Content-Security-Policy" content="(.*?)"', page)[1])
    assert "default-src 'none'" in allowed
    for tag in ("script", "style"):
        (body,) = re.findall(f"<{tag}>(.*?)</{tag}>", page, flags=re.S)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in allowed, tag
    assert "'unsafe-eval'" not in allowed
    assert "script-src 'unsafe-inline'" not in allowed
    controls = re.search(r'<div id="sb-controls" hidden>(.*?)</div>', page)[1]
    assert "<input" in controls  # what needs the script is hidden without it
    assert "<button" in controls
    assert page.count("<input") == page.count("<button") == 1


def test_tables_that_scroll_are_reached_by_the_tab_key(classified):
    page = classified[3].to_html()
    boxes = re.findall(r'<div class="sb-scroll"([^>]*)><table><caption>(.*?)</caption>', page)
    assert len(boxes) == page.count("<table>") >= 5
    for attributes, caption in boxes:
        assert 'role="region" tabindex="0"' in attributes
        assert f'aria-label="{caption}"' in attributes


def test_what_people_wrote_is_escaped(classified):
    page = classified[3].to_html()
    assert "<malignant>" not in page
    assert "&lt;malignant&gt;" in page
    rows = {"<b>": {"members": 2.0}, "&": {"members": 1.0}}
    assert "<b>" not in sb.CompressionReport(rows, n_rows=1).to_html()


def test_the_page_has_every_score_class_and_bin(classified):
    small, X, y, report = classified
    page = html.unescape(report.to_html())
    for change in report.changes[2:]:
        assert f">{change.verdict}</td><td>{change.in_words}</td><td>{change.interval}" in page
    before, after = small._full.predict(X), small.predict(X)
    tables = [scores.confusion_matrix(y, p) for p in (before, after)]
    assert_allclose(report.changed.confusion, tables)
    for at, score in enumerate((scores.recall_score, scores.precision_score, scores.f1_score)):
        expected = [score(y, p, average=None) for p in (before, after)]
        assert_allclose([c[2 + at] for c in report.changed.classes], np.transpose(expected))
    for of in ("recall", "precision", "F1", "Confusion matrix"):
        assert of in page
    bins = {tuple(edge) for curve in report.reliability for edge in curve.edges.tolist()}
    assert len(re.findall(r"\d to \d\.\d\d</th>", page)) == len(bins)
    assert report.settings.keys() == small.get_params(deep=False).keys()
    assert report.settings["max_estimators"] == "8"
    assert report.settings["estimator"] == "RandomForestClassifier"
    assert report.versions["sparsebag"] == sb.__version__


def curve_of(n_nodes, ratio):
    n_nodes, ratio = np.asarray(n_nodes, dtype=float), np.asarray(ratio, dtype=float)
    error = np.append(np.full(len(ratio) - 1, 0.02), 0.0)
    members, share = np.maximum(n_nodes // 100, 1), n_nodes / n_nodes[-1]
    return sb.RiskCurve(
        share, n_nodes, members, ratio, error, ratio, error, 0.2, "Brier score", "rehearsal"
    )


CURVE = curve_of([100, 400, 1600, 6400, 20000], [1.9, 1.2, 1.01, 0.99, 1.0])


def shown(selection, curve, kept):
    """The chart, where its marker can go, and what the slider shows, from the page."""
    chosen = replace(selection, curve=curve, position=kept)
    page = replace(BARE, selection=chosen).to_html()
    svg = ElementTree.fromstring(re.search(r'<svg class="sb-chart".*?</svg>', page, re.S)[0])
    marks = {m.get("class"): m for m in svg.findall("circle")}
    path = json.loads(marks["sb-marker"].get("data-path"))
    for name in ("sb-marker", "sb-chosen"):
        at = float(marks[name].get("cx")), float(marks[name].get("cy"))
        assert at == (path["x"][kept], path["y"][kept])
    points = json.loads(re.search(r'id="sb-curve-data">(.*?)</script>', page, re.S)[1])
    assert f'max="{len(curve) - 1}" step="1" value="{kept}"' in page
    return svg, path, points


@pytest.mark.parametrize("kept", [0, 2, 4])
def test_the_kept_size_is_marked_where_it_is(kept, classified):
    svg, path, points = shown(classified[0].selection_, CURVE, kept)
    assert len(path["x"]) == len(path["y"]) == len(points) == len(CURVE)
    assert np.all(np.diff(path["x"]) > 0)
    assert np.argsort(path["y"]).tolist() == np.argsort(-CURVE.ratio).tolist()
    assert f"Kept: {CURVE.n_nodes[kept]:,.0f} of 20,000 nodes" in svg.find("desc").text
    assert [p["share"].endswith("(kept)") for p in points] == [i == kept for i in range(5)]


def test_the_slider_has_the_figures_of_every_size(classified):
    _, _, points = shown(classified[0].selection_, CURVE, 2)
    assert [p["nodes"] for p in points] == ["100", "400", "1,600", "6,400", "20,000"]
    assert [p["share"] for p in points] == ["0.5%", "2%", "8% (kept)", "32%", "100%"]
    expected = {"change": "+1.0% ± 2.0%", "risk": "0.202"}
    assert expected.items() <= points[2].items()
    for point in points:  # a screen reader hears the slider's value; what is not in it is not heard
        for name in ("share", "nodes", "members", "change", "risk"):
            assert point[name] in point["words"], name
    assert "1 member," in points[0]["words"]
    assert "200 members," in points[-1]["words"]
    svg, _, points = shown(classified[0].selection_, replace(CURVE, n_nodes=np.zeros(5)), 1)
    assert "of 200 members" in svg.find("desc").text  # those that are no trees
    assert points[2]["nodes"] == "–"
    assert "nodes" not in points[2]["words"]


def test_sizes_that_lose_far_more_do_not_flatten_the_others(classified):
    curve = curve_of([10, 100, 1000, 10000], [np.inf, 40.0, 1.1, 1.0])
    svg, path, _ = shown(classified[0].selection_, curve, 2)
    assert path["y"][0] == path["y"][1] == 12.0, "at the upper edge"
    assert path["y"][3] - path["y"][2] > 50.0
    assert "nan" not in ElementTree.tostring(svg).decode()
    _, path, _ = shown(classified[0].selection_, curve_of([1000, 10000], [5.0, 1.0]), 0)
    assert 12.0 < path["y"][0] < 250.0, "a size that was kept is in sight whatever it loses"


@pytest.mark.parametrize("largest", [300, 1500, 100_000])
def test_ticks_are_round_and_no_label_is_cut(largest, classified):
    svg, *_ = shown(classified[0].selection_, curve_of([1, 10, largest], [1.3, 1.1, 1.0]), 2)
    labels = [t for t in svg.findall("text") if t.get("y") == "273"]
    assert all(re.fullmatch(r"[125]0*k?", label.text) for label in labels)
    if largest == 300:
        assert [t.text for t in labels] == ["1", "2", "5", "10", "20", "50", "100", "200"]
    for label in labels:
        width = 0.0 if label.get("text-anchor") == "end" else 3.6 * len(label.text)
        assert float(label.get("x")) + width <= 440.0


def test_before_and_after_are_told_apart_without_colour(classified):
    before, after = classified[3].reliability
    page = classified[3].to_html()
    drawn = ElementTree.fromstring(re.findall(r'<svg class="sb-chart".*?</svg>', page, re.S)[1])
    assert len(drawn.findall("rect")) == len(before.count)
    assert len(drawn.findall("circle")) == len(after.count)
    for text in (page, classified[3]._repr_html_()):  # the key is there too
        assert "full ensemble (squares)" in text
        assert "sparsebag (discs)" in text


def test_print_has_a_colour_of_its_own_for_all_that_dark_mode_changes():
    """Or a dark-mode reader's pale green is printed on white paper."""
    css = (Path(sb.metrics.__file__).parent / "page.css").read_text()
    dark, printed = css.split("prefers-color-scheme: dark")[1], css.split("@media print")[1]
    changed = set(re.findall(r"(--sb-[a-z-]+):", dark.split("}")[0]))
    assert changed - {"--sb-shade"} <= set(re.findall(r"(--sb-[a-z-]+):", printed.split("}")[0]))
    assert "color-scheme: light" in printed
    assert len(changed) > 10


def test_changed_predictions_are_counted(classified):
    small, X, y, report = classified
    before, after = small._full.predict(X), small.predict(X)
    found = report.changed
    assert found.n_changed == np.sum(before != after)
    assert found.mended == np.sum((before != y) & (after == y))
    assert found.broken == np.sum((before == y) & (after != y))
    assert sum(c.n_rows for c in found.classes) == len(y)
    assert found.confusion[1].trace() == np.sum(after == y)
    for row in found.rows:
        assert row.before.startswith(f"{before[row.row]} (")
        assert row.after.startswith(f"{after[row.row]} (")
        assert row.truth == y[row.row]
    assert f"{found.n_changed} rows (" in report.to_html()


def test_changed_numbers_are_counted(regressed):
    small, X, y, report = regressed
    moved = np.abs(small._full.predict(X) - small.predict(X))
    found = report.changed
    assert found.n_changed == np.sum(moved > 0.1 * np.std(y))
    assert found.mended + found.broken == found.n_changed
    name, largest = found.quantiles[-1]
    assert name == "largest"
    assert float(largest) == pytest.approx(moved.max(), rel=1e-3)  # four digits
    assert found.rows[0].row == moved.argmax()
    assert f"{found.n_changed} predictions (" in report.to_html()


def test_of_many_classes_those_that_changed_most_are_shown(classified):
    rng = np.random.default_rng(0)
    target, before = rng.integers(30, size=900), rng.dirichlet(np.full(30, 0.1), 900)
    after = before.copy()
    after[target >= 25] = after[target >= 25][:, ::-1]  # what changes is the last five classes
    found = prediction_changes(target, before, after, [f"class {c}" for c in range(30)])
    assert found.confusion.shape == (2, 11, 11)
    assert found.confusion.sum() == 2 * 900
    assert {c.label for c in found.classes[:5]} == {f"class {c}" for c in range(25, 30)}
    said = np.full((9, 2), 0.5)  # of a single class there is no AUC
    assert "AUC" not in [c.name for c in score_changes(np.zeros(9, int), said, said)]
    page = replace(classified[3], changed=found).to_html()
    section = page[page.index('<section id="changed"') : page.index('<section id="details"')]
    shown, folded = section.split("<details>")[:2]
    assert re.findall(r">(class \d+)</th><td>", shown) == 2 * [c.label for c in found.classes[:10]]
    assert ">others</th>" in shown
    assert "The other 20 classes" in folded
    assert len(re.findall(r">(class \d+)</th>", folded)) == 20
    assert "The other" not in classified[3].to_html()


def test_warnings_are_in_every_form(classified, logistic):
    small, X, y, report = classified
    assert small.report(X[:1], y[:1]).changed.n_changed in (0, 1)
    X, y = CANCER
    forest = RandomForestClassifier(20, random_state=0).fit(X, y)
    trained = sb.compress(forest, X, y, max_nodes=0.1)
    seen, tiny = trained.report(X, y), sb.compress(forest, X, y, max_estimators=1, tolerance=0.0)
    for found, told in (
        (logistic, "ould not verify"),
        (report, "There are only 143 test rows"),
        (small.report(), "No test rows were given"),
        (seen, "trained on: all scores are too optimistic"),
        (tiny.report(), "no model within the budget is within the tolerance"),
    ):
        for text in (str(found), found.to_markdown(), found.to_html(), found._repr_html_()):
            assert " ".join(text_of(text).split()).count(told) == 1
    assert "training rows, which flatter the full ensemble most; Brier" in seen.verdict()
    assert "measured" not in seen.verdict()
    assert trained.report(X[::-1], y[::-1]).rows_are == "test rows"  # no proof, no claim


def test_a_clear_loss_of_any_score_is_in_the_verdict():
    loss = [ScoreChange(n, 0.9, 0.8, -0.2, d, False) for n, d in (("AUC", -0.1), ("accuracy", 0.1))]
    report = replace(BARE, changes=tuple(loss), n_rows=9, weighted="class-weighted")
    told = "worse class-weighted AUC, no clear change in class-weighted accuracy on 9 test rows."
    assert report.verdict() == told


@pytest.mark.parametrize("ensemble", [True, False])
def test_a_calibrated_model_is_compared_as_it_predicts(ensemble):
    X, X_test, y, y_test = halves(CANCER)
    model = CalibratedClassifierCV(RandomForestClassifier(20, random_state=0), ensemble=ensemble)
    small, rows = sb.compress(model.fit(X, y), X, y), (X_test, y_test)
    loss = scores.log_loss(y_test, model.predict_proba(X_test))
    copied = pickle.loads(pickle.dumps(small))
    for found in (small.report(*rows), copied.report(*rows, baseline=model)):
        assert found.rows["full ensemble"]["log-loss"] == pytest.approx(loss)
