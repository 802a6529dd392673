"""
A bag of support vector machines
================================

Members need not be trees. Thirty bagged SVMs are weighted by their predictions of out-of-bag rows.
With ``oob_score=True``, sparsebag can verify that it was given the training data.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import BaggingClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import sparsebag as sb

X, y = load_breast_cancer(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, random_state=0)
member = make_pipeline(StandardScaler(), SVC(C=4.0, kernel="rbf"))
bag = BaggingClassifier(member, 30, max_samples=0.6, oob_score=True, random_state=0).fit(X, y)

# %%
# An SVM without probabilities votes for a class. Members that are not trees stay unchanged: with
# a budget of eight, eight are kept and weighted, and their vote is calibrated.

small = sb.compress(bag, X, y, max_estimators=8)
print(small.selection_)
print("rows proved by:", small.verified_by_)

# %%
# The expected loss for other numbers of members, judged on out-of-bag rows.

path = small.path_
figure, axis = plt.subplots(figsize=(6, 3.5), layout="constrained")
axis.errorbar(path.n_members, path.ratio, path.error, marker="o", label="± one standard error")
axis.plot(path.n_members[path.kept], path.ratio[path.kept], "o", markersize=10, label="kept")
axis.set(xscale="log", xlabel="members", ylabel="Brier score over the bag's")
axis.legend()
plt.show()

# %%
# Kernel SVMs have no array form: they keep their own ``predict``, and can be saved only with
# ``allow_pickle=True``. The gain is that eight are evaluated instead of thirty.

print(small.compile())
small.report(X_test, y_test)
