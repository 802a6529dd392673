"""Whatever is wrong with the input: one sentence, an exit code, nothing half-written."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from fractions import Fraction
from functools import partial

import joblib
import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.datasets import load_iris
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

BROKEN = "a,b,target\n1,2,0\n3,4\n5,6,1\n"
COMPRESS = ("--target", "target", "-o", "out.sbag", "--report", "out.html")


def assert_refused(done, code, *words, left=()):
    assert done.code == code, done.err
    assert done.out == ""
    told = [line for line in done.err.splitlines() if line.startswith("sparsebag: ")]
    assert len(told) == 1, done.err
    assert "Traceback" not in done.err
    for word in words:
        assert word in told[0]
    assert sorted(done.left) == sorted(left)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (BROKEN, ("not a sound CSV", "line 3 has 2 fields where the header has 3")),
        ("", ("is empty",)),
        ("a,b,target\n", ("has a header but no rows",)),
        ("a,a,target\n1,2,0\n", ("two columns named 'a'",)),
        ("a,b,label\n1,2,0\n", ("no column 'target'", "it has 'a', 'b', 'label'")),
        ("a,b,targets\n1,2,0\n", ("did you mean 'targets'?",)),
        ("age,b\n1,2\n", ("no column 'target' to predict; it has 'age', 'b'",)),
        ("a,b,target\n1,2,0\n1,2,\n", ("no target in 1 of its rows (the first is row 2)",)),
        ("target\n1\n0\n", ("no column but 'target'",)),
        ("a,target\n1,x\n2,x\n", ("every row has the same target",)),
        (b"\x00\xff\xfe\x01" * 40, ("'bad.csv' is no CSV table: it holds no text",)),
        ("a,b,target\n1,2,x\n1,2,\n3,1,y\n", ("no target in 1 of its rows (the first is row 2)",)),
        ("a;b;target\n1;2;0\n", ("seems to separate its columns by ';'",)),
        ("a,target\n1,é\n2,x\n".encode("latin-1"), ("column 'target'", "not written in UTF-8")),
        ("a,target\né,1\nx,2\n".encode("latin-1"), ("column 'a'", "not written in UTF-8")),
    ],
    ids=[
        "ragged",
        "empty",
        "no rows",
        "twice",
        "no target",
        "nearly",
        "not nearly",
        "gaps",
        "alone",
        "constant",
        "binary",
        "gaps in text",
        "semicolons",
        "latin-1 target",
        "latin-1",
    ],
)
def test_tables_that_cannot_be_used(content, words, run, tmp_path):
    data = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "bad.csv").write_bytes(data)
    assert_refused(run("fit", "bad.csv", *COMPRESS), 3, *words, left=["bad.csv"])


def test_a_parquet_file_that_is_none(run, tmp_path):
    (tmp_path / "bad.parquet").write_text("a,b\n1,2\n")
    done = run("fit", "bad.parquet", *COMPRESS)
    assert_refused(done, 3, "not a sound Parquet table", left=["bad.parquet"])


def test_files_that_are_not_there_or_no_files(files, run, tmp_path):
    assert_refused(run("compress", "no.skops", files.train, *COMPRESS), 3, "does not exist")
    assert_refused(run("compress", files.skops, "no.csv", *COMPRESS), 3, "does not exist")
    assert_refused(run("compress", files.skops, tmp_path, *COMPRESS), 3, "is a folder")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read(files, run, tmp_path):
    path = tmp_path / "locked.csv"
    path.write_text("a,target\n1,0\n")
    path.chmod(0)
    done = run("compress", files.skops, path, *COMPRESS)
    assert_refused(done, 3, "permission denied", left=["locked.csv"])


def test_models_that_cannot_be_read(files, run, tmp_path):
    (tmp_path / "junk.skops").write_bytes(b"PK\x03\x04 no zip")
    done = run("compress", "junk.skops", files.train, *COMPRESS, "--trust-pickle")
    assert_refused(done, 3, "cannot be loaded as a pickle", left=["junk.skops"])
    done = run("compress", files.small, files.train, *COMPRESS)
    assert_refused(done, 3, "is a compressed model already", left=["junk.skops"])
    done = run("inspect", files.train)
    assert_refused(done, 3, "does not begin as a .sbag file does", left=["junk.skops"])
    (tmp_path / "cut.sbag").write_bytes(files.small.read_bytes()[:-9])
    done = run("predict", "cut.sbag", files.test, "-o", "p.csv")
    assert_refused(done, 3, "it was cut or added to", left=["cut.sbag", "junk.skops"])


def test_models_that_cannot_be_compressed(files, run, tmp_path):
    table = pd.read_csv(files.train)
    X, y = table.drop(columns="target"), table["target"]
    joblib.dump(LogisticRegression(max_iter=500).fit(X, y), tmp_path / "one.joblib")
    pipe = make_pipeline(StandardScaler(), RandomForestClassifier(5)).fit(X, y)
    joblib.dump(pipe, tmp_path / "pipe.joblib")
    left = ["one.joblib", "pipe.joblib"]
    for name, words in (("one", "cannot compress a LogisticRegression"), ("pipe", "a Pipeline")):
        done = run("compress", f"{name}.joblib", files.train, *COMPRESS, "--trust-pickle")
        assert_refused(done, 3, words, left=left)


def test_members_a_file_cannot_hold_are_refused_before_the_work(run, tmp_path):
    X, y = load_iris(return_X_y=True, as_frame=True)
    bag = BaggingClassifier(SVC(), 10, random_state=0).fit(X, y)
    skops.io.dump(bag, tmp_path / "svms.skops")
    X.assign(target=y).to_csv(tmp_path / "t.csv", index=False)
    done = run("compress", "svms.skops", "t.csv", *COMPRESS)
    assert_refused(done, 3, "members such as a SVC", "--trust-pickle", left=["svms.skops", "t.csv"])
    assert run("compress", "svms.skops", "t.csv", *COMPRESS, "--trust-pickle").code == 0
    assert run("inspect", "out.sbag").code == 3
    assert run("inspect", "out.sbag", "--trust-pickle").code == 0


def test_skops_files_with_types_nobody_knows(files, run, tmp_path):
    X, y = load_iris(return_X_y=True, as_frame=True)
    forest = RandomForestClassifier(20, random_state=0).fit(X, y)
    forest.half = Fraction(1, 2)
    skops.io.dump(forest, tmp_path / "odd.skops")
    X.assign(target=y).to_csv(tmp_path / "t.csv", index=False)
    command = ["compress", "odd.skops", "t.csv", *COMPRESS, "--max-estimators", 3]
    done = run(*command)
    assert_refused(done, 3, "--trust-type fractions.Fraction", left=["odd.skops", "t.csv"])
    assert run(*command, "--trust-type", "fractions.Fraction").code == 0


@pytest.mark.parametrize("where", ["left_child", "feature"])
def test_forged_trees_are_refused(where, run, tmp_path):
    X, y = load_iris(return_X_y=True, as_frame=True)
    forest = RandomForestClassifier(20, random_state=0).fit(X, y)
    state = forest.estimators_[7].tree_.__getstate__()
    state["nodes"][where][0] = 10**6
    forest.estimators_[7].tree_.__setstate__(state)
    skops.io.dump(forest, tmp_path / "forged.skops")
    X.assign(target=y).to_csv(tmp_path / "t.csv", index=False)
    done = run("compress", "forged.skops", "t.csv", *COMPRESS)
    assert_refused(done, 3, "a tree's nodes lead outside it", left=["forged.skops", "t.csv"])


@pytest.mark.parametrize("what", ["columns", "classes", "subset"])
def test_models_that_lie_about_their_trees_are_refused(what, run, tmp_path):
    """scikit-learn's kernel believes them and reads outside memory."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 400)), np.arange(60) % 3
    if what == "subset":
        model = BaggingClassifier(n_estimators=5, max_features=0.5, random_state=0).fit(X, y)
        model.estimators_features_[2][0] = 10**6
    else:
        model = RandomForestClassifier(5, random_state=0).fit(X, y)
        for liar in (model, *model.estimators_):
            if what == "columns":
                liar.n_features_in_ = 4
            else:
                liar.classes_, liar.n_classes_ = np.arange(2), 2
    skops.io.dump(model, tmp_path / "lies.skops")
    table = pd.DataFrame(X[:, :4], columns=list("abcd")).assign(target=y % 2)
    table.to_csv(tmp_path / "t.csv", index=False)
    done = run("compress", "lies.skops", "t.csv", *COMPRESS, "--evidence", "holdout")
    assert_refused(done, 3, "is no sound skops file", left=["lies.skops", "t.csv"])


