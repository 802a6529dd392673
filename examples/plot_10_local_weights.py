"""
Members that are good in different regions
==========================================

Twenty models of two regions (or sites, or years): each is right in its own region and wrong in the
other. A single vector of weights cannot express that. With ``local="auto"``, weights depend on the
row if held-out rows show that this helps.

Do not expect a gain for a forest of bootstrapped trees, which are equally good everywhere.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import log_loss
from sklearn.tree import DecisionTreeClassifier

import sparsebag as sb

# %%
# If the first feature is positive, the second one decides, otherwise the third. Each tree has seen
# one side only. Which one is not given, but learned on rows that no tree was trained on.

rng = np.random.default_rng(0)
X = rng.normal(size=(7000, 4))
signal = np.where(X[:, 0] > 0, 4 * X[:, 1], -4 * X[:, 2])
y = (rng.random(7000) < 1 / (1 + np.exp(-signal))).astype(int)
X_val, y_val, X_test, y_test = X[2000:4000], y[2000:4000], X[4000:], y[4000:]
models = []
for j in range(20):
    side = np.flatnonzero((X[:2000, 0] > 0) == bool(j % 2))
    rows = rng.choice(side, len(side))
    models.append(DecisionTreeClassifier(max_depth=4, random_state=j).fit(X[rows], y[rows]))

how = {"evidence": "holdout", "refine": None, "max_estimators": 10}
plain = sb.compress(models, X_val, y_val, **how)
small = sb.compress(models, X_val, y_val, local="auto", **how)
print(small.local_)

# %%
# On new rows:

votes = np.stack([model.predict_proba(X_test) for model in models])
draws = [votes[rng.choice(20, 10, replace=False)].mean(axis=0) for _ in range(5)]
drawn = np.mean([log_loss(y_test, vote) for vote in draws])
print(f"all 20 models          {log_loss(y_test, votes.mean(axis=0)):.3f}")
print(f"10 drawn at random     {drawn:.3f} (mean of five draws)")
print(f"{plain.n_active_} with global weights {log_loss(y_test, plain.predict_proba(X_test)):.3f}")
print(f"{small.n_active_} with local weights  {log_loss(y_test, small.predict_proba(X_test)):.3f}")

# %%
# The total weight of all members that were trained on the right side, row by row.

weights, members = small.local_.gate.weights(X_test), small.active_
right = members % 2 == 1
figure, axis = plt.subplots(figsize=(5, 3.5), layout="constrained")
axis.plot(X_test[:, 0], weights[:, right].sum(axis=1), ".", markersize=2, label="local")
axis.axhline(small.weights_[members[right]].sum(), linestyle="--", color="grey", label="global")
axis.set(xlabel="first feature", ylabel="weight of members that know the right", ylim=(0, 1.02))
axis.legend()
plt.show()
