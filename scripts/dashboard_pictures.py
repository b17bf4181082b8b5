"""The pictures of the dashboard in docs/: `python scripts/dashboard_pictures.py URL` of a `treetop demo --serve`.

Needs Debian's chromium, and playwright and Pillow from the extra `dev`.
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parents[1] / "docs"
PICTURES = {  # the window, and its colours; the page goes on below it
    "dashboard": (1280, 1330, "light"),
    "dashboard-dark": (1280, 2815, "dark"),
    "dashboard-phone": (390, 1800, "light"),
}
LARGEST = 200_000  # bytes


def main(url: str) -> None:
    with sync_playwright() as playing:
        browser = playing.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (width, height, scheme) in PICTURES.items():
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            page.goto(url)
            page.locator("#chart-latency canvas").wait_for()
            page.wait_for_timeout(3000)
            picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            picture = picture.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
            path = DOCS / f"{name}.png"
            picture.save(path, optimize=True)
            if path.stat().st_size > LARGEST:
                raise ValueError(f"{path} has {path.stat().st_size} bytes; at most {LARGEST} are wanted")
            page.close()
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
