"""
Regression: a twentieth of the nodes
====================================

A forest of 200 trees, pruned to 5% of its nodes, compared with selected and with random trees of
the same size.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_friedman1
from sklearn.ensemble import RandomForestRegressor
from sklearn.metrics import mean_squared_error
from sklearn.model_selection import train_test_split

import sparsebag as sb

X, y = make_friedman1(1500, noise=1.0, random_state=0)
X, X_test, y, y_test = train_test_split(X, y, random_state=0)
forest = RandomForestRegressor(200, random_state=0).fit(X, y)

# %%
# The same budget twice: pruned and refitted trees, and unchanged whole trees.

pruned = sb.compress(forest, X, y, max_nodes=0.05)
chosen = sb.compress(forest, X, y, max_nodes=0.05, refine=None)
print(pruned.selection_)

# %%
# The squared error on new rows, compared with the first ten trees of the forest.

models = {"all 200 trees": forest, "5 %, pruned": pruned, "5 %, whole trees": chosen}
errors = {name: mean_squared_error(y_test, m.predict(X_test)) for name, m in models.items()}
ten = sum(tree.predict(X_test) for tree in forest.estimators_[:10]) / 10
errors["10 at random"] = mean_squared_error(y_test, ten)
for name, error in errors.items():
    print(f"{name:<20}{error:.3f}")

figure, axis = plt.subplots(figsize=(6, 2.2), layout="constrained")
axis.barh(list(errors), list(errors.values()))
axis.set_xlabel("mean squared error on new rows")
plt.show()
