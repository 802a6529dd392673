"""What the files of `benchmarks.local` say, in tables; kept in benchmarks/results/local.txt."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import numpy as np

from benchmarks import local_des, local_experts, local_suite
from benchmarks.environment import environment
from benchmarks.kept_output import kept_output
from benchmarks.local_jobs import RESULTS, files
from benchmarks.results_store import OK, ResultsStore

Row = dict[str, str]
ASKED_SHARE = 0.8
"""Of the oracle's gain."""
TITLES = {
    "forest": "forests of 100 trees",
    "bag": "bags of 100 trees",
    "unlike": "bags of unlike models",
}
ALLOWED = 0.005
"""Relative loss of a data set's mean."""


def rows_of(module: object, name: str | None = None) -> list[Row]:
    """Finished rows of a part, its shards included."""
    name = name or module.NAME  # type: ignore[attr-defined]
    columns, key = module.COLUMNS, module.KEY  # type: ignore[attr-defined]
    stores = [ResultsStore(path, columns, key) for path in files(name)]
    return [row for store in stores for row in store.rows.values() if row["status"] == OK]


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple[str, ...], list[Row]]:
    groups = defaultdict(list)
    for row in rows:
        groups[tuple(row[name] for name in names)].append(row)
    return groups


def print_sources(rows: Iterable[Row]) -> None:
    """Which code the rows are of: finished ones are not run again when it changes."""
    found = Counter(row["source"] for row in rows).most_common()
    print("rows of source " + ", ".join(f"{source} ({n})" for source, n in found))


def values(rows: Iterable[Row], name: str) -> np.ndarray:
    return np.array([float(row[name]) for row in rows if row[name] != ""])


def experts() -> None:
    _experts_of("the vote alone", rows_of(local_experts))
    _experts_of("calibrated by default", rows_of(local_experts, local_experts.CALIBRATED))


def _experts_of(title: str, rows: list[Row]) -> None:
    if not rows:
        return
    print(
        f"\nHalf-space experts, {title}: share of the oracle gate's gain on test rows, "
        "mean (least) of seeds"
    )
    print_sources(rows)
    gates = local_experts.GATES
    print(
        f"{'task':16}{'boundary':10}{'members':9}{'seeds':>6}" + "".join(f"{g:>18}" for g in gates)
    )
    for (task, boundary, base), group in grouped(rows, "task", "boundary", "base").items():
        cells = []
        for gate in gates:
            shares = values([row for row in group if row["gate"] == gate], "share")
            cells.append(f"{shares.mean():.0%} ({shares.min():.0%})" if len(shares) else "-")
        seeds = len({row["seed"] for row in group})
        print(f"{task:16}{boundary:10}{base:9}{seeds:>6}" + "".join(f"{c:>18}" for c in cells))
    for gate in gates:
        for boundary in ("axis", "oblique"):
            of = [r for r in rows if r["gate"] == gate and r["boundary"] == boundary]
            cases = grouped(of, "task", "base").values()
            enough = sum(values(case, "share").mean() >= ASKED_SHARE for case in cases)
            print(
                f"{gate}, {boundary}: {enough} of {len(cases)} means at {ASKED_SHARE:.0%} or more"
            )


def suite() -> None:
    rows = rows_of(local_suite)
    for ensemble, options in local_suite.ENSEMBLES.items():
        own = [row for row in rows if row["ensemble"] == ensemble]
        if own:
            _suite_of(f"{TITLES[ensemble]}, {options or 'defaults'}", own)


