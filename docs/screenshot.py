"""Draw docs/pictures/report_desktop.png: the page of ``sparsebag demo`` in a headless browser.

Run: make screenshot (needs Playwright and a Chromium).
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).parent / "pictures" / "report_desktop.png"
WIDTH, HEIGHT = 1100, 2200
"""The page down to the slider."""
COLOURS = 128
"""Enough for the lines to keep their colours, and the picture is a third of the size."""


def main() -> None:
    """Make the demo's report and photograph it."""
    folder = Path(tempfile.mkdtemp())
    subprocess.run([sys.executable, "-m", "sparsebag.cli", "demo", "-q", str(folder)], check=True)
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto((folder / "sparsebag_report.html").as_uri())
        page.screenshot(path=PICTURE)
        browser.close()
    Image.open(PICTURE).convert("RGB").quantize(COLOURS).save(PICTURE, optimize=True)
    print(f"{PICTURE} written, {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
