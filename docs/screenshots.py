"""Take the pictures of the page, of the demonstration conversation only: `python -m docs.screenshots`.

The page uses the fonts of the machine; on Debian the packages fonts-noto-core and fonts-urw-base35 have good ones.
"""
# ruff: noqa: INP001 - a script outside the package

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from leporello.gateway.keys import Keys
from leporello.gateway.server import Server, bound
from leporello.view.access import Access
from leporello.view.app import PageRoutes, create_app
from leporello.view.demo import demo_store

FOLDER = Path(__file__).parent / "how-to"
PICTURES = {
    "view-window": ("/view/window?c=harbour", "light", 1_060, 1_000),
    "view-time": ("/view/time?c=harbour&at=38", "light", 1_060, 760),
    "view-cost": ("/view/cost?c=harbour", "dark", 1_060, 940),
    "view-summaries": ("/view/dag?c=harbour&node=n41", "light", 1_060, 760),
    "view-phone": ("/view/time?c=harbour&at=37", "light", 390, 844),
}


def main() -> None:
    """Serve the demonstration, and take every picture."""
    ready = threading.Event()
    with bound("127.0.0.1", 0) as listener:
        access = Access(keys=Keys({}), local=None)
        server = Server(create_app(PageRoutes(demo_store(), access)), on_ready=lambda _: ready.set())
        thread = threading.Thread(target=server.run, args=[listener])
        thread.start()
        ready.wait(30)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            for name, (path, scheme, width, height) in PICTURES.items():
                context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": height})  # type: ignore[arg-type]
                page = context.new_page()
                page.goto(f"http://127.0.0.1:{listener.getsockname()[1]}{path}", wait_until="networkidle")
                _prepare(name, page)
                page.screenshot(path=FOLDER / f"{name}.png")
            browser.close()
        server.stop()
        thread.join()


def _prepare(name: str, page: Page) -> None:
    """Open what a picture shows open."""
    if name == "view-window":
        page.locator("details.stack > summary").first.click()
        page.locator("details.stack details.stack > summary").first.click()
        page.locator(".prose").first.wait_for()


if __name__ == "__main__":
    main()
