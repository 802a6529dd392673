"""What users read: plain words, one for each thing, lines that fit a terminal."""

import ast
import re
from pathlib import Path

from typer.testing import CliRunner

from sparsebag.cli.app import app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
PAGES = [p for p in PAGES if not {"_build", "gallery"} & set(p.parts) and p.name != "paper.md"]
WORDS = r"likewise|\basked\b|\ballowed\b|survivor|\bvoters?\b|made-up|own leaves|taught|\bheard\b"
UNWANTED = re.compile(WORDS, re.IGNORECASE)


def messages(path):
    """Texts that are no docstrings: errors, warnings, help, what is printed."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in docs]
    return [text for text in texts if isinstance(text, str) and " " in text.strip()]


def test_pages_and_messages_use_plain_words():
    found = [(path.name, path.read_text(encoding="utf-8")) for path in PAGES]
    found += [(path.name, text) for path in (ROOT / "src").rglob("*.py") for text in messages(path)]
    assert len(found) > 300
    assert [(name, UNWANTED.findall(text)) for name, text in found if UNWANTED.search(text)] == []


def test_help_fits_eighty_columns():
    for command in ("demo", "fit", "compress", "predict", "inspect", "export", "bench"):
        done = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "80"})
        assert max(map(len, done.stdout.splitlines())) <= 80, command
