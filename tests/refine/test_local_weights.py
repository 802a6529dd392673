"""Maps of rows to weights and temperatures: gradients, the global model at zero, what they find."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from expert_bags import expert_evidence
from sparsebag.deploy.explained_weights import region_rules
from sparsebag.refine.full_vote import full_vote_risks
from sparsebag.refine.local_choice import Candidate, choose, cross_fit, mean_and_error
from sparsebag.refine.local_design import Deviation, LinearDesign, RegionDesign
from sparsebag.refine.local_gates import gate_of
from sparsebag.refine.local_judge import judged_weights, plain_losses
from sparsebag.refine.local_temperature import TemperatureProblem, goes_with
from sparsebag.refine.local_weights import WeightsProblem
from sparsebag.refine.localisation import LocalGain
from sparsebag.refine.temperature import Temperature, TemperedFloor
from sparsebag.refine.vector_scaling import VectorScaling

CANDIDATES = {
    "linear": (Candidate("linear", 0.3), Candidate("linear", 4.0)),
    "regions": (Candidate("regions", 0.3, 4), Candidate("regions", 4.0, 4)),
}


def problem_of(evidence):
    return WeightsProblem(evidence, LinearDesign.of(evidence.features, evidence.weight))


def numerical_gradient(losses, logits, step=1e-6):
    gradient = np.empty_like(logits)
    for j in range(logits.shape[1]):
        moved = np.zeros_like(logits)
        moved[:, j] = step
        gradient[:, j] = (losses(logits + moved) - losses(logits - moved)) / (2 * step)
    return gradient


@pytest.mark.parametrize("n_classes", [None, 2, 4])
def test_gradient_of_weights(n_classes):
    problem = problem_of(expert_evidence(40, 5, n_classes))
    logits = np.random.default_rng(1).normal(size=(40, 5))
    _, gradient = problem._loss_and_gradient(logits)
    expected = numerical_gradient(lambda z: problem._loss_and_gradient(z)[0], logits)
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_slope_of_a_temperature(share):
    problem = temperature_problem(50, share=share)
    log_t = np.random.default_rng(2).normal(scale=0.5, size=50)
    _, slope = problem._loss_and_slope(log_t)
    up, down = (problem._loss_and_slope(log_t + step)[0] for step in (1e-6, -1e-6))
    np.testing.assert_allclose(slope, (up - down) / 2e-6, atol=1e-7)


@pytest.mark.parametrize("n_classes", [None, 3])
def test_no_map_is_the_global_model(n_classes):
    evidence = expert_evidence(50, 5, n_classes)
    problem = problem_of(evidence)
    np.testing.assert_allclose(problem.weights(None), np.tile(evidence.base, (50, 1)), rtol=1e-12)
    flat = Deviation(problem.linear, np.zeros((4, 5)))
    np.testing.assert_array_equal(problem.losses(flat), problem.losses(None))
    gate = gate_of(evidence.base, flat, None)
    np.testing.assert_allclose(gate.weights(evidence.features), problem.weights(None), rtol=1e-12)


def test_mass_pulls_a_row_to_its_global_vote():
    """A gate that trusts only members that saw the row neither wins nor loses on it."""
    evidence = expert_evidence(80, 6)
    seen = np.where(evidence.mask, 0.0, 1.0)
    some = seen.any(axis=1)
    evidence, seen = evidence.take(np.flatnonzero(some)), seen[some]
    own = np.tile(evidence.base, (evidence.n_rows, 1))
    trusting = seen / seen.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(evidence.voted(trusting), evidence.voted(own), rtol=1e-9)


@pytest.mark.parametrize("kind", ["linear", "regions"])
@pytest.mark.parametrize("n_classes", [None, 2, 4])
def test_experts_are_found(kind, n_classes):
    evidence = expert_evidence(600, 8, n_classes)
    problem = problem_of(evidence)
    chosen = choose(problem, CANDIDATES[kind], forced=False)
    assert chosen is not None
    held_out = np.empty(evidence.mask.shape)
    for held in cross_fit(problem, CANDIDATES[kind], forced=False):
        held_out[held.rows] = problem.take(held.rows).weights(held.deviation)
    gain = judged_weights(evidence, held_out, kind, calibrates=False)
    assert gain.is_sure(2.0)
    assert gain.loss_after < 0.6 * gain.loss_before
    weights = problem.weights(problem.fit(chosen))
    far = np.abs(evidence.features[:, 0]) > 0.5
    right = np.sign(evidence.features[:, :1]) == (-1.0) ** np.arange(8)
    assert np.where(right, weights, 0.0).sum(axis=1)[far].mean() > 0.85


@pytest.mark.parametrize(
    "candidate", [Candidate("linear", 1.5, steepness=16.0), Candidate("regions", 1.5, 4)]
)
@pytest.mark.parametrize("n_classes", [2, 4])
def test_luck_parts_no_members_of_one_side(candidate, n_classes):
    """Eight that know the same: few rows must not leave the vote to the luckiest of them."""
    for seed in range(3):
        evidence = expert_evidence(300, 16, n_classes, seed=seed)
        problem = problem_of(evidence)
        right = np.sign(evidence.features[:, :1]) == (-1.0) ** np.arange(16)
        own = np.where(right, problem.weights(problem.fit(candidate)), 0.0)
        far = np.abs(evidence.features[:, 0]) > 0.5
        assert own.sum(axis=1)[far].mean() > 0.85
        voters = own.sum(axis=1) ** 2 / np.sum(own**2, axis=1)
        assert voters[far].mean() > 7.4


@pytest.mark.parametrize("kind", ["linear", "regions"])
def test_luck_is_not_taken_for_competence(kind):
    """Members that are alike everywhere: what folds see of a gate is no gain."""
    sure = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        noise = rng.normal(size=(400, 10, 1))
        evidence = replace(
            expert_evidence(400, 10, seed=seed), votes=noise, target=rng.normal(size=400)
        )
        problem = problem_of(evidence)
        if choose(problem, CANDIDATES[kind], forced=False) is None:
            continue
        held_out = np.empty(evidence.mask.shape)
        for held in cross_fit(problem, CANDIDATES[kind], forced=False):
            held_out[held.rows] = problem.take(held.rows).weights(held.deviation)
        sure += judged_weights(evidence, held_out, kind, calibrates=False).is_sure(2.0)
    assert sure == 0


@pytest.mark.parametrize("kind", ["linear", "regions"])
def test_rows_count_by_their_weight(kind):
    """What rows of next to no weight say does not matter; with weight it does."""
    evidence = expert_evidence(400, 8)
    some = np.arange(400) % 3 == 0
    lies = np.where(some, -5.0 * np.sign(evidence.features[:, 0]), evidence.target)
    apart = {}
    for name, of_some in (("light", 1e-12), ("full", 1.0)):
        weight = np.where(some, of_some, 1.0)
        fitted = []
        for target in (evidence.target, lies):
            rows = replace(evidence, target=target, weight=weight / weight.sum())
            problem = WeightsProblem(rows, LinearDesign.of(rows.features, rows.weight), unit=1.0)
            fitted.append(problem.weights(problem.fit(Candidate(kind, 1.0, 4))))
        # A split may fall on either side of rows that do not count.
        apart[name] = np.abs(fitted[0] - fitted[1])[~some].max()
    assert apart["light"] < 1e-3
    assert apart["full"] > 0.05


def test_folds_part_the_rows():
    problem = problem_of(expert_evidence(101, 4))
    folds = cross_fit(problem, CANDIDATES["linear"][:1], forced=True)
    rows = np.concatenate([held.rows for held in folds])
    assert sorted(rows.tolist()) == list(range(101))
    assert all(held.deviation is not None for held in folds)


# -- what a map looks at -------------------------------------------------------------------------


def test_scale_and_place_of_features_do_not_matter():
    evidence = expert_evidence(300, 6)
    units = np.array([1e-12, 1e9, 1.0, 1e30])
    moved = replace(evidence, features=(evidence.features + 3.0) * units)
    found = []
    for rows in (evidence, moved):
        problem = problem_of(rows)
        found.append(problem.weights(problem.fit(Candidate("linear", 1.0))))
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("empty", [[3], [0, 1, 2, 3]])
def test_columns_without_a_value_say_nothing(empty):
    """Nor does NumPy of them: here warnings are errors."""
    X = np.random.default_rng(0).normal(size=(300, 4))
    usual = LinearDesign.of(X, np.ones(300))
    X[:, empty] = np.nan
    design = LinearDesign.of(X, np.ones(300))
    assert (design.columns(X)[:, empty] == 0.0).all()
    kept = np.setdiff1d(np.arange(4), empty)
    np.testing.assert_allclose(design.scale[kept], usual.scale[kept], rtol=1e-12)


@pytest.mark.parametrize(
    "candidate",
    [
        Candidate("linear", 1.0),
        Candidate("linear", 1.0, rank=2, steepness=8.0),
        Candidate("regions", 1.0, 6),
        Candidate("regions", 1.0, 4, oblique=True),
    ],
)
def test_gates_say_what_was_fitted(candidate):
    """With unknown, infinite and constant features, weights and temperatures alike."""
    evidence = expert_evidence(300, 6)
    X = evidence.features.copy()
    X[::7, 0], X[1::7, 1], X[2::7, 2], X[:, 3] = np.nan, np.inf, -np.inf, 5.0
    problem = problem_of(replace(evidence, features=X))
    fitted = problem.fit(candidate)
    rng = np.random.default_rng(0)
    tempered = Deviation(fitted.design, 0.1 * rng.normal(size=(fitted.design.n_columns, 1)))
    gate = gate_of(evidence.base, fitted, (0.2, tempered))
    assert gate.kind == candidate.kind
    np.testing.assert_allclose(gate.weights(X), problem.weights(fitted), rtol=1e-7, atol=1e-12)
    expected = np.exp(0.2 + tempered.at(X)[:, 0])
    np.testing.assert_allclose(gate.temperatures(X), expected, rtol=1e-7)
    alone = gate_of(evidence.base, None, (0.2, tempered))
    np.testing.assert_allclose(alone.temperatures(X), expected, rtol=1e-7)
    np.testing.assert_allclose(alone.weights(X), problem.weights(None), rtol=1e-9)
    constant = gate_of(evidence.base, fitted, (0.2, None)).temperatures(X)
    np.testing.assert_allclose(constant, np.exp(0.2))


def test_unknown_values_can_have_a_region():
    X = np.random.default_rng(0).normal(size=(300, 2))
    X[::2, 1] = np.nan
    signal = np.where(np.isnan(X[:, 1:]), 1.0, -1.0)
    design = RegionDesign.grow(X, signal, np.ones(300), 2)
    assert set(design.regions(X[::2])).isdisjoint(design.regions(X[1::2]))


def test_columns_have_mean_zero():
    X = np.random.default_rng(0).normal(size=(500, 3))
    weight = np.random.default_rng(1).random(500)
    for design in (LinearDesign.of(X, weight), RegionDesign.grow(X, X[:, :1], weight, 5)):
        np.testing.assert_allclose(weight @ design.columns(X), 0.0, atol=1e-9 * weight.sum())


# -- judging ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [None, 3])
def test_full_vote_risk_is_exact_where_all_are_heard(n_classes):
    evidence = expert_evidence(60, 5, n_classes, oob=1.1)
    weights = np.random.default_rng(0).dirichlet(np.ones(5), size=60)
    risks, heard = full_vote_risks(evidence, weights)
    vote = np.einsum("ij,ijc->ic", weights, evidence.votes)
    truth = evidence.target[:, None] if n_classes is None else np.eye(3)[evidence.target]
    assert heard.all()
    np.testing.assert_allclose(risks, np.sum((vote - truth) ** 2, axis=1), rtol=1e-9)


@pytest.mark.parametrize("equal", [True, False])
def test_full_vote_risk_out_of_bag(equal):
    """What all members risk, from half of them: exact on average where weights are equal.

    Ratios of unequal weights are biased a little, the square of the out-of-bag vote by far more.
    """
    evidence = expert_evidence(20, 8, oob=1.1)
    weights = np.random.default_rng(0).dirichlet(np.full(8, 5.0), size=20)
    weights = np.full((20, 8), 1 / 8) if equal else weights
    exact = full_vote_risks(evidence, weights)[0]
    rng, draws, plain = np.random.default_rng(1), [], []
    for _ in range(3000):
        mask = rng.random((20, 8)) < 0.5
        mask[mask.sum(axis=1) < 2] = True
        heard = replace(evidence, mask=mask, base=np.full(8, 1 / 8))
        draws.append(full_vote_risks(heard, weights)[0])
        plain.append((heard.voted(weights)[:, 0] - evidence.target) ** 2)
    found, usual = (abs(np.mean(d) / exact.mean() - 1.0) for d in (draws, plain))
    error = np.std(np.mean(draws, axis=1)) / np.sqrt(3000) / exact.mean()
    assert found < (4.0 * error if equal else 0.3 * usual)
    assert usual > 0.2


def test_plain_losses_are_those_of_the_vote():
    evidence = expert_evidence(30, 4, 3)
    own = np.tile(evidence.base, (30, 1))
    expected = -np.log(evidence.voted(own)[np.arange(30), evidence.target])
    np.testing.assert_allclose(plain_losses(evidence, own), expected, atol=1e-4)


def test_row_weights_count():
    mean, error = mean_and_error(np.array([1.0, 5.0, 100.0]), np.array([3.0, 1.0, 0.0]))
    assert mean == 2.0
    assert error == pytest.approx(
        np.hypot(0.75 * 1.0, 0.25 * 3.0) / np.sqrt(1.0 - 0.75**2 - 0.25**2)
    )


def test_a_second_estimate_must_be_sure_as_well():
    gain = LocalGain("regions", 0.4, 0.387, 0.0124, 0.0033, second_gain=0.0027, second_error=0.0026)
    assert not gain.is_sure(3.0)
    assert replace(gain, second_error=0.001).is_sure(3.0)
    assert not replace(gain, second_gain=-1e-9, second_error=0.0).is_sure(3.0)


def test_one_row_with_all_the_weight_is_sure_of_nothing():
    """Its deviation from its own mean is zero, and so was the error."""
    weight = np.append(1e30, np.ones(50))
    assert mean_and_error(np.linspace(0.0, 1.0, 51), weight)[1] == np.inf
    weight[0] = 1e4
    assert mean_and_error(np.append(1.0, np.zeros(50)), weight)[1] > 0.05


@pytest.mark.parametrize("kind", ["linear", "regions"])
def test_gates_are_judged_on_the_same_rows(kind):
    """Rows that a gate leaves to members who saw them are neither dropped nor counted for it."""
    evidence = expert_evidence(300, 6, oob=0.4)
    heard = full_vote_risks(evidence, np.tile(evidence.base, (300, 1)))[1]
    silent = np.where(evidence.mask, 1e-9, 1.0)
    silent = np.where(evidence.mask.all(axis=1)[:, None], evidence.base, silent)
    silent /= silent.sum(axis=1, keepdims=True)
    gain = judged_weights(evidence, silent, kind, calibrates=False)
    risks = full_vote_risks(evidence, np.tile(evidence.base, (300, 1)))[0]
    assert gain.loss_before == pytest.approx(
        np.average(risks[heard], weights=evidence.weight[heard])
    )
    assert abs(gain.gain) < 1e-12 * gain.loss_before


@pytest.mark.parametrize("unit", [1e-30, 1e-7, 1e30])
@pytest.mark.parametrize("oblique", [False, True])
def test_regions_of_features_of_any_unit(unit, oblique):
    """scikit-learn's trees take values closer than 1e-7 for equal."""
    evidence = expert_evidence(400, 6)
    evidence = replace(evidence, features=evidence.features.astype(np.float32))
    other = replace(evidence, features=(evidence.features * unit).astype(np.float32))
    candidate = Candidate("regions", 1.0, 4, oblique=oblique)
    found = [
        problem_of(rows).weights(problem_of(rows).fit(candidate)) for rows in (evidence, other)
    ]
    assert np.ptp(found[0], axis=0).max() > 0.1
    np.testing.assert_allclose(found[1], found[0], atol=1e-3)
    gate = gate_of(evidence.base, problem_of(other).fit(candidate), None)
    np.testing.assert_allclose(gate.weights(other.features), found[1], atol=1e-12)


