"""Whatever is wrong with the input: one sentence, an exit code, nothing half-written."""

import json
import os
import re
import sys
import zipfile
from fractions import Fraction

import joblib
import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

import sparsebag as sb

OUT = ("--target", "target", "-o", "out.sbag", "--report", "out.html")


def assert_refused(done, code, *words, left=()):
    assert done.code == code, done.err
    assert done.out == ""
    told = [line for line in done.err.splitlines() if line.startswith("sparsebag: ")]
    assert len(told) == 1, done.err
    assert "Traceback" not in done.err
    for word in words:
        assert word in told[0]
    assert sorted(done.left) == sorted(left)


TABLES = {
    "ragged": ("a,b,target\n1,2,0\n3,4\n", "valid CSV table: line 3 has 2 fields where the header"),
    "quoted": ('a,b,target\n"1\n",2,0\n3,4\n', "line 4 has 2 fields where the header has 3"),
    "empty": ("", "is empty"),
    "no rows": ("a,b,target\n", "has a header but no rows"),
    "twice": ("a,a,target\n1,2,0\n", "two columns named 'a'"),
    "no target": ("a,b,label\n1,2,0\n", "lacks column 'target' (it has 'a', 'b', 'label')"),
    "wide": (f"{','.join('abcdefghijklmn')}\n", "has 'a', 'b', 'c', 'd', 'e', 'f', … 'i', 'j'"),
    "nearly": ("a,b,targets\n1,2,0\n", "lacks column 'target' (it has 'targets')"),
    "gaps": ("a,b,target\n1,2,0\n1,2,\n", "no target in 1 of its rows (first: row 2)"),
    "alone": ("target\n1\n0\n", "only the column 'target'"),
    "constant": ("a,target\n1,x\n2,x\n", "every row has the same target"),
    "binary": (
        b"\x00\xff\xfe\x01" * 40,
        "'bad.csv' is not valid utf-8 text; pass its encoding, such as --encoding",
    ),
    "latin-1": ("a,target\n1,é\n2,x\n".encode("latin-1"), "is not valid utf-8 text"),
    "half gzip": (b"\x1f\x8b\x08\x00\x00\x00", "not a valid CSV table"),
    "semicolons": ("a;b;target\n1;2;0\n", "seems to separate its columns by ';'"),
    "prose": (
        "a,b,target\n" + "".join(f"name {i},{i},{i % 2}\n" for i in range(60)),
        "60 distinct values in 60 rows; it looks like a date, an identifier or free text, not "
        "a category. Turn",
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_that_cannot_be_used(name, run, tmp_path):
    content, words = TABLES[name]
    (tmp_path / "bad.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert_refused(run("fit", "bad.csv", *OUT), 3, words, left=["bad.csv"])


@pytest.fixture(scope="module")
def bad(files, tmp_path_factory):
    """A folder of files with something wrong, by name."""
    folder = tmp_path_factory.mktemp("bad")
    table = pd.read_csv(files.train)
    X, y = table.drop(columns="target"), table["target"]
    (folder / "junk.skops").write_bytes(b"PK\x03\x04 no zip")
    (folder / "text.parquet").write_text("a,b\n1,2\n")
    (folder / "cut.sbag").write_bytes(files.small.read_bytes()[:-9])
    joblib.dump(LogisticRegression(max_iter=500).fit(X, y), folder / "one.joblib")
    pipe = make_pipeline(StandardScaler(), RandomForestClassifier(5)).fit(X, y)
    joblib.dump(pipe, folder / "pipe.joblib")
    bare = RandomForestClassifier(5).fit(np.zeros((4, 2)), [0, 1, 0, 1])
    joblib.dump(bare, folder / "bare.joblib")
    joblib.dump({"model": bare}, folder / "dict.joblib")
    skops.io.dump(BaggingClassifier(SVC(), 10, random_state=0).fit(X, y), folder / "svms.skops")
    votes = BaggingClassifier(LinearSVC(), 30, random_state=0).fit(X, y)
    sb.compress(votes, X, y).save(folder / "svms.sbag")
    odd = joblib.load(files.joblib)
    odd.half = Fraction(1, 2)
    skops.io.dump(odd, folder / "odd.skops")
    table.rename(columns={"petal width": "width"}).to_csv(folder / "other.csv", index=False)
    table.assign(**{"petal width": "wide"}).to_csv(folder / "text.csv", index=False)
    dated = X.assign(day=pd.date_range("2020", periods=len(X)), target=y)
    dated.to_parquet(folder / "dates.parquet")
    lines = files.test.read_text().splitlines()
    lines[3] = "5,tall,1,1,setosa"
    (folder / "spoilt.csv").write_text("\n".join(lines))
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    return folder


TRUSTED = ("--trust-pickle", *OUT)
COMMANDS = [
    ("compress no.skops TRAIN", OUT, 3, "'no.skops' does not exist"),
    ("compress SKOPS no.csv", OUT, 3, "'no.csv' does not exist"),
    ("compress SKOPS BAD/folder", OUT, 3, "is a folder"),
    ("compress BAD/junk.skops TRAIN", TRUSTED, 3, "cannot be loaded as a pickle"),
    ("compress SMALL TRAIN", OUT, 3, "is already compressed"),
    ("compress JOBLIB TRAIN", OUT, 3, "can run any code"),
    ("compress BAD/one.joblib TRAIN", TRUSTED, 3, "cannot read a LogisticRegression"),
    ("compress BAD/dict.joblib BAD/text.csv", TRUSTED, 3, "cannot read a dict"),
    ("compress BAD/bare.joblib TRAIN", TRUSTED, 3, "trained on 2 columns without names, but"),
    ("compress BAD/svms.skops TRAIN", OUT, 3, "members such as SVC can only be stored as a pickle"),
    ("compress BAD/odd.skops TRAIN", OUT, 3, "add --trust-type fractions.Fraction"),
    ("compress SKOPS BAD/other.csv", OUT, 3, "lacks column 'petal width' (it has 'sepal"),
    ("compress SKOPS BAD/text.csv", OUT, 3, "holds 'wide', which is not a number"),
    ("compress SKOPS TEST", OUT, 3, "rows"),
    ("compress SKOPS TRAIN -t target -o no/such/out.sbag", (), 4, "does not exist"),
    ("compress SKOPS TRAIN -t target -o BAD/folder", (), 4, "is a folder"),
    ("compress SKOPS TRAIN -t target -o BAD/pipe", (), 4, "is a device or a pipe"),
    ("compress SKOPS TRAIN -t target -o TRAIN", (), 2, "is both input and output; choose another"),
    ("compress SKOPS TRAIN -t target --report r.pdf", (), 2, "use .html or .md"),
    ("fit BAD/text.parquet", OUT, 3, "not a valid Parquet table"),
    ("fit BAD/dates.parquet", OUT, 3, "neither a number nor text"),
    ("fit TRAIN --drop keys", OUT, 3, "lacks column 'keys' (it has"),
    ("fit TRAIN --task regression", OUT, 3, "which is not a number"),
    ("predict BAD/cut.sbag TEST -o p.csv", (), 3, "bytes instead of"),
    ("predict SKOPS TEST -o p.csv", (), 3, "is not compressed; run `sparsebag compress`"),
    ("predict TEST SMALL -o p.csv", (), 3, "is a table, not a model; MODEL comes before"),
    ("predict SMALL SKOPS -o p.csv", (), 3, "is a model, not a table"),
    ("compress SKOPS TRAIN -t target --max-bytes 100", (), 3, "Raise --max-bytes"),
    ("export SMALL --to onnx -o m.foo", (), 2, "use .onnx"),
    ("predict SMALL BAD/spoilt.csv -o p.csv", (), 3, "column 'sepal width', row 3, of"),
    ("predict SMALL TEST -o p.csv --keep name", (), 3, "lacks column 'name' (it has"),
    ("predict SMALL TEST -o p.xlsx", (), 2, "use .csv or .parquet"),
    ("predict SMALL TEST -o /dev/null", (), 4, "is a device or a pipe"),
    ("export BAD/svms.sbag --to sklearn", (), 4, "svms.skops' exists; name a file with -o"),
    ("export BAD/svms.sbag --to sklearn -o votes.skops", (), 3, "vote for one class"),
    ("inspect TRAIN", (), 3, "is a table, not a model."),
]


@pytest.mark.parametrize(
    ("command", "more", "code", "words"),
    COMMANDS,
    ids=[f"{c} ({w[:20]})" for c, _, _, w in COMMANDS],
)
def test_one_sentence_an_exit_code_and_no_file(command, more, code, words, files, bad, run):
    where = {"TRAIN": files.train, "TEST": files.test, "SKOPS": files.skops}
    where |= {"JOBLIB": files.joblib, "SMALL": files.small}
    given = [str(where.get(word, word)).replace("BAD", str(bad)) for word in command.split()]
    assert_refused(run(*given, *more), code, words)
    assert (bad / "pipe").is_fifo()


def test_what_is_trusted_is_read(files, bad, run):
    few = ("--max-estimators", 3)
    assert run("compress", bad / "odd.skops", files.train, *OUT, *few,
               "--trust-type", "fractions.Fraction").code == 0  # fmt: skip
    assert run("compress", bad / "svms.skops", files.train, *TRUSTED).code == 0
    assert run("inspect", "out.sbag").code == 3
    assert run("inspect", "out.sbag", "--trust-pickle").code == 0


@pytest.mark.parametrize(
    "what", ["directory", "left_child", "feature", "columns", "classes", "subset"]
)
def test_forged_models_are_refused(what, run, tmp_path):
    """scikit-learn's kernel believes them and reads outside memory."""
    X, y = np.random.default_rng(0).normal(size=(60, 400)), np.arange(60) % 3
    if what == "subset":
        model = BaggingClassifier(n_estimators=5, max_features=0.5, random_state=0).fit(X, y)
        model.estimators_features_[2][0] = 10**6
    else:
        model = RandomForestClassifier(5, random_state=0).fit(X, y)
        for liar in (model, *model.estimators_):
            if what == "columns":
                liar.n_features_in_ = 4
            elif what == "classes":
                liar.classes_, liar.n_classes_ = np.arange(2), 2
    if what in ("left_child", "feature"):
        state = model.estimators_[3].tree_.__getstate__()
        state["nodes"][what][0] = 10**6
        model.estimators_[3].tree_.__setstate__(state)
    skops.io.dump(model, path := tmp_path / "forged.skops")
    if what == "directory":  # of the zip file
        path.write_bytes(path.read_bytes().replace(b"PK\1\2", b"PK\1\3"))
    table = pd.DataFrame(X[:, :4], columns=list("abcd")).assign(target=y % 2)
    table.to_csv(tmp_path / "t.csv", index=False)
    done = run("compress", "forged.skops", "t.csv", *OUT, "--evidence", "holdout")
    assert_refused(done, 3, "is not a valid skops file", left=["forged.skops", "t.csv"])


SIZES = [
    ("--max-nodes", "many", "is not a whole number (20000) or a share (5%)"),
    ("--max-nodes", "200%", "is not a share between 0 and 100%"),
    ("--tolerance", "5", "'5' is not a share (5%)"),
    ("--jobs", "0", "-1 uses all processors"),
    ("--sep", "tab", "'tab' is not one character"),
    ("--max-bytes", "5 apples", "is not bytes (B, kB, MB, GB) or a share (5%)"),
    ("--confidence", "0.3", "0.5"),
    ("--local", "smooth", "always"),
    ("--nonsense", "1", "No such option"),
]


@pytest.mark.parametrize(("option", "value", "words"), SIZES)
def test_options_that_make_no_sense(option, value, words, files, run):
    done = run("compress", files.skops, files.train, "-t", "target", option, value)
    assert done.code == 2
    assert words in " ".join(done.err.replace("│", " ").split())
    assert done.left == []


def test_for_machines_the_error_is_an_object(files, run, monkeypatch):
    done = run("compress", "no.skops", files.train, "-t", "target", "--json")
    assert json.loads(done.out) == {"error": "'no.skops' does not exist.", "exit_code": 3}
    assert run("predict", files.small, files.test, "--json").code == 2
    monkeypatch.setattr(os, "access", lambda path, mode, **_: mode != os.R_OK)  # as if not root
    assert_refused(run("inspect", files.small), 3, "cannot be read (permission denied)")


@pytest.mark.parametrize(
    ("options", "words"),
    [((), "Missing option '--target'"), (("-t", "y", "--tolerance", "100%"), "--tolerance")],
)
def test_wrong_options_are_an_object_too(options, words, monkeypatch, capsys):
    from sparsebag.cli import app

    monkeypatch.setattr(sys, "argv", ["sparsebag", "fit", "t.csv", "--json", *options])
    monkeypatch.setattr(app, "end_on_signals", lambda: None)
    with pytest.raises(SystemExit) as ended:
        app.run()
    assert ended.value.code == 2
    told = json.loads(capsys.readouterr().out)
    assert words in told["error"]
    assert told["exit_code"] == 2


def test_mutated_skops_files_are_read_or_refused(files, run, tmp_path):
    """What skops' schema says is anybody's: numbers and names in it are changed at random."""
    rng = np.random.default_rng(0)
    with zipfile.ZipFile(files.skops) as whole:
        parts = {name: whole.read(name) for name in whole.namelist()}
    text = parts["schema.json"].decode()
    words = list(re.finditer(r"-?\b\d+\b|\"[a-z_]{4,}\"", text))
    table = str(files.train)
    how = ("--target", "target", "--max-estimators", 2, "--no-rehearsal", "-q", "-o", "m.sbag")
    for _ in range(25):
        word = words[rng.integers(len(words))]
        other = str(rng.choice(["-1", "0", "999999999999", "null", '"x"', "[]", "1e400"]))
        mutated = (text[: word.start()] + other + text[word.end() :]).encode()
        with zipfile.ZipFile(tmp_path / "mutated.skops", "w") as file:
            for name, content in (parts | {"schema.json": mutated}).items():
                file.writestr(name, content)
        done = run("compress", "mutated.skops", table, *how)
        assert done.code in (0, 3), (word[0], other, done.err)
        assert "Traceback" not in done.err
