"""README's picture and figures and the table of rivals, from the rows of `benchmarks.quality`.

    python -m benchmarks.picture

Draws docs/pictures/size_against_loss.svg and rewrites what stands between the markers of README.md
and of pages in docs; README's first example is run for its output. Nothing is measured here.
"""

import io
import re
import tempfile
from collections.abc import Callable
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

from benchmarks.quality_summary import ratios, read, rivals_table, why_not
from sparsebag.judge.selection import in_bytes
from sparsebag.report.svg import AFTER, BEFORE, Axis, Chart

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
README, BENCHMARKS = ROOT / "README.md", ROOT / "docs" / "benchmarks.md"
HOW_IT_WORKS = ROOT / "docs" / "how_it_works.md"
PICTURE = ROOT / "docs" / "pictures" / "size_against_loss.svg"
KEY = ("dataset", "ensemble", "seed", "method")
SHOWN = {
    "adult": "Adult (income)",
    "bike_sharing": "Bike sharing",
    "california_housing": "California housing",
    "covertype_15k": "Covertype",
    "spambase": "Spambase",
}
"""Well-known data sets of the suite, chosen by hand; the picture has all of them."""
PAPER = '<rect width="100%" height="100%" rx="8" fill="#fff"/>'
"""Behind the chart: a page may be dark where the reader's browser is not."""
LABEL = 'text-anchor="middle" style="font-weight:600;stroke:#fff;stroke-width:4;paint-order:stroke"'


def results() -> Any:
    """Rows of every forest, bag, split and method."""
    table = read(sorted(RESULTS.glob("quality_*_of_2.csv")), KEY, "")
    return table[table["status"] == "ok"]


FIGURES: dict[str, Callable[[float], str]] = {
    "file_bytes": in_bytes,
    "score": lambda loss: f"{loss:,.0f}" if loss > 100 else f"{loss:.3f}",
    "accuracy": "{:.1%}".format,
    "r2": "{:.3f}".format,
}


def means(table: Any) -> Any:
    """Of the whole forest and of what the default makes of it, means over splits."""
    kept = table[(table["ensemble"] == "forest") & table["method"].isin(["whole", "default"])]
    return kept.groupby(["dataset", "method"])[list(FIGURES)].mean().unstack("method")


def expectations(table: Any) -> str:
    """What the default does to five forests, a line each."""
    found = means(table)
    head = "| data set | file | one row | log-loss or MSE | accuracy or R² |"
    lines = [head, "|---|---|---|---|---|"]
    latency = (RESULTS / "latency.txt").read_text(encoding="utf-8")
    for name, title in SHOWN.items():
        file, *scores = (
            " → ".join(shown(found.loc[name, (figure, which)]) for which in ("whole", "default"))
            for figure, shown in FIGURES.items()
            if found.loc[name, (figure, "whole")] == found.loc[name, (figure, "whole")]
        )
        took = re.findall(rf"^  {name} +(\S+) → (\S+)$", latency, re.MULTILINE)[0]
        lines.append(f"| {title} | {file} | {took[0]} ms → {took[1]} µs | {' | '.join(scores)} |")
    return "\n".join(lines)


def summary(table: Any) -> str:
    """What the default does to all ensembles, and where its gain comes from."""
    rows = table[table["method"] == "default"]
    file = (rows["file_bytes"] / rows["whole_bytes"]).median()
    ratio = ratios(table, "default", "whole")
    alone = ratios(table, "whole temperature", "whole")
    return (
        f"Over {ratio.index.get_level_values('dataset').nunique()} data sets, forests and bags, "
        f"the median file is {file:.1%} of the pickle. The median loss is {1 - ratio.median():.0%} "
        f"lower, and on {(ratio <= 1.01).mean():.0%} of them it is at most 1% higher.\nMuch of the "
        f"gain is calibration: a temperature alone lowers the loss by {1 - alone.median():.0%}."
    )


def members() -> str:
    """What weights are worth where 20 of 50 members are kept, from `benchmarks.members`."""
    text = (RESULTS / "members.txt").read_text(encoding="utf-8")
    lines = ["| | equal votes / random | simplex weights / equal votes |", "|---|---|---|"]
    for kind, half, figures in re.findall(
        r"^(trees|linear|networks), (all|half).* 20 (.*)$", text, re.M
    ):
        simplex, equal = re.findall(r"[-+][\d.]+ ± [\d.]+", figures)[:2]
        of = {"linear": "linear models"}.get(kind, kind) + " on half the columns" * (half == "half")
        lines.append(f"| {of} | {equal} | {simplex} |")
    return "\n".join(lines)


