"""The page about the paper is what the kept results give, and changes when they do."""

import re
from dataclasses import replace

import pytest
from benchmarks.paper_page import CLAIMS, FAILS, HERE, HOLDS, IN_PART, Measured, main, page

DOCS = HERE.parent / "docs"
TEMPLATE = (HERE / "data" / "paper_template.md").read_text(encoding="utf-8")
KEPT = HERE / "results", HERE / "data" / "paper_tables.csv"

pytestmark = pytest.mark.skipif(not KEPT[0].exists(), reason="the kept results are not here")


@pytest.fixture(scope="module")
def kept():
    return Measured.read(*KEPT)


def with_fits(m: Measured, **figures) -> Measured:
    """The same with these figures in every fit of every bag, and on every split."""
    bags = {k: bag | {"fits": [f | figures for f in bag["fits"]]} for k, bag in m.bags.items()}
    ours = {k: [r | figures for r in rows] for k, rows in m.splits.items() if k[2] == "scsb_paper"}
    return replace(m, bags=bags, splits=m.splits | ours)


def verdict(m: Measured, name: str) -> str:
    return next(judge for judge in CLAIMS if judge.__name__ == name)(m).verdict


def test_the_page_and_its_tables_are_what_the_kept_results_give(tmp_path):
    assert main([f"--out={tmp_path}"]) == 0
    names = [path.relative_to(tmp_path) for path in tmp_path.rglob("*.*")]
    assert len(names) == 5
    for name in names:
        assert (tmp_path / name).read_bytes() == (DOCS / name).read_bytes(), name
    assert len((DOCS / "paper.md").read_text(encoding="utf-8").split()) <= 3000


def test_every_claim_has_its_section_in_the_tables_order_and_is_counted(kept):
    named = re.findall(r"^### \d+\. .*: \{(\w+)\.verdict\}\n\n> “", TEMPLATE, re.MULTILINE)
    assert named == [judge.__name__ for judge in CLAIMS]
    text = page(kept, TEMPLATE)
    words = re.findall(r"^### \d+\. .*: (holds in part|holds|fails)$", text, re.MULTILINE)
    assert len(words) == len(CLAIMS)
    told = r"{} hold, {} hold in part, {} fail\.".format(*map(words.count, (HOLDS, IN_PART, FAILS)))
    assert re.search(told, " ".join(text.split()))


@pytest.mark.parametrize(
    ("name", "figures", "word"),
    [
        ("calibration", {"ece": 0.0}, "holds"),
        ("calibration", {"ece": 0.9}, "fails"),
        ("accuracy", {"accuracy": 1.0, "mse": 0.0}, "holds"),
        ("accuracy", {"accuracy": 0.1, "mse": 1e9}, "fails"),
        ("zeros", {"tiny": 0}, "holds"),
        ("convergence", {"success": True}, "holds"),
        ("spike", {"top_tenth": 0.2}, "fails"),
        ("concluded", {"survivors": 3}, "holds"),
        ("concluded", {"survivors": 49}, "fails"),
        ("flagship", {"survivors": 2, "r2": 0.99}, "holds"),
        ("flagship", {"survivors": 4, "r2": 0.99}, "holds in part"),
        ("flagship", {"survivors": 4, "r2": 0.0}, "fails"),
        ("start", {"objective": 0.0, "oob_loss": 0.3}, "holds"),
        ("start", {"objective": 1e9}, "fails"),
        ("compression", {"survivors": 49}, "fails"),
    ],
)
def test_other_fits_give_another_verdict(kept, name, figures, word):
    assert verdict(with_fits(kept, **figures), name) == word
