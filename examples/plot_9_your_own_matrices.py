"""
Your own matrices
=================

Is your ensemble in R, Spark or a database? All you need is what each member predicts for each row,
and which rows it was trained on.
"""

import matplotlib.pyplot as plt
import numpy as np

import sparsebag as sb

rng = np.random.default_rng(0)
n_rows, n_members = 2000, 60
truth = rng.normal(size=n_rows)
skill = np.linspace(0.3, 2.0, n_members)  # the first members are good, the last are not
mistakes = 0.9 * rng.normal(size=(n_rows, 1)) + 0.4 * rng.normal(size=(n_rows, n_members))
predictions = truth[:, None] + skill * mistakes  # and they make much the same mistakes
was_not_trained_on = rng.random((n_rows, n_members)) < 0.37

# %%
# Weights on the simplex that minimise the loss of the vote on unseen rows. Most are exactly zero.

solution = sb.fit_weights(predictions, was_not_trained_on, truth, loss="squared_error")
print(solution.status.value)
print(f"{np.count_nonzero(solution.weights)} of {n_members} members are kept")
print("weight of the ten best:", solution.weights[:10].sum().round(3))

figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
axis.bar(np.arange(n_members), solution.weights)
axis.set(xlabel="member, the best first", ylabel="weight")
plt.show()

# %%
# The paper's concave penalty at several strengths, in units of the loss.

for lam in (0.0, 0.5, 2.0):
    found = sb.fit_weights(predictions, was_not_trained_on, truth, loss="squared_error", lam=lam)
    print(f"lam {lam:.1f}: {np.count_nonzero(found.weights)} members")
