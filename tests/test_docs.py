"""The documentation: every public name is in it, every page is reached, its code runs."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import sparsebag
from processes import ran
from sparsebag import metrics

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(p for p in DOCS.rglob("*.md") if not {"_build", "gallery"} & set(p.parts))
EXAMPLES = sorted((ROOT / "examples").glob("plot_*.py"))


def code_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_every_public_name_is_in_the_reference():
    text = (DOCS / "api.rst").read_text()
    described = set(re.findall(r"^\.\. auto\w+:: (?:sparsebag\.)?(\w+)$", text, flags=re.MULTILINE))
    public = {*sparsebag.__all__, *metrics.__all__} - {"metrics"}
    assert public <= described | {"metrics"}, public - described
    assert ".. automodule:: sparsebag.report.metrics" in text


def test_install_hints_name_extras_there_are_and_need_no_index():
    """Pages are read in a clone; messages where sparsebag is installed, whose extras pip knows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"])
    start = DOCS / "start.md"
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *PAGES]:
        text = page.read_text(encoding="utf-8")
        assert set(re.findall(r"pip install [\"']\.\[(\w+)\]", text)) <= extras, page
        assert page == start or "sparsebag[" not in text, page
    hint = re.compile(r"(.{13})sparsebag\[(\w+)\](.)")
    for path in (ROOT / "src").rglob("*.py"):
        for before, extra, after in hint.findall(path.read_text(encoding="utf-8")):
            assert (before, after) == ("pip install '", "'"), path
            assert extra in extras, path


def test_every_public_method_is_in_the_reference_and_every_page_in_the_contents():
    text = (DOCS / "api.rst").read_text()
    for name in ("SparseBaggingClassifier", "SparseBaggingRegressor"):
        listed = re.search(rf"autoclass:: {name}\n   :members: (.*)", text)[1].split(", ")
        cls = getattr(sparsebag, name)
        own = {
            method
            for method in dir(cls)
            if not method.startswith("_")
            and getattr(getattr(cls, method), "__module__", "").startswith("sparsebag")
        }
        assert own <= set(listed), own - set(listed)
    contents = (DOCS / "index.md").read_text()
    for page in PAGES:
        name = str(page.relative_to(DOCS).with_suffix(""))
        assert name == "index" or re.search(rf"^{re.escape(name)}$", contents, re.M), name


def test_every_command_and_exit_code_is_described():
    from sparsebag.cli.command import ExitCode

    text = (DOCS / "command_line.md").read_text()
    for command in ("demo", "fit", "compress", "predict", "inspect", "export", "bench"):
        assert f"`sparsebag {command}" in text
    for code in ExitCode:
        assert f"| {int(code)} |" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_code_on_every_page_is_python(page):
    for block in code_blocks(page):
        ast.parse(block)


@pytest.mark.parametrize("name", ["howto/add_a_loss", "howto/add_a_solver", "howto/add_an_export"])
def test_how_to_pages_run(name, capsys):
    scope: dict = {}
    for block in code_blocks(DOCS / f"{name}.md"):
        exec(compile(block, name, "exec"), scope)
    out = capsys.readouterr().out
    if name.endswith("loss"):
        assert "below the tolerance" in out
    if name.endswith("solver"):
        assert abs(float(out.split()[-1])) < 1e-5


@pytest.mark.parametrize("page", ["guide/own_matrices.md", "scaling.md"])
def test_the_first_block_fits_weights(page):
    scope: dict = {}
    exec(code_blocks(DOCS / page)[0], scope)
    assert scope["solution"].status.success
    assert scope["solution"].n_evaluations >= 1


def test_the_first_block_of_local_weights_gains(capsys):
    exec(code_blocks(DOCS / "guide" / "local_weights.md")[0], {})
    plain, gated = map(float, re.findall(r"log-loss ([\d.]+)", capsys.readouterr().out)[:2])
    assert gated < 0.8 * plain


def test_the_block_of_dask_runs_as_a_script(tmp_path):
    pytest.importorskip("distributed", reason="needs the dask extra")
    code = code_blocks(DOCS / "scaling.md")[1]
    script = tmp_path / "on_dask.py"
    script.write_text(code, encoding="utf-8")
    done = ran(script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "of 50 kept" in done.stdout


def test_pictures_and_linked_pages_exist():
    for page in PAGES:
        prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
            if "://" not in link and "gallery/" not in link:
                assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_tag_of_a_release_must_be_its_version():
    check = ROOT / ".github" / "check_tag.py"
    assert ran(check, f"v{sparsebag.__version__}").returncode == 0
    bad = ran(check, "v9.9.9")
    assert bad.returncode == 1
    assert "the tag is v9.9.9" in bad.stderr
    assert f"version: {sparsebag.__version__}" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
def test_examples_run(example, tmp_path):
    pytest.importorskip("matplotlib", reason="examples draw")
    done = ran(example, cwd=tmp_path, env={**os.environ, "MPLBACKEND": "Agg"})
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_documentation_builds_without_a_warning(tmp_path):
    pytest.importorskip("sphinx_gallery", reason="needs the docs extra")
    pytest.importorskip("furo", reason="needs the docs extra")
    pytest.importorskip("myst_parser", reason="needs the docs extra")
    done = ran("-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", DOCS, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in sparsebag.__all__:
        if name != "metrics":
            assert f"sparsebag.{name}" in (tmp_path / "api.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_sdist_and_wheel_build_and_the_wheel_needs_no_compiler(tmp_path):
    def run(*command, **env):
        return subprocess.check_output([sys.executable, *command], env=os.environ | env, text=True)

    run("-m", "pip", "install", "-q", "--target", tmp_path / "tools", "build")
    run("-m", "build", "-o", tmp_path, ROOT, PYTHONPATH=str(tmp_path / "tools"))
    (wheel,) = tmp_path.glob("*.whl")  # made from the sdist
    run("-m", "pip", "install", "-q", "--no-deps", "--target", tmp_path, wheel, CC="no", CXX="no")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.meta_path[:] = sys.meta_path[-3:]"
    )
    assert str(tmp_path) in run(
        "-c", f"{code}; import sparsebag as s; s.compress; print(s.__file__)"
    )
