"""What users read: plain words, one for each thing, lines that fit a terminal."""

import ast
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sparsebag.cli.app import app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
PAGES = [p for p in PAGES if not {"_build", "gallery"} & set(p.parts) and p.name != "paper.md"]
MODULES = sorted((ROOT / "src").rglob("*.py"))
UNWANTED = re.compile(
    r"likewise|\basked\b|\ballowed\b|survivor|\bvoters?\b|made-up|own leaves|taught|\bheard\b", re.I
)


def messages(path):
    """Texts of several words that are no docstrings: errors, warnings, help, what is printed."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    texts = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in docs]
    return [n.value for n in texts if isinstance(n.value, str) and " " in n.value.strip()]


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_pages_use_plain_words(path):
    assert not UNWANTED.findall(path.read_text(encoding="utf-8"))


def test_messages_use_plain_words():
    found = [(path.name, text) for path in MODULES for text in messages(path)]
    assert len(found) > 300
    assert [pair for pair in found if UNWANTED.search(pair[1])] == []


@pytest.mark.parametrize("command", ["demo", "fit", "compress", "predict", "inspect", "export"])
def test_help_fits_eighty_columns(command):
    done = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "80"})
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert not UNWANTED.findall(done.stdout)
