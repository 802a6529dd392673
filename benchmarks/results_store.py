"""A results file: one tidy CSV, written a row at a time; a row run again takes its old place."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

DIGITS = 6
"""Significant ones that `rounded` keeps."""
OK, SKIPPED, FAILED = "ok", "skipped", "failed"

Key = tuple[str, ...]


def key_of(row: Mapping[str, Any], names: Sequence[str]) -> Key:
    """What identifies a row."""
    return tuple(str(row[name]) for name in names)


def rounded(value: Any) -> Any:
    """Floats, in lists and dictionaries too, to as many digits as mean something."""
    if isinstance(value, dict):
        return {key: rounded(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(v) for v in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


class ResultsStore:
    """Rows on disk, of these columns, of which some identify a row.

    A file is read if it exists. A last line that was cut short is dropped, and its row runs again.
    """

    def __init__(self, path: str | Path, columns: Sequence[str], key: Sequence[str]) -> None:
        self.path = Path(path)
        self.columns, self.key = tuple(columns), tuple(key)
        self.rows: dict[Key, dict[str, str]] = {}
        if self.path.exists():
            self._read()

    def add(self, row: Mapping[str, Any]) -> None:
        """Write a row at once; columns left out are empty."""
        key = key_of(row, self.key)
        cells = {name: _cell(row.get(name)) for name in self.columns}
        is_known, self.rows[key] = key in self.rows, cells
        if is_known:
            return self._rewrite()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8", newline="") as file:
            # One write a row: a process that is stopped leaves whole rows.
            file.write(_csv([cells], self.columns, header=file.tell() == 0))
            file.flush()

    def _read(self) -> None:
        text = self.path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        reader = csv.DictReader(io.StringIO(whole))
        if tuple(reader.fieldnames or self.columns) != self.columns:
            raise ValueError(f"{self.path} has other columns; move it away, or use another --out.")
        self.rows = {key_of(row, self.key): row for row in reader}
        if whole != text:
            self._rewrite()

    def _rewrite(self) -> None:
        partial = self.path.with_name(self.path.name + ".partial")
        text = _csv(self.rows.values(), self.columns, header=True)
        partial.write_text(text, encoding="utf-8", newline="")
        partial.replace(self.path)


def _csv(rows: Iterable[Mapping[str, str]], columns: Sequence[str], *, header: bool) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = f"{value:.10g}" if isinstance(value, float) else str(value)
    return " ".join(text.split())  # one line a row, whatever an error message holds
