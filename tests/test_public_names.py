"""Every public name is documented as numpydoc has it, and importing sparsebag is light."""

import copy
import inspect
import pickle
import re
from importlib.metadata import version

import pytest
from joblib import Parallel, delayed
from sklearn.base import is_classifier
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

import sparsebag
from processes import printed, without
from sparsebag import metrics

NO_EXAMPLE_NEEDED = {
    "Solution": "no one builds one; `fit_weights` shows how to get and read it",
    "OOBEvidence": "the functions that make it, and its own methods, carry the examples",
    "Status": "an enumeration whose values are its messages",
    "UncoveredRowsWarning": "a warning category",
    "UnverifiedRowsWarning": "a warning category",
    "SampledRowsWarning": "a warning category",
    "Selection": "no one builds one; `compress` makes it, and it is printed",
    "ReliabilityCurve": "its function carries the example",
}
EXTRAS = [
    *("torch", "pandas", "matplotlib", "dask", "cupy", "typer", "jinja2", "onnx", "treelite"),
    *("rich", "pyarrow", "skops"),
]


PUBLIC = [
    getattr(module, name)
    for module in (sparsebag, metrics)
    for name in module.__all__
    if not inspect.ismodule(getattr(module, name))
]
FUNCTIONS = [thing for thing in PUBLIC if inspect.isfunction(thing)]
CLASSES = [thing for thing in PUBLIC if inspect.isclass(thing)]
ESTIMATORS = [sparsebag.SparseBaggingClassifier, sparsebag.SparseBaggingRegressor]


def own_methods():
    """Methods and properties written in this library; scikit-learn documents its own."""
    for cls in CLASSES:
        for name in dir(cls):
            method = inspect.getattr_static(cls, name)
            function = method.fget if isinstance(method, property) else method
            if name.startswith("_") or not inspect.isfunction(function):
                continue
            if function.__module__.startswith("sparsebag"):
                full_name = f"{cls.__name__}.{name}"
                yield pytest.param(method, id=full_name)


def by_name(thing):
    return thing.__name__


def section(doc: str, title: str) -> str:
    """The text of a numpydoc section, empty where there is none."""
    pattern = rf"^{title}\n-{{{len(title)}}}\n(.*?)(?=^\S[^\n]*\n-{{3,}}\n|\Z)"
    found = re.search(pattern, doc, re.M | re.S)
    return found.group(1) if found else ""


def documented_parameters(doc: str) -> set[str]:
    heads = re.findall(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: :|$)", section(doc, "Parameters"), re.M)
    return {name.strip().lstrip("*") for head in heads for name in head.split(",")}


def arguments(function) -> set[str]:
    return {name for name in inspect.signature(function).parameters if name != "self"}


@pytest.mark.parametrize("thing", PUBLIC, ids=by_name)
def test_public_names_have_a_summary_and_an_example(thing):
    doc = inspect.getdoc(thing) or ""
    assert doc.partition("\n\n")[0].endswith((".", ").")), "the summary is a sentence"
    if thing.__name__ not in NO_EXAMPLE_NEEDED:
        assert ">>> " in section(doc, "Examples")


@pytest.mark.parametrize("thing", FUNCTIONS + ESTIMATORS, ids=by_name)
def test_every_argument_is_documented_and_none_other(thing):
    assert documented_parameters(inspect.getdoc(thing)) == arguments(thing)
    if thing in FUNCTIONS:
        assert section(inspect.getdoc(thing), "Returns")


@pytest.mark.parametrize("method", list(own_methods()))
def test_methods_are_documented(method):
    doc = inspect.getdoc(method)
    assert doc
    if isinstance(method, property):
        return
    assert documented_parameters(doc) == arguments(method)
    if inspect.signature(method).return_annotation not in (None, "None"):
        assert section(doc, "Returns")


@pytest.mark.parametrize("cls", ESTIMATORS, ids=by_name)
def test_learned_attributes_are_documented(cls):
    kind = RandomForestClassifier if is_classifier(cls()) else RandomForestRegressor
    X, y = load_iris(return_X_y=True, as_frame=True)
    fitted = cls(kind(40, random_state=0)).fit(X, y)
    made_on_demand = {name for name in dir(cls) if isinstance(getattr(cls, name), property)}
    learned = {name for name in {*vars(fitted), *made_on_demand} if name.endswith("_")}
    learned = {name for name in learned if not name.startswith("_")}
    documented = re.findall(r"^(\w+_) :", section(inspect.getdoc(cls), "Attributes"), re.M)
    assert set(documented) == learned


def test_all_is_complete_and_the_version_the_installed_one():
    ours = {
        name
        for name, thing in vars(sparsebag).items()
        if getattr(thing, "__module__", "").startswith("sparsebag.") and not name.startswith("_")
    }
    assert ours <= set(sparsebag.__all__)
    assert len(sparsebag.__all__) == len(set(sparsebag.__all__))
    assert sparsebag.__version__ == version("sparsebag")


def test_importing_sparsebag_imports_no_extra():
    code = f"""
import sys, sklearn.ensemble
before = set(sys.modules)  # scikit-learn imports pandas where it is installed
import sparsebag
print(*sorted(set({EXTRAS}) & (set(sys.modules) - before)))"""
    assert printed("-c", code) == ""


def test_sparsebag_works_where_no_extra_is_installed():
    code = """
import sparsebag
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
X, y = load_iris(return_X_y=True)
small = sparsebag.compress(RandomForestClassifier(50, random_state=0).fit(X, y), X, y)
print(small.report(X, y).headline())"""
    assert printed("-c", without(*EXTRAS) + code).endswith(" nodes kept")


def test_functions_that_mention_the_package_go_to_other_processes():
    def own_name():
        return sparsebag.metrics.__name__

    assert pickle.loads(pickle.dumps(sparsebag)) is sparsebag
    assert copy.deepcopy(sparsebag) is sparsebag
    found = Parallel(2, backend="loky")(delayed(own_name)() for _ in range(2))
    assert found == ["sparsebag.report.metrics"] * 2
