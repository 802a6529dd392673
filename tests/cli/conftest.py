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
    return SimpleNamespace(
        folder=folder,
        train=folder / "train.csv",
        parquet=folder / "train.parquet",
        test=folder / "test.csv",
        skops=folder / "forest.skops",
        joblib=folder / "forest.joblib",
        small=folder / "small.sbag",
        model=small,
        frame=pd.read_csv(folder / "test.csv"),
    )


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command in an empty folder; gives exit code, output, and what is left there."""
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments):
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        left = sorted(path.name for path in tmp_path.iterdir())
        return SimpleNamespace(
            code=result.exit_code, out=result.stdout, err=result.stderr, left=left
        )

    return invoke