def test_a_model_trained_on_other_columns(files, run, tmp_path):
    table = pd.read_csv(files.train)
    renamed = table.rename(columns={"petal width": "width"})
    renamed.to_csv(tmp_path / "other.csv", index=False)
    done = run("compress", files.skops, "other.csv", *COMPRESS)
    words = ("trained on other columns", "'petal width' is not in 'other.csv'")
    assert_refused(done, 3, *words, left=["other.csv"])
    assert_refused(run("predict", files.small, "other.csv", "-o", "p.csv"), 3, *words,
                   left=["other.csv"])  # fmt: skip


def test_text_where_the_model_reads_numbers(files, run, tmp_path):
    table = pd.read_csv(files.train)
    table["petal width"] = "wide"
    table.to_csv(tmp_path / "text.csv", index=False)
    done = run("compress", files.skops, "text.csv", *COMPRESS)
    assert_refused(done, 3, "column 'petal width'", "'wide'", "no number", "sparsebag fit",
                   left=["text.csv"])  # fmt: skip


def test_a_model_trained_on_other_rows(files, run):
    done = run("compress", files.skops, files.test, *COMPRESS)
    assert_refused(done, 3, "rows")


def test_a_model_without_column_names(files, run, tmp_path):
    table = pd.read_csv(files.train)
    forest = RandomForestClassifier(5).fit(np.zeros((4, 2)), [0, 1, 0, 1])
    joblib.dump(forest, tmp_path / "bare.joblib")
    done = run("compress", "bare.joblib", files.train, *COMPRESS, "--trust-pickle")
    words = f"trained on 2 columns without names, but '{files.train}' has {table.shape[1] - 1}"
    assert_refused(done, 3, words, left=["bare.joblib"])


