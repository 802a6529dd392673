"""
Regression: ten trees that do the work of two hundred
=====================================================

In regression, refitting the survivors' leaves often does more than choosing them: a leaf learns
from all rows that reach it, and from what the whole forest says there.
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
# Ten trees, as they are and with refitted leaves.

budget = {"max_estimators": 10, "tolerance": None}
plain = sb.compress(forest, X, y, **budget, refine=None)
refitted = sb.compress(forest, X, y, **budget)
print(refitted.refinement_)

# %%
# The squared error on new rows, beside that of the first ten trees of the forest.

models = {"all 200 trees": forest, "10 chosen": plain, "10 chosen, refitted": refitted}
errors = {name: mean_squared_error(y_test, m.predict(X_test)) for name, m in models.items()}
ten = sum(tree.predict(X_test) for tree in forest.estimators_[:10]) / 10
errors["10 at random"] = mean_squared_error(y_test, ten)
for name, error in errors.items():
    print(f"{name:<22}{error:.3f}")

figure, axis = plt.subplots(figsize=(6, 2.2), layout="constrained")
axis.barh(list(errors), list(errors.values()))
axis.set_xlabel("mean squared error on new rows")
plt.show()

# %%
# The promise was made before any test row was seen.

print(refitted.selection_)
