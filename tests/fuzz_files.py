"""A million mutated model files: no crash, no hang, no error but the one.

    python tests/fuzz_files.py [--count N] [--processes P] [--seed S]

Mutations are random damage, sealed with a right checksum so that it gets past the first check, and
headers whose numbers are swapped for hostile ones. Several processes run, so that a crash is seen
and told. A run of FULL_COUNT files or more writes what it found to benchmarks/results/fuzz.txt.
"""

import argparse
import faulthandler
import hashlib
import json
import os
import re
import sys
import time
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestRegressor

from deploy.ensembles import made
from sparsebag.calibration.temperature import Temperature
from sparsebag.deploy import artifact
from sparsebag.deploy.artifact import ALIGNMENT, MAGIC, PREAMBLE, VERSION, dumps, loads
from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.deploy.from_members import compile_members
from sparsebag.deploy.trees import FlatTrees
from sparsebag.evidence.from_ensemble import read_ensemble

HOSTILE = (0, 1, -1, 2, 3, 64, 2**31 - 1, 2**31, -(2**31), 2**62, 2**64, 1e308, 0.5, "", None, [])
X = load_iris().data
MAX_COLUMNS = 10**5
ROWS = 150
"""More than two words of 64, not three: the kernel takes its way for many rows."""
INTEGERS = np.array([0, 1, 2, -1, -2, 5, 100, 2**31 - 1, -(2**31)], dtype="<i4")


def sealed(header: bytes, body: bytes = b"") -> bytes:
    """A file with this header, right lengths and a right checksum."""
    padding = -(PREAMBLE.size + len(header)) % ALIGNMENT
    content = header + b"\0" * padding + body
    digest = hashlib.sha256(content).digest()
    start = PREAMBLE.pack(MAGIC, VERSION, len(header), PREAMBLE.size + len(content), digest)
    return start + content


