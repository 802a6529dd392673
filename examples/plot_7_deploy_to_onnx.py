"""
Deployment: one file, or ONNX
=============================

Three formats: a checksummed ``.sbag`` file without pickle, an ONNX graph, and an ordinary
scikit-learn forest. Exports are verified before you get them.
"""

import pickle
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

import sparsebag as sb

X, y = load_digits(return_X_y=True)
forest = RandomForestClassifier(200, random_state=0).fit(X, y)
small = sb.compress(forest, X, y, max_nodes=0.05)
folder = Path(tempfile.mkdtemp())

# %%
# One file. Loading it needs only NumPy, not scikit-learn or SciPy.

small.save(folder / "digits.sbag")
served = sb.load(folder / "digits.sbag")
print(served)
print(f"{(folder / 'digits.sbag').stat().st_size:,} bytes, as nbytes_ says: {small.nbytes_:,}")

# %%
# One row at a time, as in a service.

row = X[0].astype(np.float32)
served.predict_one(row)
start = time.perf_counter()
for _ in range(1000):
    served.predict_proba_one(row)
print(f"{1e3 * (time.perf_counter() - start):.1f} µs a row, here and now")

# %%
# ONNX: trees, floor and calibrator in one graph.

export = small.to_onnx(folder / "digits.onnx")
print(export.verify(X))

# %%
# And back to scikit-learn, for tools that need its objects.

again = small.to_sklearn()
print(type(again).__name__, np.abs(again.predict_proba(X) - small.predict_proba(X)).max())

# %%
# The size of each on disk.

models = {"forest, pickled": forest, "to_sklearn, pickled": again}
sizes = {name: len(pickle.dumps(model)) for name, model in models.items()}
sizes |= {p.suffix: p.stat().st_size for p in sorted(folder.iterdir())}
figure, axis = plt.subplots(figsize=(6, 2.5), layout="constrained")
axis.barh(list(sizes), [size / 1000 for size in sizes.values()])
axis.set(xscale="log", xlabel="kB")
plt.show()
