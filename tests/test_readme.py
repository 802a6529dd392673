"""The README's first example is what a newcomer pastes; it must run as it stands."""

import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier
from typer.testing import CliRunner

import sparsebag as sb
from benchmarks import picture
from sparsebag.cli.app import app
from sparsebag.evidence import readers

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_is_short_and_its_examples_run_as_they_stand(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # they write files
    first, sizes = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    printed = re.search(r"```text\n(.*?)```", README, flags=re.DOTALL)[1]
    exec(compile(first, "README.md", "exec"), {})
    out = capsys.readouterr().out
    figure = r"[-+]?\d[\d.,]*%?|below|above"  # another machine's last digits may differ
    assert re.sub(figure, "#", out) == re.sub(figure, "#", printed)
    assert [p.name for p in tmp_path.iterdir()] == ["small.sbag"]
    X, y = load_iris(return_X_y=True)
    forest = RandomForestClassifier(30, random_state=0).fit(X, y)
    rows = {"X": X, "y": y, "X_test": X, "y_test": y, "small": sb.compress(forest, X, y)}
    exec(compile(sizes, "README.md", "exec"), {"sb": sb, "forest": forest, **rows})
    assert (tmp_path / "report.html").exists()


def test_its_figures_and_picture_are_those_of_the_results():
    table = picture.results()
    assert picture.with_figures(README, table) == README  # else: python -m benchmarks.picture
    assert picture.PICTURE.read_text(encoding="utf-8") == picture.picture(table) + "\n"


def test_it_is_short():
    assert len(README.split()) <= 900


def test_its_commands_exist():
    helped = {}
    for command, options in re.findall(r"^sparsebag (\w+)(.*)$", README, flags=re.MULTILINE):
        if command not in helped:
            helped[command] = CliRunner().invoke(app, [command, "--help"], terminal_width=200)
            assert helped[command].exit_code == 0, command
        for option in re.findall(r"--[a-z-]+", options.split("#")[0]):
            assert option in helped[command].stdout, f"{command} {option}"
    assert set(helped) >= {"fit", "compress", "predict"}


def test_its_two_commands_come_first():
    first = re.search(r"```console\n(.*?)```", README, flags=re.DOTALL).group(1)
    commands = [line.split("#")[0].strip() for line in first.strip().splitlines()]
    assert commands == ["make demo", "make test"]
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`make ([a-z-]+)`", README):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_every_relative_link_exists():
    for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/method.md"):
        page = ROOT / name
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{name} links to {link}"


def test_contributing_loss_example_works():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    example, _ = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    scope: dict = {}
    exec("from dataclasses import dataclass\nfrom typing import Any as Channel", scope)
    exec("from array_api_compat import array_namespace", scope)
    exec(example, scope)
    rng = np.random.default_rng(0)
    y = rng.normal(size=200)
    predictions = y[:, None] + rng.normal(size=(200, 20))
    mask = rng.random((200, 20)) < 0.4
    for solver in ("auto", "active_set"):
        solution = sb.fit_weights(
            predictions, mask, y, loss=scope["PseudoHuber"](), lam=0.0, solver=solver
        )
        assert solution.status.success
        assert solution.weights.sum() == pytest.approx(1.0)


def test_contributing_reader_example_works(monkeypatch, tmp_path):
    """A file in the folder of readers is enough."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, example = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    imports = "from typing import Any\nimport numpy as np\n"
    imports += "from sparsebag.evidence.members import Member, MemberPool\n"
    (tmp_path / "made_up.py").write_text(imports + example, encoding="utf-8")
    monkeypatch.setattr(readers, "__path__", [*readers.__path__, str(tmp_path)])
    X, y = load_iris(return_X_y=True)

    class MyForest(ClassifierMixin, BaseEstimator):
        __module__ = "made_up.forests"

    mine, rng = MyForest(), np.random.default_rng(0)
    mine.bags = [rng.integers(0, len(X), len(X)) for _ in range(30)]
    mine.trees = [DecisionTreeClassifier().fit(X[rows], y[rows]) for rows in mine.bags]
    mine.classes_ = np.arange(3)
    mine.n_features_in_ = 4
    small = sb.compress(mine, X, y, max_estimators=3)
    assert small.n_active_ <= 3
    assert small.verified_by_ == "leaf counts"
    assert small.score(X, y) > 0.9