def parts(content: bytes) -> tuple[bytes, bytes]:
    """Header and arrays of a sound file."""
    n_header = PREAMBLE.unpack(content[: PREAMBLE.size])[2]
    end = PREAMBLE.size + n_header
    return content[PREAMBLE.size : end], content[end + -end % ALIGNMENT :]


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """One mutation of a sound file."""
    how = int(rng.integers(7))
    if how == 0:  # as the disk or the network would do it
        damaged = bytearray(content)
        for _ in range(int(rng.integers(1, 5))):
            damaged[int(rng.integers(len(damaged)))] = int(rng.integers(256))
        return bytes(damaged)
    header, body = parts(content)
    if how == 1:
        return sealed(header, body[: int(rng.integers(len(body) + 1))])
    if how == 2:  # bytes of the header
        text = bytearray(header)
        for _ in range(int(rng.integers(1, 4))):
            text[int(rng.integers(len(text)))] = int(rng.integers(32, 127))
        return sealed(bytes(text), body)
    if how == 3:  # a number of the header
        numbers = list(re.finditer(rb"-?\d+(\.\d+)?", header))
        found = numbers[int(rng.integers(len(numbers)))]
        new = json.dumps(HOSTILE[int(rng.integers(len(HOSTILE)))]).encode()
        return sealed(header[: found.start()] + new + header[found.end() :], body)
    if how == 4:  # an entry of the header
        tree = json.loads(header)
        _change_entry(tree, rng)
        return sealed(json.dumps(tree).encode(), body)
    damaged = bytearray(body)
    if how == 5:  # whole numbers where the arrays are
        for _ in range(int(rng.integers(1, 4))):
            at = 4 * int(rng.integers(len(damaged) // 4))
            damaged[at : at + 4] = rng.choice(INTEGERS).tobytes()
    else:
        for _ in range(int(rng.integers(1, 9))):
            damaged[int(rng.integers(len(damaged)))] = int(rng.integers(256))
    return sealed(header, bytes(damaged))


def _change_entry(tree: Any, rng: np.random.Generator) -> None:
    """Drop, swap or replace something, somewhere below."""
    while True:
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        key = keys[int(rng.integers(len(keys)))]
        below = tree[key]
        if isinstance(below, (dict, list)) and below and rng.random() < 0.8:
            tree = below
            continue
        if rng.random() < 0.3:
            del tree[key]
        elif rng.random() < 0.5:
            tree[key] = tree[keys[int(rng.integers(len(keys)))]]
        else:
            tree[key] = HOSTILE[int(rng.integers(len(HOSTILE)))]
        return


def seeds() -> dict[str, bytes]:
    """Sound files to mutate."""
    plain = {
        "three classes": Temperature(0.5, 0.01),
        "two classes": Temperature(1.5, 0.2, 32.0),
        "logistic": Temperature(2.0),
        "regression": None,
        "lines that know some classes": None,
        "networks": None,
    }
    models = {name: made(name, calibrator)[0] for name, calibrator in plain.items()}
    named = replace(models["three classes"], feature_names=("a", "b", "c", "d"))
    models |= {"three classes": named, "large trees, missing values": _large_trees()}
    ranks = {"three classes": 2, "two classes": 1, "regression": 3, "logistic": 2}
    models |= {f"{name}, gated": made(name, gate=rank)[0] for name, rank in ranks.items()}
    return {name: dumps(model) for name, model in models.items()}


def _large_trees() -> CompiledEnsemble:
    """Trees of more than 255 splits, which have a part below their tops."""
    rng = np.random.default_rng(0)
    rows = np.where(rng.random((700, 4)) < 0.1, np.nan, rng.normal(size=(700, 4)))
    forest = RandomForestRegressor(2, random_state=0).fit(rows, rng.normal(size=700))
    assert all(tree.tree_.n_leaves > 300 for tree in forest.estimators_)
    return compile_members(read_ensemble(forest), np.full(2, 0.5))


def try_out(content: bytes) -> str:
    """Load a file and, if it loads, predict with it: rows, a row, rows with missing values."""
    try:
        model = loads(content)
    except artifact.ArtifactError:
        return "refused"
    assert isinstance(model, CompiledEnsemble)
    width = model.n_features or max(g.n_features for g in model.groups)
    if not 0 < width < MAX_COLUMNS:
        return "loaded"
    rows = np.resize(X, (ROWS, width))
    with np.errstate(all="ignore"):
        if model.classes is None:
            assert model.predict(rows).shape == (ROWS,)
        else:
            assert model.predict_proba(rows).shape == (ROWS, len(model.classes))
            assert model.predict_proba_one(rows[0]).shape == (len(model.classes),)
        model.predict_one(rows[0])
        if model.allow_nan:
            holes = np.where(np.arange(rows.size).reshape(rows.shape) % 3 == 0, np.nan, rows)
            if all(isinstance(group, FlatTrees) for group in model.groups):
                assert model.predict(holes).shape == (ROWS,)
                model.predict_one(holes[0])
    return "predicted"


HANG_SECONDS = 20
"""A file takes well under a millisecond; a process that takes this long for one is killed."""
FULL_COUNT = 100_000
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "fuzz.txt"


def uncompressed_seeds() -> dict[str, bytes]:
    """The same files with every array as it is: damage to them is damage to a model."""
    with patch.object(artifact, "WORTH_PACKING", 2**62):
        return {f"{name}, uncompressed": content for name, content in seeds().items()}


def fuzz(count: int, seed: int) -> Counter[str]:
    """Try ``count`` mutations; every failure is written to a file and raised.

    Refused, loaded (a model of more columns than are tried) or predicted.
    """
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(seed)
    files = [*seeds().values(), *uncompressed_seeds().values()]
    results: Counter[str] = Counter()
    for i in range(count):
        content = mutated(files[i % len(files)], rng)
        if i % 100 == 0:
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        try:
            results[try_out(content)] += 1
        except BaseException:
            with open(f"fuzz_failure_{seed}_{i}.sbag", "wb") as file:
                file.write(content)
            raise
        if i % 50_000 == 0:
            print(f"seed {seed}: {i:,} of {count:,} files", file=sys.stderr, flush=True)
    faulthandler.cancel_dump_traceback_later()
    return results


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    start = time.perf_counter()
    each = -(-args.count // args.processes)
    found: Counter[str] = Counter()
    with ProcessPoolExecutor(args.processes, initializer=faulthandler.enable) as pool:
        # A process that crashes or hangs breaks the pool, which raises here.
        for results in pool.map(partial(fuzz, each), range(args.seed, args.seed + args.processes)):
            found += results
    told = (
        f"{found.total():,} mutated files, seeds {args.seed} to {args.seed + args.processes - 1}: "
        f"{found['refused']:,} refused, {found['loaded'] + found['predicted']:,} loaded, "
        f"{found['predicted']:,} of them predicted; crashes 0, hangs 0; "
        f"{time.perf_counter() - start:.0f} s"
    )
    print(told)
    if args.count >= FULL_COUNT:
        sys.path.append(str(Path(__file__).parents[1]))
        from benchmarks.environment import source_hash

        command = f"python tests/fuzz_files.py --count {args.count} --processes {args.processes}"
        source = f"source: {source_hash()}"  # which code it was
        RESULTS.write_text(f"{command}\n{source}\n{told}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
