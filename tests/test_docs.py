"""What users read: links lead somewhere, code runs and prints what it says, words are plain."""

import ast
import json
import os
import re
import socket
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_iris
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from typer.testing import CliRunner

import sparsebag as sb
from benchmarks import picture
from processes import printed, ran
from sparsebag.cli.app import app
from sparsebag.cli.command import ExitCode
from sparsebag.evidence import readers

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(p for p in DOCS.rglob("*.md") if not {"_build", "gallery"} & set(p.parts))
FRONT = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
README, CONTRIBUTING = (FRONT[i].read_text(encoding="utf-8") for i in (0, 2))
EXAMPLES = sorted((ROOT / "examples").glob("plot_*.py"))
COMMANDS = ("demo", "fit", "compress", "predict", "inspect", "export", "bench")
WORDS = r"likewise|\basked\b|\ballowed\b|survivor|\bvoters?\b|made-up|own leaves|taught|\bheard\b"
WORDS += (
    r"|these very|of the speed, most|\bno (?:whole )?number\b|half-written|to do as well|\bmet\b"
)
UNWANTED = re.compile(WORDS, re.IGNORECASE)


def blocks(text: str, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def code_blocks(page: str, language: str = "python") -> list[str]:
    return blocks((DOCS / page).read_text(encoding="utf-8"), language)


def script_output(folder: Path, code: str) -> str:
    """What a block prints as a script of its own."""
    (folder / "page.py").write_text(code, encoding="utf-8")
    return printed(folder / "page.py", cwd=folder)


def of_these_versions() -> bool:
    """Whether the libraries are those that README's figures are from."""
    libraries = f"sklearn {sklearn.__version__}, numpy {np.__version__},"
    return libraries in (picture.RESULTS / "quality.txt").read_text(encoding="utf-8")


def test_the_readme_is_short_and_its_examples_run_as_they_stand(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # they write files
    first, sizes = blocks(README)
    scope: dict = {}
    exec(compile(first, "README.md", "exec"), scope)
    found, told = capsys.readouterr().out, picture.example_output(README)
    assert [p.name for p in tmp_path.iterdir()] == ["small.sbag"]
    if of_these_versions():
        assert found == told  # else: python -m benchmarks.picture
    for line, other in zip(found.splitlines(), told.splitlines(), strict=True):
        assert re.sub(r"[-+]?\d[\d.,]*", "#", line) == re.sub(r"[-+]?\d[\d.,]*", "#", other)
        if line.startswith(("trees", "nodes")):  # other versions may choose the next size
            sizes_of = [float(n.replace(",", "")) for n in re.findall(r"\d[\d,]*", line)[:2]]
            expected = [float(n.replace(",", "")) for n in re.findall(r"\d[\d,]*", other)[:2]]
            assert sizes_of[0] == pytest.approx(expected[0], rel=0.02)
            assert expected[1] / 3 < sizes_of[1] < 3 * expected[1]
    exec(compile(sizes, "README.md", "exec"), scope)  # in one go, from top to bottom
    assert (tmp_path / "report.html").exists()
    assert len(README.split()) <= 900


def test_figures_and_picture_are_those_of_the_results():
    if not of_these_versions():
        pytest.skip("README's example is of other versions")
    table = picture.results()
    for path, text in picture.pages(table).items():  # else: python -m benchmarks.picture
        assert path.read_text(encoding="utf-8") == text, path.name
    assert picture.PICTURE.read_text(encoding="utf-8") == picture.picture(table) + "\n"


def test_the_readmes_commands_exist_and_two_of_make_come_first():
    helped = {}
    for command, options in re.findall(r"^sparsebag (\w+)(.*)$", README, flags=re.MULTILINE):
        if command not in helped:
            helped[command] = CliRunner().invoke(app, [command, "--help"], terminal_width=200)
            assert helped[command].exit_code == 0, command
        for option in re.findall(r"--[a-z-]+", options.split("#")[0]):
            assert option in helped[command].stdout, f"{command} {option}"
    assert set(helped) >= {"fit", "compress", "predict"}
    first = blocks(README, "console")[0].strip().splitlines()
    assert [line.split("#")[0].strip() for line in first] == ["make demo", "make test"]
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`make ([a-z-]+)`", README):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_contributing_loss_example_works():
    scope: dict = {}
    exec("from dataclasses import dataclass\nfrom typing import Any as Channel", scope)
    exec("from array_api_compat import array_namespace", scope)
    exec(blocks(CONTRIBUTING)[0], scope)
    rng = np.random.default_rng(0)
    y = rng.normal(size=200)
    predictions = y[:, None] + rng.normal(size=(200, 20))
    mask = rng.random((200, 20)) < 0.4
    for solver in ("auto", "active_set"):
        how = {"loss": scope["PseudoHuber"](), "lam": 0.0, "solver": solver}
        solution = sb.fit_weights(predictions, mask, y, **how)
        assert solution.status.success
        assert solution.weights.sum() == pytest.approx(1.0)


def test_contributing_reader_example_works(monkeypatch, tmp_path):
    """A file in the folder of readers is enough."""
    _, example = blocks(CONTRIBUTING)
    imports = "from typing import Any\nimport numpy as np\n"
    imports += "from sparsebag.evidence.members import Member, MemberPool, class_positions\n"
    (tmp_path / "made_up.py").write_text(imports + example, encoding="utf-8")
    monkeypatch.setattr(readers, "__path__", [*readers.__path__, str(tmp_path)])
    X, y = load_iris(return_X_y=True)

    class MyForest(ClassifierMixin, BaseEstimator):
        __module__ = "made_up.forests"

    mine, rng = MyForest(), np.random.default_rng(0)
    mine.bags = [rng.integers(0, len(X), len(X)) for _ in range(30)]
    mine.trees = [DecisionTreeClassifier().fit(X[rows], y[rows]) for rows in mine.bags]
    mine.classes_ = np.arange(3)
    mine.n_features_in_ = 4
    small = sb.compress(mine, X, y, max_estimators=3)
    assert small.n_active_ <= 3
    assert small.verified_by_ == "leaf counts"
    assert small.score(X, y) > 0.9


def test_every_public_name_and_method_is_in_the_reference():
    text = (DOCS / "api.rst").read_text()
    described = set(re.findall(r"^\.\. auto\w+:: (?:sparsebag\.)?(\w+)$", text, flags=re.MULTILINE))
    public = {*sb.__all__, *sb.metrics.__all__} - {"metrics"}
    assert public <= described | {"metrics"}, public - described
    assert ".. automodule:: sparsebag.report.metrics" in text
    for name in ("SparseBaggingClassifier", "SparseBaggingRegressor"):
        listed = re.search(rf"autoclass:: {name}\n   :members: (.*)", text)[1].split(", ")
        cls = getattr(sb, name)
        own = {
            method
            for method in dir(cls)
            if not method.startswith("_")
            and getattr(getattr(cls, method), "__module__", "").startswith("sparsebag")
        }
        assert own <= set(listed), own - set(listed)


def test_every_page_command_and_exit_code_has_its_place():
    contents = (DOCS / "index.md").read_text()
    for page in PAGES:
        name = str(page.relative_to(DOCS).with_suffix(""))
        assert name == "index" or re.search(rf"^{re.escape(name)}$", contents, re.M), name
    text = (DOCS / "command_line.md").read_text()
    for command in COMMANDS:
        assert f"`sparsebag {command}" in text
    for code in ExitCode:
        assert f"| {int(code)} |" in text


def test_install_hints_name_extras_there_are_and_need_no_index():
    """Pages are read in a clone; messages where sparsebag is installed, whose extras pip knows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"])
    for page in [*FRONT[:2], *PAGES]:
        text = page.read_text(encoding="utf-8")
        assert set(re.findall(r"pip install [\"']\.\[(\w+)\]", text)) <= extras, page
        assert page == DOCS / "start.md" or "sparsebag[" not in text, page
    hint = re.compile(r"(.{13})sparsebag\[(\w+)\](.)")
    for path in (ROOT / "src").rglob("*.py"):
        for before, extra, after in hint.findall(path.read_text(encoding="utf-8")):
            assert (before, after) == ("pip install '", "'"), path
            assert extra in extras, path


def test_pictures_and_linked_pages_exist():
    for page in [*FRONT, *PAGES]:
        prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
            if "://" not in link and "gallery/" not in link:
                assert (page.parent / link).exists(), f"{page.name}: {link}"


def messages(path: Path) -> list[str]:
    """Texts that are no docstrings: errors, warnings, help, what is printed."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in docs]
    return [text for text in texts if isinstance(text, str) and " " in text.strip()]


def test_pages_and_messages_use_plain_words():
    pages = [*FRONT[:2], *(p for p in PAGES if p.name != "paper.md")]
    found = [(path.name, path.read_text(encoding="utf-8")) for path in pages]
    found += [(path.name, text) for path in (ROOT / "src").rglob("*.py") for text in messages(path)]
    assert len(found) > 300
    assert [(name, UNWANTED.findall(text)) for name, text in found if UNWANTED.search(text)] == []


def test_what_is_printed_fits_eighty_columns(capsys):
    """And says where progress is: of trees, of linear members with a gate, of regressors."""
    X, y = load_iris(return_X_y=True)
    X, y = np.tile(X, (4, 1)), np.tile(y, 4)
    linear = BaggingClassifier(LogisticRegression(max_iter=1000), 20, oob_score=True)
    for model in (RandomForestClassifier(300), RandomForestRegressor(300), linear):
        model.set_params(random_state=0)
        local = "auto" if model is linear else None
        small = sb.compress(model.fit(X, y), X, y, local=local, verbose=2)
        for kind in ("selection_", "path_", "local_", "calibration_", "refinement_", "solution_"):
            print(getattr(small, kind, None))
        print(small.compile(), small.report(X[::7], y[::7]), small.to_onnx().verify(X), sep="\n")
        print(sb.compress(model, X, y, max_nodes=20 if model is not linear else None).selection_)
    out, err = capsys.readouterr()
    assert "rehearsal step 1 of 12" in err
    wide = [line for line in (out + err).splitlines() if len(line) > 80]
    assert wide == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_code_on_every_page_is_python(page):
    for block in code_blocks(page):
        ast.parse(block)


@pytest.mark.parametrize("name", ["add_a_loss", "add_a_solver", "add_an_export", "from_scsb"])
def test_how_to_pages_run(name, capsys):
    scope: dict = {}
    for block in code_blocks(f"howto/{name}.md"):
        exec(compile(block, name, "exec"), scope)
    out = capsys.readouterr().out
    assert name != "add_a_loss" or "below the tolerance" in out
    assert name != "add_a_solver" or abs(float(out.split()[-1])) < 1e-5
    if name == "from_scsb":
        text = (DOCS / "howto" / "from_scsb.md").read_text(encoding="utf-8")
        for attribute in re.findall(r"\b(weights_|n_active_|estimators_|solution_)`", text):
            assert hasattr(scope["small"], attribute), attribute


@pytest.mark.parametrize("page", ["guide/own_matrices", "scaling", "guide/local_weights", "deploy"])
def test_the_first_block_does_what_the_page_says(page, tmp_path, monkeypatch, capsys):
    if page == "deploy":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("treelite")
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    exec(code_blocks(f"{page}.md")[0], scope)
    out = capsys.readouterr().out
    if page == "deploy":
        assert out.startswith("150 rows: largest difference")
    elif page == "guide/local_weights":
        plain, gated = map(float, re.findall(r"log-loss ([\d.]+)", out)[:2])
        assert gated < 0.8 * plain
    else:
        assert scope["solution"].status.success
        assert scope["solution"].n_evaluations >= 1


def test_the_block_of_dask_runs_as_a_script(tmp_path):
    pytest.importorskip("distributed", reason="needs the dask extra")
    assert "of 50 kept" in script_output(tmp_path, code_blocks("scaling.md")[1])


@pytest.mark.parametrize(
    ("page", "library"),
    [
        ("howto/pipelines.md", "skops"),
        ("howto/other_libraries.md", "xgboost"),
        ("howto/shap.md", "shap"),
        ("guide/class_weights.md", "sklearn"),
    ],
)
def test_pages_print_what_they_say(page, library, tmp_path):
    pytest.importorskip(library, reason=f"{library} is in the models extra")
    out = script_output(tmp_path, code_blocks(page)[0])
    found, told = out.split(), code_blocks(page, "text")[0].split()
    assert len(found) == len(told), out
    for one, other in zip(found, told, strict=True):
        is_number = re.fullmatch(r"\d+\.\d+", other)
        near = 0.05 if of_these_versions() else 0.2
        assert float(one) == pytest.approx(float(other), abs=near) if is_number else one == other


def test_the_service_answers(tmp_path):
    pytest.importorskip("fastapi", reason="fastapi is in the models extra")
    pytest.importorskip("uvicorn", reason="uvicorn is in the models extra")
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 2)), columns=["size", "weight"])
    y = np.where(X["size"] + X["weight"] > 0, "yes", "no")
    small = sb.compress(RandomForestClassifier(30, random_state=0).fit(X, y), X, y)
    small.save(tmp_path / "model.sbag")
    code, printed = (code_blocks("howto/service.md", of)[0] for of in ("python", "text"))
    (tmp_path / "app.py").write_text(code, encoding="utf-8")
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
        assert found == pytest.approx(json.loads(printed), abs=0.05)
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask({"size": 0.3})
        assert "'weight' is missing" in json.load(refused.value)["detail"]
        refused.value.close()
    finally:
        server.terminate()
        server.communicate(timeout=10)


