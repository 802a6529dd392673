"""A service under load, on loopback: single rows and batches, memory, the model swapped meanwhile.

    python -m benchmarks.service [--quick]

FastAPI and uvicorn in one process, eight client threads in another, requests bounded in number.
The same forest is served by the ``.sbag`` file and by its ONNX export in ONNX Runtime. While
requests for single rows come in, the file is replaced by another model's, by renaming.
"""

import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

import sparsebag as sb
from benchmarks.kept_output import options, results_of
from benchmarks.peak_memory import held_bytes

THREADS, ONE, BATCH, BATCH_ROWS = 8, 40_000, 2_000, 100
WARM = 0.2  # share of the requests before memory is read
JSON = {"Content-Type": "application/json"}


def app() -> Any:
    """What ``docs/howto/service.md`` shows, and ONNX Runtime beside it."""
    import onnxruntime
    from fastapi import FastAPI

    path = os.environ["MODEL"]
    service, options = FastAPI(), onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(f"{path}.onnx", options)
    loaded = {"model": sb.load(path), "written": os.stat(path).st_mtime_ns}

    def model() -> Any:
        written = os.stat(path).st_mtime_ns
        if written != loaded["written"]:
            loaded.update(model=sb.load(path), written=written)
        return loaded["model"]

    def by_onnx(rows: list[list[float]]) -> Any:
        return session.run(["probabilities"], {"X": np.array(rows, dtype=np.float32)})[0]

    @service.post("/sparsebag/one")
    def one(row: list[float]) -> list[float]:
        return model().predict_proba_one(row).tolist()

    @service.post("/sparsebag/batch")
    def batch(rows: list[list[float]]) -> list[list[float]]:
        return model().predict_proba(np.array(rows)).tolist()

    @service.post("/onnx/one")
    def onnx_one(row: list[float]) -> list[float]:
        return by_onnx([row])[0].tolist()

    @service.post("/onnx/batch")
    def onnx_batch(rows: list[list[float]]) -> list[list[float]]:
        return by_onnx(rows).tolist()

    return service


def load_test(port: int, pid: int, kind: str, count: int, bodies: list[bytes]) -> list[Any]:
    """Answers of ``count`` requests; prints how fast they came and how much the server grew."""

    def client(first: int) -> tuple[list[float], list[Any], int]:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        seconds, answers, warm = [], [], 0
        for i in range(first, count, THREADS):
            start = time.perf_counter()
            connection.request("POST", f"/{kind}", bodies[i % len(bodies)], JSON)
            answer = connection.getresponse()
            answers.append((i % len(bodies), json.loads(answer.read())))
            assert answer.status == 200, answers[-1]
            seconds.append(time.perf_counter() - start)
            warm = warm or (held_bytes(pid) if i >= WARM * count else 0)
        return seconds, answers, warm

    start = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        seconds, answers, warm = zip(*pool.map(client, range(THREADS)), strict=True)
    whole, each = time.perf_counter() - start, np.sort(np.concatenate(seconds)) * 1e3
    grown = (held_bytes(pid) - min(warm)) / 1e6
    print(
        f"{kind:<16}{count:>8}{count / whole:>10.0f}{np.median(each):>9.2f}"
        f"{each[int(0.99 * len(each))]:>9.2f}{grown:>+10.1f}",
        flush=True,
    )
    return [pair for of_thread in answers for pair in of_thread]


def swap(path: Path, contents: list[bytes], until: Any) -> int:
    """The file replaced again and again by renaming; how often."""
    done = 0
    while not until.done():
        path.with_suffix(".new").write_bytes(contents[done % 2])
        os.replace(path.with_suffix(".new"), path)
        done += 1
        time.sleep(0.25)
    return done


def main() -> None:
    quick = options(__doc__, quick="a tenth of it").parse_args().quick
    warnings.filterwarnings("ignore")
    X, y = make_classification(3000, n_features=20, n_informative=10, random_state=0)
    forests = [RandomForestClassifier(100, random_state=seed).fit(X, y) for seed in (0, 1)]
    models = [sb.compress(forest, X, y) for forest in forests]
    rows = X[:500].tolist()
    one = [json.dumps(row).encode() for row in rows]
    batch = [json.dumps((rows * 2)[i : i + BATCH_ROWS]).encode() for i in range(0, 500, BATCH_ROWS)]
    expected = [model.compile().predict_proba(X[:500]) for model in models]
    with tempfile.TemporaryDirectory() as folder, results_of("service", keep=not quick):
        path = Path(folder) / "model.sbag"
        contents = []
        for model in models[::-1]:
            model.save(path)
            contents.append(path.read_bytes())
        models[0].to_onnx(f"{path}.onnx")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "uvicorn", "benchmarks.service:app", "--factory"]
        command += ["--port", str(port), "--log-level", "warning"]
        server = subprocess.Popen(command, env={**os.environ, "MODEL": str(path)})
        try:
            while socket.socket().connect_ex(("127.0.0.1", port)):
                time.sleep(0.1)
            print(f"{THREADS} threads     requests  a second   p50 ms   p99 ms  grown MB")
            cut = 10 if quick else 1
            for size, count, bodies in (("one", ONE // cut, one), ("batch", BATCH // cut, batch)):
                for engine in ("sparsebag", "onnx"):
                    load_test(port, server.pid, f"{engine}/{size}", count, bodies)
            with ThreadPoolExecutor(1) as pool:
                served = (port, server.pid, "sparsebag/one", ONE // cut, one)
                under = pool.submit(load_test, *served)
                swaps = swap(path, contents, under)
            by = np.array([[np.allclose(p, of[i]) for of in expected] for i, p in under.result()])
            one, other, both = by[:, 0].sum(), by[:, 1].sum(), by.all(axis=1).sum()
            print(
                f"swapped {swaps} times meanwhile: {one - both} answers of one model, "
                f"{other - both} of the other, {both} of rows where they agree, "
                f"{(~by.any(axis=1)).sum()} of neither"
            )
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
