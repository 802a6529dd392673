"""Files a user would have: tables, fitted forests, a compressed model."""

from types import SimpleNamespace

import joblib
import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from typer.testing import CliRunner

import sparsebag as sb
from sparsebag.cli.app import app


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    table = load_iris(as_frame=True).frame.rename(columns=lambda c: c.removesuffix(" (cm)"))
    table["target"] = np.array(["setosa", "versicolor", "virginica"])[table["target"]]
    train, test = train_test_split(table, random_state=0, stratify=table["target"])
    train.to_csv(folder / "train.csv", index=False)
    train.to_parquet(folder / "train.parquet", index=False)
    test.to_csv(folder / "test.csv", index=False)
    X, y = train.drop(columns="target"), train["target"].to_numpy()
    forest = RandomForestClassifier(40, random_state=0).fit(X, y)
    skops.io.dump(forest, folder / "forest.skops")
    joblib.dump(forest, folder / "forest.joblib")
    small = sb.compress(forest, X, y, max_estimators=9)
    small.save(folder / "small.sbag")
    names = {"train": "train.csv", "parquet": "train.parquet", "test": "test.csv"}
    names |= {"skops": "forest.skops", "joblib": "forest.joblib", "small": "small.sbag"}
    paths = {kind: folder / name for kind, name in names.items()}
    return SimpleNamespace(model=small, frame=pd.read_csv(folder / "test.csv"), **paths)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command in an empty folder; gives exit code, output, and what is left there."""
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments):
        done = CliRunner().invoke(app, [str(a) for a in arguments])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        left = sorted(path.name for path in tmp_path.iterdir())
        return SimpleNamespace(code=done.exit_code, out=done.stdout, err=done.stderr, left=left)

    return invoke