def _suite_of(title: str, rows: list[Row]) -> None:
    print(f'\nlocal="auto" beside global weights, same {local_suite.KEPT} survivors: {title}')
    print_sources(rows)
    refined = sum(row["refined"] == "1" for row in rows)
    if refined:
        print(f"leaves refitted in {refined} of {len(rows)} fits: those try a temperature only")
    head = ("data set", "seeds", "gated", "global", "local", "change", "± (test)", "expected")
    print(f"{head[0]:20}" + "".join(f"{name:>10}" for name in head[1:]))
    wins = ties = losses = 0
    worst, gated_changes = ("", 0.0), []
    for (name,), group in sorted(grouped(rows, "dataset").items()):
        before, after = values(group, "global"), values(group, "local")
        change = after.mean() / before.mean() - 1.0
        error = np.sqrt(np.sum(values(group, "difference_error") ** 2)) / before.sum()
        gated = sum(row["gate"] != "" for row in group)
        told = [float(r["expected_gain"]) / float(r["expected_before"]) for r in group if r["gate"]]
        expected = -sum(told) / len(group)
        wins, losses = wins + (change < 0.0), losses + (change > 0.0)
        ties += change == 0.0
        worst = max(worst, (name, change), key=lambda found: found[1])
        gated_changes += [
            (float(row["local"]) / float(row["global"]) - 1.0, row) for row in group if row["gate"]
        ]
        print(
            f"{name:20}{len(group):>10}{gated:>10}{before.mean():>10.4g}{after.mean():>10.4g}"
            f"{change:>+10.2%}{error:>10.2%}{expected:>+10.2%}"
        )
    print(f"data sets: {wins} better, {ties} the same, {losses} worse")
    print(f"worst mean: {worst[1]:+.2%} {worst[0]} (allowed {ALLOWED:+.1%})")
    if gated_changes:
        better = sum(change < 0.0 for change, _ in gated_changes)
        mean = float(np.mean([change for change, _ in gated_changes]))
        weights = sum(row["weights"] == "1" for _, row in gated_changes)
        tempered = sum(row["temperature"] == "1" for _, row in gated_changes)
        print(
            f"gated fits: {len(gated_changes)} of {len(rows)} ({weights} weights, {tempered} "
            f"temperatures), {better} better on test rows, mean change {mean:+.2%}"
        )
    seconds = values(rows, "seconds")
    print(f"compress with local='auto': {np.median(seconds):.1f} s of processor time at the median")


def des() -> None:
    rows = rows_of(local_des)
    if not rows:
        return
    # A data set counts where every method has its row.
    methods = list(dict.fromkeys(row["method"] for row in rows))
    whole = [g for g in grouped(rows, "dataset", "seed").values() if len(g) == len(methods)]
    sets = {group[0]["dataset"] for group in whole}
    print(
        f"\nBeside dynamic selection: {len(sets)} classification sets, {len(whole)} splits, means"
    )
    print_sources(rows)
    gated = sum(bool(row["gate"]) for row in rows)
    print(f"splits on which sparsebag was sure of a gate: {gated}")
    names = ("accuracy", "log_loss", "smoothed_log_loss", "ece", "us_per_row")
    print(f"{'method':24}" + "".join(f"{name:>19}" for name in names))
    for method in methods:
        own = [row for group in whole for row in group if row["method"] == method]
        cells = [np.mean(values(own, name)) for name in names[:-1]]
        cells.append(np.median(values(own, names[-1])))
        print(f"{method:24}" + "".join(f"{cell:>19.4g}" for cell in cells))
    for name in names[:-1]:
        lower = name != "accuracy"
        counts = []
        for method in methods:
            if method == local_des.OURS:
                continue
            better = worse = 0
            for group in grouped([r for g in whole for r in g], "dataset").values():
                ours, theirs = (
                    values([r for r in group if r["method"] == m], name).mean()
                    for m in (local_des.OURS, method)
                )
                better += ours < theirs if lower else ours > theirs
                worse += ours > theirs if lower else ours < theirs
            counts.append(f"{method} {better}:{worse}")
        print(f"{name}: sets on which sparsebag's mean is better:worse: {', '.join(counts)}")


def run() -> None:
    with kept_output(RESULTS / "local.txt"):
        # Of no one source: each table names that of its rows, which are kept when it changes.
        print(f"benchmarks.local, summarised on {environment()['machine']}")
        experts()
        suite()
        des()
