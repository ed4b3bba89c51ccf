"""The page in a real browser: the machine's Chromium, driven by Playwright."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, ViewportSize

CHROMIUM: Final = shutil.which("chromium")
PHONE: Final[ViewportSize] = {"width": 390, "height": 844}
PICTURES: Final = os.environ.get("WAYBILL_PICTURES")
"""The folder that pictures of the views are written to; a test's own environment does not have it."""

PICTURE_MAX_BYTES: Final = 150_000

DESK: Final[ViewportSize] = {"width": 1280, "height": 900}


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """The machine's Chromium: meanwhile, asyncio cannot run anything else."""
    if CHROMIUM is None:
        pytest.skip("there is no chromium; Debian has it in the package chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Its sandbox does not work for root.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visit(NamedTuple):
    """A page that is open, and what the browser complained about."""

    page: Page
    complaints: list[str]

    def check_use(self) -> None:
        """Fail if something keeps people from using the page, light on a desk and dark on a phone."""
        from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

        schemes: tuple[tuple[ViewportSize, Literal["light", "dark"]], ...] = (
            (DESK, "light"),
            (PHONE, "dark"),
        )
        for size, scheme in schemes:
            self.page.set_viewport_size(size)
            self.page.emulate_media(color_scheme=scheme)
            assert not self.page.evaluate("document.documentElement.scrollWidth > innerWidth"), (
                "it is too wide"
            )
            found = Axe().run(self.page)
            assert found.violations_count == 0, found.generate_report()

    def close(self) -> None:
        """Close it; fail if the browser complained: of a script, a style, or the policy."""
        self.page.close()
        assert self.complaints == []


@functools.cache
def context_of(browser: Browser, *, has_script: bool) -> BrowserContext:
    """What all visits with or without script share: to open a window for each costs more than the visit."""
    context = browser.new_context(java_script_enabled=has_script)
    context.set_default_timeout(20_000)  # a machine may be busy
    context.new_page()  # without it, the window would close with the page of a visit
    return context


def visit(browser: Browser, url: str, *, has_script: bool = True, viewport: ViewportSize = DESK) -> Visit:
    """Open an address on a page of its own, as somebody who has not been there before."""
    context = context_of(browser, has_script=has_script)
    context.clear_cookies()
    page = context.new_page()
    page.set_viewport_size(viewport)
    complaints: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            complaints.append(message.text)

    page.on("console", hear)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(url)
    return Visit(page, complaints)


def take_picture(page: Page, name: str) -> None:
    """Write a picture of a page for the documentation, if a folder for it is given."""
    if PICTURES:
        picture = page.screenshot(path=Path(PICTURES, f"page-{name}.png"))
        assert len(picture) <= PICTURE_MAX_BYTES