def test_the_tag_of_a_release_must_be_its_version():
    check = ROOT / ".github" / "check_tag.py"
    assert ran(check, f"v{sb.__version__}").returncode == 0
    bad = ran(check, "v9.9.9")
    assert bad.returncode == 1
    assert "the tag is v9.9.9" in bad.stderr
    assert f"version: {sb.__version__}" in (ROOT / "CITATION.cff").read_text()


def test_every_example_draws_its_thumbnail():
    for path in EXAMPLES:
        assert "plt.show()" in path.read_text(encoding="utf-8"), path.name


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
def test_examples_run(example, tmp_path):
    pytest.importorskip("matplotlib", reason="examples draw")
    printed(example, cwd=tmp_path, env={**os.environ, "MPLBACKEND": "Agg"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_documentation_builds_without_a_warning(tmp_path):
    for library in ("sphinx_gallery", "furo", "myst_parser"):
        pytest.importorskip(library, reason="needs the docs extra")
    done = ran("-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", DOCS, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_sdist_and_wheel_build_and_the_wheel_needs_no_compiler(tmp_path):
    def run(*command, **env):
        return subprocess.check_output([sys.executable, *command], env=os.environ | env, text=True)

    run("-m", "pip", "install", "-q", "--target", tmp_path / "tools", "build")
    run("-m", "build", "-o", tmp_path, ROOT, PYTHONPATH=str(tmp_path / "tools"))
    (wheel,) = tmp_path.glob("*.whl")  # made from the sdist
    run("-m", "pip", "install", "-q", "--no-deps", "--target", tmp_path, wheel, CC="no", CXX="no")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
    code += "sys.meta_path[:] = sys.meta_path[-3:]; import sparsebag as s; "
    code += "s.compress; print(s.__file__)"
    assert str(tmp_path) in run("-c", code)
