"""What a claim is, and the words a verdict may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np

from benchmarks.verdict.results import Inputs

HOLDS_FROM = 0.75
"""A claim about "the" results holds when at least this share of the rows agree ..."""
FAILS_UP_TO = 0.5
"""... and fails when no more than this share do: a coin would do as well."""


class Verdict(Enum):
    """How a claim fares; the value is the word on the page."""

    HOLDS = "holds"
    IN_PART = "holds in part"
    FAILS = "fails"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Finding:
    """A verdict and the sentences, with their numbers, that it rests on."""

    verdict: Verdict
    evidence: tuple[str, ...] = ()


NOT_MEASURED = Finding(Verdict.NOT_MEASURED)


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper and the rule it is judged by.

    ``by_split`` is False for claims judged by the figures' experiments, which have one split.
    ``aside`` says why a claim is not in the tally: what no measurement could decide.
    """

    title: str
    quote: str
    where: str
    rule: str
    judge: Callable[[Inputs], Finding]
    figure: str | None = None
    by_split: bool = True
    aside: str = ""


def by_share(agree: int, total: int) -> Verdict:
    """The rule of thumb for "most rows"."""
    if total == 0:
        return Verdict.NOT_MEASURED
    share = agree / total
    if share >= HOLDS_FROM:
        return Verdict.HOLDS
    return Verdict.FAILS if share <= FAILS_UP_TO else Verdict.IN_PART


def weakest(*verdicts: Verdict) -> Verdict:
    """A claim with several parts is as good as its weakest measured part."""
    order = [Verdict.FAILS, Verdict.IN_PART, Verdict.HOLDS, Verdict.NOT_MEASURED]
    return min(verdicts, key=order.index)


def median(values: object) -> float:
    array = np.asarray(values, dtype=float)
    return float(np.median(array)) if array.size else float("nan")