def alternatives(table: Any) -> str:
    """When something else is better, with figures."""
    boosted = ratios(table, "lightgbm tuned", "n5")
    tuned = ratios(table, "tuned out-of-fold", "at tuned nodes")
    return (
        "- **You can train gradient boosting instead.** With 5% of the forest's nodes each, "
        f"LightGBM had the lower loss on {(boosted < 1).mean():.0%} of the ensembles. Try both.\n"
        "- **You can tune a small forest instead.** At the same number of nodes, 20 tuned and "
        f"calibrated trees had the lower loss on {(tuned < 1).mean():.0%} of the ensembles."
    )


def picture(table: Any) -> str:
    """Size against loss as SVG: every forest before and after, five of them with their names."""
    found = means(table)
    size, loss = found["file_bytes"] / 1000, found["score"]
    ratio = loss["default"] / loss["whole"]
    chart = Chart(
        Axis("file size (kB)", 0.5, 1.2 * size["whole"].max(), is_log=True),
        Axis("loss relative to the forest", ratio.min() - 0.03, max(ratio.max(), 1.0) + 0.07),
        width=720.0,
        height=380.0,
    )
    labels: list[str] = []
    for name in found.index:
        small, whole = size.loc[name, "default"], size.loc[name, "whole"]
        faint = "" if name in SHOWN else ";stroke-opacity:.2;stroke-width:1"
        chart.line([whole, small], [1.0, ratio[name]], AFTER, faint)
        radius = 4.5 if name in SHOWN else 2.5
        chart.dots([whole], [1.0], BEFORE, radius=radius, hollow=True)
        chart.dots([small], [ratio[name]], AFTER, radius=radius)
        if name in SHOWN:
            below = 19 if ratio[name] < 0.95 else -10  # most others are close to 1
            place = f'x="{chart.left(small)}" y="{chart.top(ratio[name]) + below}" {LABEL}'
            labels.append(f"<text {place}>{SHOWN[name]}</text>")
    chart.marks += labels
    chart.marks.append(
        f'<text x="{chart.left(1.1 * size["whole"].max())}" y="24" text-anchor="end" '
        f'style="fill:{BEFORE};font-weight:600">forest of 100 trees</text>'
        f'<text x="{chart.left(0.6)}" y="24" style="fill:{AFTER};font-weight:600">compressed</text>'
    )
    return standing_alone(
        chart,
        "size-against-loss",
        "Size against loss, before and after",
        f"Log-loss or squared error on test rows of {len(found)} forests and of what "
        "sparsebag.compress makes of them by default, over the forest's, against the file's size.",
    )


def standing_alone(chart: Chart, *named: str) -> str:
    """A chart as a file: its name, title and description, on paper."""
    text = chart.svg(*named).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return text.replace("</desc>", "</desc>" + PAPER, 1)


def example_output(readme: str) -> str:
    """What README says its first example prints."""
    return re.findall(r"```text\n(.*?)```", readme, flags=re.DOTALL)[0]


def example() -> str:
    """README's first example is run, in a folder of its own; a block of what it prints."""
    code = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)[0]
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, chdir(folder), redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    return f"```text\n{printed.getvalue()}```"


def pages(table: Any) -> dict[Path, str]:
    """The pages, with what their markers name written anew."""
    parts = {
        README: {
            "example": example(),
            "expectations": expectations(table),
            "summary": summary(table),
            "alternatives": alternatives(table),
        },
        HOW_IT_WORKS: {"members": members()},
        BENCHMARKS: {"rivals": f"{rivals_table(table)}\n\n{why_not(table)}"},
    }
    return {
        path: with_figures(path.read_text(encoding="utf-8"), told) for path, told in parts.items()
    }


def with_figures(page: str, parts: dict[str, str]) -> str:
    """A page with these parts between their markers."""
    for name, text in parts.items():
        begin = f"<!-- {name}: python -m benchmarks.picture -->\n"
        pattern = rf"{re.escape(begin)}.*?<!-- end -->"
        page, n = re.subn(
            pattern, lambda _, t=text, b=begin: f"{b}{t}\n<!-- end -->", page, flags=re.DOTALL
        )
        assert n == 1, f"a page has {n} markers {begin!r}"
    return page


def main() -> None:
    """Write the picture and the pages."""
    table = results()
    for path, text in {PICTURE: picture(table) + "\n", **pages(table)}.items():
        path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)} written")


if __name__ == "__main__":
    main()
