"""The how-to pages: their code runs and prints what they say; the service answers requests."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier

import sparsebag as sb

DOCS = Path(__file__).parents[1] / "docs"
PAGES = {
    "howto/pipelines.md": "skops",
    "howto/other_libraries.md": "xgboost",
    "howto/shap.md": "shap",
    "guide/class_weights.md": "sklearn",
}


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_pages_print_what_they_say(page, tmp_path):
    pytest.importorskip(PAGES[page], reason=f"{PAGES[page]} is in the models extra")
    script = tmp_path / "page.py"
    script.write_text(blocks(page, "python")[0], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found, told = (text.split() for text in (done.stdout, blocks(page, "text")[0]))
    assert len(found) == len(told), done.stdout
    for one, other in zip(found, told, strict=True):
        is_number = re.fullmatch(r"\d+\.\d+", other)
        assert float(one) == pytest.approx(float(other), abs=0.05) if is_number else one == other


def test_the_service_answers(tmp_path):
    pytest.importorskip("fastapi", reason="fastapi is in the models extra")
    pytest.importorskip("uvicorn", reason="uvicorn is in the models extra")
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 2)), columns=["size", "weight"])
    y = np.where(X["size"] + X["weight"] > 0, "yes", "no")
    small = sb.compress(RandomForestClassifier(30, random_state=0).fit(X, y), X, y)
    small.save(tmp_path / "model.sbag")
    (tmp_path / "app.py").write_text(blocks("howto/service.md", "python")[0], encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "app:app", "--host", "127.0.0.1"]
    server = subprocess.Popen(
        [*command, "--port", str(port)], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )

    def ask(row):
        body = json.dumps(row).encode()
        kind = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/predict", body, kind)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    row = {"weight": 1.2, "size": 0.3}
    try:
        for _ in range(100):
            try:
                found = ask(row)
                break
            except urllib.error.URLError:
                assert server.poll() is None, server.stderr.read()
                time.sleep(0.2)
        own = small.predict_proba(pd.DataFrame([row]))[0]
        assert found == pytest.approx(dict(zip(["no", "yes"], own, strict=True)))
        assert found == pytest.approx(json.loads(blocks("howto/service.md", "text")[0]), abs=0.05)
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask({"size": 0.3})
        assert "'weight' is missing" in json.load(refused.value)["detail"]
        refused.value.close()
    finally:
        server.terminate()
        server.communicate(timeout=10)
