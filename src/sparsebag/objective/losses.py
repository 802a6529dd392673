"""Pointwise losses of the ensemble's vote. To add one: write the class here, add it to `LOSSES`.

A loss sees the vote ``p`` and its ``target`` elementwise, as arrays of any array-API namespace,
and never the weights: `BlockLoss` supplies the chain rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from array_api_compat import array_namespace

Array = Any
Channel = Literal["true_class", "every_class", "prediction"]


@runtime_checkable
class Loss(Protocol):
    """What the objective needs of a loss.

    Attributes
    ----------
    name : str
        The public name, as passed to ``loss=``.
    channel : {"true_class", "every_class", "prediction"}
        What the loss reads: the probability of the true class, the probability of every class
        against a one-hot target, or a regression prediction.
    clip : float, optional
        Smallest vote the loss can bear; the objective raises lower ones to it.
    is_convex : bool, optional
        Whether the loss is convex in the vote; taken as False where it is not said.
    """

    @property
    def name(self) -> str:
        """The public name."""

    @property
    def channel(self) -> Channel:
        """What the loss reads."""

    def value(self, p: Array, target: Array) -> Array:
        """Loss of each vote."""

    def gradient(self, p: Array, target: Array) -> Array:
        """First derivative in ``p``."""


@runtime_checkable
class TwiceDifferentiableLoss(Loss, Protocol):
    """A loss that second-order solvers can use."""

    def curvature(self, p: Array, target: Array) -> Array:
        """Second derivative in ``p``."""


@dataclass(frozen=True)
class LogLoss:
    """``-log p`` of the true class.

    The objective raises votes below ``clip`` to it before they get here, and differentiates as if
    it had not, as the paper's code does: the gradient speaks of a slope where the clipped value
    is flat. That disagreement stalls line searches on 0/1 votes; the vote floor removes it.
    """

    clip: float = 1e-15  # where the paper's code cuts its logarithm: 34.5 nats, no more
    name: str = "log_loss"
    channel: Channel = "true_class"
    is_convex: bool = True

    def value(self, p: Array, target: Array) -> Array:
        """Loss of each vote."""
        return -array_namespace(p).log(p)

    def gradient(self, p: Array, target: Array) -> Array:
        """First derivative in ``p``."""
        return -1.0 / p

    def curvature(self, p: Array, target: Array) -> Array:
        """Second derivative in ``p``."""
        return 1.0 / (p * p)


@dataclass(frozen=True)
class SquaredError:
    """``(p - target)²`` of a regression prediction."""

    name: str = "squared_error"
    channel: Channel = "prediction"
    is_convex: bool = True

    def value(self, p: Array, target: Array) -> Array:
        """Loss of each vote."""
        return (p - target) ** 2

    def gradient(self, p: Array, target: Array) -> Array:
        """First derivative in ``p``."""
        return 2.0 * (p - target)

    def curvature(self, p: Array, target: Array) -> Array:
        """Second derivative in ``p``."""
        return 0.0 * p + 2.0


@dataclass(frozen=True)
class Brier(SquaredError):
    """``Σ_c (p_c - [y = c])²``, summed over all classes: between 0 and 2."""

    name: str = "brier"
    channel: Channel = "every_class"


LOSSES: dict[str, Loss] = {loss.name: loss for loss in (LogLoss(), SquaredError(), Brier())}

DEFAULT_LOSS = {"classification": "log_loss", "regression": "squared_error"}


def resolve_loss(loss: str | Loss, task: str) -> Loss:
    """Turn a name, ``"auto"`` or a loss object into a loss object that fits the task.

    Parameters
    ----------
    loss : str or Loss
        ``"auto"`` takes log-loss for classification and squared error for regression.
    task : {"classification", "regression"}
        What the evidence is about.

    Returns
    -------
    Loss

    Examples
    --------
    >>> resolve_loss("auto", "regression").name
    'squared_error'
    """
    if isinstance(loss, str):
        name = DEFAULT_LOSS[task] if loss == "auto" else loss
        if name not in LOSSES:
            raise ValueError(f"loss={loss!r} is not known; use 'auto' or one of {sorted(LOSSES)}.")
        loss = LOSSES[name]
    elif not isinstance(loss, Loss):
        raise TypeError(
            "loss must be a name or an object with name, channel, value and gradient "
            f"(see objective/losses.py), not {type(loss).__name__}."
        )
    if not _fits(loss, task):
        fitting = [name for name, known in LOSSES.items() if _fits(known, task)]
        raise ValueError(f"loss={loss.name!r} does not fit {task}; use one of {sorted(fitting)}.")
    return loss


def _fits(loss: Loss, task: str) -> bool:
    return (loss.channel == "prediction") == (task == "regression")
