"""Members that are each competent on one side of a feature: what local weights are for."""

import numpy as np

from sparsebag.refine.local_weights import LocalEvidence


class SideExpert:
    """Says what is true where ``x[feature]`` has its sign, and nothing of use elsewhere."""

    def __init__(self, truth, sign, seed, n_classes=None, feature=0):
        self.truth, self.sign, self.seed, self.feature = truth, sign, seed, feature
        if n_classes is not None:
            self.classes_ = np.arange(n_classes)

    def _noise(self, X, width):
        # The same row gets the same noise, whichever rows it comes with.
        phase = np.nan_to_num(X) @ np.linspace(17.0, 91.0, X.shape[1])[:, None]
        return np.sin(phase + 7.1 * self.seed + 2.3 * np.arange(width))

    def _knows(self, X):
        return (np.sign(np.nan_to_num(X[:, self.feature])) == self.sign)[:, None]

    def predict(self, X):
        noise = self._noise(X, 1)
        if hasattr(self, "classes_"):
            return self.predict_proba(X).argmax(axis=1)
        value = self.truth(X)[:, None]
        return np.where(self._knows(X), value + 0.1 * noise, 2.0 * noise)[:, 0]


class SideClassifier(SideExpert):
    loudness = 1.0

    def predict_proba(self, X):
        noise = self._noise(X, len(self.classes_))
        right = np.eye(len(self.classes_))[self.truth(X)]
        logits = np.where(self._knows(X), 3.0 * right + 0.3 * noise, self.loudness * noise)
        odds = np.exp(logits)
        return odds / odds.sum(axis=1, keepdims=True)


class Truth:
    """The function of rows that the models know half of."""

    def __init__(self, n_classes):
        self.n_classes = n_classes

    def __call__(self, X):
        if self.n_classes is None:
            return np.nan_to_num(X[:, 1]) + np.nan_to_num(X[:, 2])
        place = np.clip(np.nan_to_num(X[:, 1]) + 1.5, 0.0, 2.999)
        return (place * self.n_classes / 3.0).astype(int)


def expert_models(n_members=8, n_classes=None):
    """Models, and what they know half of."""
    kind, truth = SideExpert if n_classes is None else SideClassifier, Truth(n_classes)
    models = [kind(truth, (-1.0) ** j, j, n_classes) for j in range(n_members)]
    return models, truth


def expert_evidence(n_rows=600, n_members=8, n_classes=None, seed=0, oob=0.6):
    """Rows with honest votes of such models, a share of them out of bag."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 4))
    models, truth = expert_models(n_members, n_classes)
    if n_classes is None:
        votes = np.stack([m.predict(X) for m in models], axis=1)[:, :, None]
        target = truth(X) + 0.1 * rng.normal(size=n_rows)
    else:
        votes = np.stack([m.predict_proba(X) for m in models], axis=1)
        target = truth(X)
    mask = rng.random((n_rows, n_members)) < oob
    mask[np.arange(n_rows), rng.integers(n_members, size=n_rows)] = True
    base = rng.dirichlet(np.full(n_members, 20.0))
    weight = np.full(n_rows, 1.0 / n_rows)
    return LocalEvidence(X, votes, mask, target, weight, base, n_classes is not None)