def test_outputs_are_checked_before_the_work(files, run, tmp_path):
    (tmp_path / "folder").mkdir()
    for option, words in (
        (("-o", "no/such/out.sbag"), "does not exist"),
        (("-o", "folder"), "is a folder"),
        (("-o", "a.sbag", "--report", "no/such/r.html"), "does not exist"),
    ):
        done = run("compress", files.skops, files.train, "-t", "target", *option)
        assert_refused(done, 4, words, left=["folder"])
    for option, words in (
        (("-o", files.train), "is named twice"),
        (("--report", "r.pdf"), "use .html or .md"),
    ):
        done = run("compress", files.skops, files.train, "-t", "target", *option)
        assert_refused(done, 2, words, left=["folder"])


def test_for_machines_the_error_is_an_object(files, run):
    done = run("compress", "no.skops", files.train, "-t", "target", "--json")
    assert json.loads(done.out) == {"error": "'no.skops' does not exist.", "exit_code": 3}


@pytest.mark.parametrize(
    ("options", "words"),
    [((), "Missing option '--target'"), (("-t", "y", "--tolerance", "-1"), "--tolerance")],
)
def test_wrong_options_are_an_object_too(options, words, monkeypatch, capsys):
    from sparsebag.cli.usage import run as run_as_the_script_does

    monkeypatch.setattr(sys, "argv", ["sparsebag", "fit", "t.csv", "--json", *options])
    with pytest.raises(SystemExit) as ended:
        run_as_the_script_does()
    assert ended.value.code == 2
    told = json.loads(capsys.readouterr().out)
    assert words in told["error"]
    assert told["exit_code"] == 2


