"""Fitted local maps as they are deployed: one gate with weights, a temperature, or both."""

from __future__ import annotations

import numpy as np

from sparsebag.refine.calibrator import softmax_rows
from sparsebag.refine.gate import LinearGate
from sparsebag.refine.local_design import (
    BoundedDeviation,
    Deviation,
    FittedMap,
    LinearDesign,
    RegionDesign,
)
from sparsebag.refine.region_gate import RegionGate
from sparsebag.refine.temperature import SHARPEST, SOFTEST


def gate_of(
    base: np.ndarray,
    weights: FittedMap | None,
    temperature: tuple[float, FittedMap | None] | None,
) -> LinearGate | RegionGate:
    """One gate of what was fitted; weights and temperature look at the same design.

    Parameters
    ----------
    base : ndarray of shape (k,)
        The global weights.
    weights : FittedMap or None
        Of their logarithms; None: the weights are global.
    temperature : (float, FittedMap or None) or None
        The temperature's logarithm in the middle, and its deviation; None: no temperature.

    Returns
    -------
    LinearGate or RegionGate

    Examples
    --------
    >>> design = LinearDesign(np.zeros(1), np.ones(1))
    >>> gate = gate_of(np.array([0.5, 0.5]), Deviation(design, np.array([[1.0, -1.0]])), None)
    >>> gate.weights(np.array([[0.0], [0.5]])).round(2).tolist()
    [[0.5, 0.5], [0.73, 0.27]]
    """
    slope = None if temperature is None else temperature[1]
    of = weights or slope
    assert of is not None
    if isinstance(of.design, LinearDesign):
        return _linear_gate(of.design, base, weights, temperature)
    slopes = weights.coefficients if isinstance(weights, Deviation) else None
    return _region_gate(of.design, base, slopes, temperature)


def _linear_gate(
    design: LinearDesign,
    base: np.ndarray,
    weights: FittedMap | None,
    temperature: tuple[float, FittedMap | None] | None,
) -> LinearGate:
    d, k = design.n_columns, len(base)
    up, down, logits = np.zeros((k, 0)), np.zeros((0, d)), np.log(base)
    offset = None
    if isinstance(weights, BoundedDeviation):
        up, down, offset = weights.up.T, weights.down.T, weights.offset
        logits = logits - weights.centre @ weights.up
    elif weights is not None:
        # Exact: the fit has cut the map to few directions.
        left, values, right = np.linalg.svd(weights.coefficients, full_matrices=False)
        kept = values > 1e-9 * max(values[0], np.finfo(float).tiny)
        up, down = right[kept].T, (left[:, kept] * values[kept]).T
    logs = None
    if temperature is not None:
        about, of_features = temperature
        if of_features is None:
            logs = np.concatenate([[about], np.zeros(len(down))])
        else:
            assert isinstance(of_features, Deviation)
            logs = np.concatenate([[about], np.zeros(len(down)), [1.0]])
            up = np.hstack([up, np.zeros((k, 1))])
            down = np.vstack([down, of_features.coefficients.T])
    if len(down) == 0:  # a gate has one direction at least
        up, down = np.zeros((k, 1)), np.zeros((1, d))
        logs = None if logs is None else np.append(logs, 0.0)
    if offset is not None:  # the weights do not read the temperature's direction
        offset = np.append(offset, np.zeros(len(down) - len(offset)))
    return LinearGate(
        design.mean, design.scale, down, up, logits, log_temperature=logs, offset=offset
    )


def _region_gate(
    design: RegionDesign,
    base: np.ndarray,
    slopes: np.ndarray | None,
    temperature: tuple[float, FittedMap | None] | None,
) -> RegionGate:
    columns, tree = design.of_regions(), design.tree.tree_
    moved = np.zeros((len(columns), len(base))) if slopes is None else columns @ slopes
    temperatures = None
    if temperature is not None:
        about, of_regions = temperature
        logs = np.full(len(columns), about)
        if of_regions is not None:
            assert isinstance(of_regions, Deviation)
            logs += columns @ of_regions.coefficients[:, 0]
        temperatures = np.clip(np.exp(logs), SHARPEST, SOFTEST)
    inner = tree.children_left != -1
    return RegionGate(
        feature=design.feature,
        threshold=design.threshold,
        left=tree.children_left,
        right=tree.children_right,
        missing_left=np.where(inner, tree.missing_go_to_left, 0),
        region=design.region,
        region_weights=softmax_rows(np.log(base) + moved),
        n_features=len(design.unit),
        temperature=temperatures,
        directions=design.directions,
    )
