"""Pictures of what users see: the demo in a terminal and its report in a headless browser.

    python -m benchmarks.screenshot

Draws docs/pictures/demo.png and report_*.png, and keeps beside them of which source they are.
Needs Playwright and a Chromium: ``make screenshot``.
"""

import hashlib
import html
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import sparsebag
from benchmarks.environment import source_hash
from benchmarks.picture import ROOT

PICTURES = ROOT / "docs" / "pictures"
SOURCE = PICTURES / "screenshots.txt"
FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
FLAGS += " --disable-component-update --disable-sync"
VIEWS = {
    "report_desktop": ((1100, 2200), "light", 1),
    "report_dark": ((1100, 1100), "dark", 1),
    "report_phone": ((390, 1500), "light", 2),
}
"""Width and height in pixels, colours, and how many pixels of the picture each of them is."""
TERMINAL = (
    '<pre style="display:inline-block;margin:0;padding:1.2em;background:#14181d;color:#e6eaef;'
    'font:15px/1.4 monospace">$ make demo\n{}</pre>'
)


def source_of_pictures() -> str:
    """Which code the pictures are of: the library's, the report's page, style and script."""
    page = Path(sparsebag.__file__).parent / "report"
    parts = [source_hash().encode(), *(f.read_bytes() for f in sorted(page.glob("page.*")))]
    return f"source {source_hash()}, page {hashlib.sha256(b''.join(parts)).hexdigest()[:12]}\n"


def main() -> None:
    """Run the demo and photograph what it prints and writes."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    folder = Path(tempfile.mkdtemp())
    demo: Any = [sys.executable, "-m", "sparsebag.cli", "demo"]
    printed = subprocess.run(demo, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=program, args=FLAGS.split())
        page = browser.new_page(viewport={"width": 900, "height": 900})
        page.set_content(TERMINAL.format(html.escape(printed.stdout)))
        page.locator("pre").screenshot(path=PICTURES / "demo.png")
        for name, ((width, height), colours, scale) in VIEWS.items():
            size = {"width": width, "height": height}
            page = browser.new_page(viewport=size, color_scheme=colours, device_scale_factor=scale)
            page.goto((folder / "sparsebag_report.html").as_uri())
            page.screenshot(path=PICTURES / f"{name}.png")
        browser.close()
    for path in [PICTURES / "demo.png", *(PICTURES / f"{name}.png" for name in VIEWS)]:
        # 64 colours: enough for the lines to keep theirs, and a third of the size.
        Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)
        print(f"{path.relative_to(ROOT)} written, {path.stat().st_size:,} bytes")
    SOURCE.write_text(source_of_pictures(), encoding="utf-8")


if __name__ == "__main__":
    main()