@pytest.mark.parametrize("name", ["fifo", "device"])
def test_pipes_and_devices_are_not_replaced(name, files, run, tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    out = path if name == "fifo" else "/dev/null"
    for arguments in (
        ("predict", files.small, files.test, "-o", out),
        ("export", files.small, "--to", "onnx", "-o", out),
        ("compress", files.skops, files.train, "-t", "target", "-o", out),
    ):
        assert_refused(run(*arguments), 4, "is a device or a pipe", left=["fifo"])
    assert path.is_fifo()


def test_predictions_under_another_name(files, run):
    done = run("predict", files.small, files.test, "-o", "p.xlsx")
    assert_refused(done, 2, "use .csv or .parquet")


def test_options_that_do_not_exist(files, run):
    done = run("compress", files.skops, files.train)
    assert done.code == 2
    assert "--target" in done.err


# -- in a process of its own ------------------------------------------------------------------


def command(*arguments):
    return [sys.executable, "-m", "sparsebag.cli", *map(str, arguments)]


def limit_file_size():
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))


@pytest.mark.parametrize(
    "old", [pytest.param(None, marks=pytest.mark.slow), b"the old model"], ids=["new", "old"]
)
def test_a_full_disk_leaves_what_was_there(old, files, tmp_path):
    out = tmp_path / "out.sbag"
    if old is not None:
        out.write_bytes(old)
    done = subprocess.run(
        command(  # from joblib: importing skops takes longer than all the rest
            *("compress", files.joblib, files.train, "--trust-pickle"),
            *("-t", "target", "-o", out, "--max-estimators", 9),
        ),
        preexec_fn=limit_file_size,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4, done.stderr
    assert "could not be written (file too large); what was there before is untouched" in (
        done.stderr
    )
    assert "Traceback" not in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ([] if old is None else ["out.sbag"])
    if old is not None:
        assert out.read_bytes() == old


def test_ctrl_c_leaves_nothing(files, tmp_path):
    process = subprocess.Popen(
        command("fit", files.train, "-t", "target", "--trees", 10**6, "-o", tmp_path / "out.sbag"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell in the background hands SIGINT down ignored, and Python then leaves it so.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    for line in process.stderr:
        if line.startswith("growing"):
            process.send_signal(signal.SIGINT)
            break
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()  # a million trees are not for the next test to wait for
    assert process.returncode == 130, err
    assert out == ""
    assert err.splitlines()[-1] == "sparsebag: interrupted; nothing was left half-written."
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow)],
)
def test_whatever_stops_it_leaves_nothing(number, code, files, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    header, rows = files.test.read_text().split("\n", 1)
    (tmp_path / "rows").mkdir()
    pipe = tmp_path / "rows" / "endless.csv"
    os.mkfifo(pipe)
    process = subprocess.Popen(
        command("predict", files.small, pipe, "-o", out / "p.csv"),
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, number, signal.SIG_DFL),
    )
    try:
        with open(pipe, "w") as feed:
            feed.write(header + "\n")
            while not list(out.iterdir()) and process.poll() is None:
                feed.write(rows * 1000)
                feed.flush()
            assert [p.name.startswith(".p.csv.") for p in out.iterdir()] == [True]
            process.send_signal(number)
            err = process.stderr.read()
        process.wait(timeout=60)
    finally:
        process.kill()
        process.stderr.close()
    assert process.returncode == code, err
    assert "nothing was left half-written" in err
    assert list(out.iterdir()) == []


def test_a_signal_that_was_swallowed_is_not_forgotten(monkeypatch, tmp_path):
    from sparsebag.cli import signals
    from sparsebag.cli.outputs import written_whole

    monkeypatch.setattr(signals, "_came", [signal.SIGINT])
    with pytest.raises(signals.Stopped), written_whole(tmp_path / "x.csv") as file:
        file.write(b"late")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("unbuffered", ["", pytest.param("1", marks=pytest.mark.slow)])
def test_a_reader_that_goes_away_is_no_error(unbuffered, files, tmp_path):
    many = pd.concat([files.frame] * 3000)
    many.to_csv(tmp_path / "many.csv", index=False)
    process = subprocess.Popen(
        command("predict", files.small, tmp_path / "many.csv"),
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout.readline().startswith(b"prediction,p_setosa")
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    process.wait(timeout=60)
    assert process.returncode == 141
    assert err == b""


def test_without_the_extra_it_says_what_to_install():
    code = """
import sys
from fractions import Fraction
class Absent:
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "typer":
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Absent())
from sparsebag.cli.entry import main
main()"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "sparsebag: the command line needs typer, which is not installed; "
        "run: pip install 'sparsebag[cli]'"
    )
