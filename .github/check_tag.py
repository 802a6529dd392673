"""Refuse a tag that is not the version; used by the release workflow.

Run: python3 .github/check_tag.py v0.1.0
"""

import re
import sys
from pathlib import Path

HOME = Path(__file__).parent.parent / "src" / "sparsebag" / "__init__.py"


def main() -> None:
    """Compare the tag with ``__version__``."""
    tag = sys.argv[1]
    version = re.search(r'^__version__ = "(.+)"$', HOME.read_text(), re.M).group(1)
    if tag != f"v{version}":
        sys.exit(f"the tag is {tag} but the version is {version}; tag v{version}, or change it.")
    print(f"{tag} is the version")


if __name__ == "__main__":
    main()