def test_many_features_need_no_square_matrix_of_them():
    evidence = expert_evidence(120, 4)
    wide = np.random.default_rng(0).normal(size=(120, 3000))
    problem = problem_of(replace(evidence, features=wide))
    tracemalloc.start()
    problem.fit(Candidate("linear", 1.0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.6 * 8 * 3000**2


@pytest.mark.parametrize("kind", ["linear", "regions"])
@pytest.mark.parametrize("n_classes", [None, 3])
def test_experts_either_side_of_an_oblique_plane(kind, n_classes):
    """Off the middle, too: held-out rows gain what rows on a plane of one feature gain."""
    evidence = expert_evidence(900, 8, n_classes)
    straight = evidence.features.copy()
    turned = straight.copy()
    turned[:, 0] = (straight[:, 0] + straight[:, 3]) / np.sqrt(2.0)
    turned[:, 3] = (straight[:, 0] - straight[:, 3]) / np.sqrt(2.0)
    candidate = {
        "linear": Candidate("linear", 1.0, steepness=16.0),
        "regions": Candidate("regions", 1.0, 4, oblique=True),
    }[kind]
    fit, rest = np.arange(600), np.arange(600, 900)
    saved = []
    for features in (straight, turned):
        problem = problem_of(replace(evidence, features=features))
        judges = problem.take(rest)
        deviation = problem.take(fit).fit(candidate)
        saved.append(float(np.mean(judges.losses(None) - judges.losses(deviation))))
    assert saved[1] > 0.8 * saved[0] > 0.0


def test_oblique_regions_in_words():
    evidence = expert_evidence(900, 8)
    turned = evidence.features.copy()
    turned[:, 3] = evidence.features[:, 0] - evidence.features[:, 3]
    turned[:, 0] = evidence.features[:, 3]
    problem = problem_of(replace(evidence, features=turned))
    gate = gate_of(evidence.base, problem.fit(Candidate("regions", 1.0, 2, oblique=True)), None)
    left, right = region_rules(gate, ("a", "b", "c", "d"))
    assert {"a", "d"} <= set(left.split())
    assert " <= " in left
    assert " > " in right
    sums, cut, _ = gate.directions.in_words(("a", "b", "c", "d"), 0, float(gate.threshold[0]))
    sums = sums.split(" + (")[0]  # without the number of smaller terms
    parts = sums.replace("- ", "-").replace("+ ", "").split(" ")
    row, total, factor = dict(zip("abcd", turned[7], strict=True)), 0.0, 1.0
    for part in parts:
        name = part.lstrip("-")
        if name in row:
            total += (-1.0 if part.startswith("-") else 1.0) * factor * row[name]
            factor = 1.0
        else:
            factor = float(part)
    expected = gate.regions(turned[7:8])[0] == 0
    assert abs(total - cut) > 0.05
    assert (total <= cut) == expected


# -- temperatures ----------------------------------------------------------------------------------


def temperature_problem(n_rows, share=0.0, log_temperature=0.0, draws=2, seed=0):
    """Votes that are right, but timid where the first feature is positive."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3))
    truth = rng.dirichlet(np.ones(3), size=n_rows)
    target = np.array([rng.choice(3, p=p) for p in truth])
    power = np.where(X[:, 0] > 0, 0.5, 1.0)[:, None]
    votes = truth**power + 1e-9
    votes = np.repeat((votes / votes.sum(axis=1, keepdims=True))[:, None, :], draws, axis=1)
    weight = np.ones(n_rows)
    design = LinearDesign.of(X, weight)
    return TemperatureProblem(X, votes, target, weight, design, log_temperature, share)


@pytest.mark.parametrize("candidate", [Candidate("linear", 1.0), Candidate("regions", 1.0, 4)])
def test_a_local_temperature_is_found(candidate):
    problem = temperature_problem(3000).at_best_temperature()
    fitted = problem.fit(candidate)
    sharper = np.array([[1.5, 0.0, 0.0]])
    plain = np.array([[-1.5, 0.0, 0.0]])
    assert fitted.at(sharper)[0, 0] < fitted.at(plain)[0, 0] - 0.3
    held = temperature_problem(3000, seed=1, log_temperature=problem.log_temperature)
    truth = held._loss_and_slope(np.where(held.features[:, 0] > 0, np.log(0.5), 0.0))[0]
    usual = held.losses(None).mean()
    share = (usual - held.losses(fitted).mean()) / (usual - truth.mean())
    assert share > (0.8 if candidate.kind == "regions" else 0.5)  # the truth is a step


def test_which_calibrators_a_local_temperature_replaces():
    assert goes_with(None)
    assert goes_with(TemperedFloor(0.8, 0.01))
    assert not goes_with(VectorScaling(np.ones(3), np.zeros(3), 0.0))
    tempered = temperature_problem(400, share=0.05, log_temperature=np.log(0.7))
    votes, target = tempered.votes[:, 0], tempered.target
    proba = TemperedFloor(0.7, 0.05).transform(votes)[np.arange(400), target]
    np.testing.assert_allclose(tempered.losses(None), -np.log(proba))
    assert Temperature(0.7).temperature == 0.7


def test_two_estimates_must_agree():
    sure = LocalGain("linear", 1.0, 0.9, 0.1, 0.01)
    assert sure.is_sure(3.0)
    assert not replace(sure, gain_error=0.04).is_sure(3.0)
    assert replace(sure, second_gain=0.001).is_sure(3.0)
    assert not replace(sure, second_gain=-0.001).is_sure(3.0)


def test_one_bad_value_does_not_hide_the_others():
    """A code for missing, 1e9 once among a thousand values, is no reason to see no border."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 2))
    side, weight = np.sign(X[:, :1]), np.full(1000, 1e-3)
    X[7, 0] = 1e9
    design = RegionDesign.grow(X, side, weight, 2)
    regions = design.regions(np.array([[-1.0, 0.0], [1.0, 0.0]]))
    assert regions[0] != regions[1]
    linear = LinearDesign.of(X, weight)
    assert 0.5 < linear.scale[0] < 2.0
