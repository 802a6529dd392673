"""Sphinx configuration; ``make docs`` builds offline and turns warnings into errors."""

import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import sparsebag  # noqa: E402

project = "sparsebag"
author = "the sparsebag developers"
copyright = author
version = release = sparsebag.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "gallery/*.md5", "gallery/*.py", "gallery/*.ipynb", "gallery/*.json"]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
html_theme = "furo"
html_title = f"sparsebag {release}"
html_static_path = ["sortable.js"]
templates_path = []

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # numpydoc's sections say it, for people
numpydoc_show_class_members = False  # the members follow, with their own text
numpydoc_class_members_toctree = False


class ByNumber:
    """The tenth example comes after the ninth, not after the first."""

    def __init__(self, src_dir):
        pass

    def __call__(self, filename):
        """The file's numbers."""
        return [int(n) for n in re.findall(r"\d+", filename)]

    def __repr__(self):
        return "<ByNumber>"


sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "within_subsection_order": ByNumber,
    "download_all_examples": False,
    "show_memory": False,
    "remove_config_comments": True,
    "matplotlib_animations": False,
    "abort_on_example_error": True,
    "reset_modules": ("matplotlib",),
}
# Gallery scripts show timings and folders of their own; nothing else may be pickled or cached.
suppress_warnings = ["config.cache"]
nitpicky = False
linkcheck_ignore = [r".*"]
