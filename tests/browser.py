"""A real browser: the Chromium that is installed on this machine, driven by playwright."""

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Page, async_playwright

CHROMIUM = shutil.which("chromium")

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed (apt-get install chromium)"
)

# without these it looks for its maker's services at every start, which a closed network makes slow
_QUIET = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@asynccontextmanager
async def open_page(*, javascript: bool = True) -> AsyncIterator[Page]:
    """An empty page in a browser of its own, without history."""
    async with async_playwright() as playwright:
        with tempfile.TemporaryDirectory(prefix="hymical-chromium-", ignore_cleanup_errors=True) as profile:
            context = await playwright.chromium.launch_persistent_context(
                profile,
                executable_path=CHROMIUM,
                args=_QUIET,
                chromium_sandbox=False,
                java_script_enabled=javascript,
            )
            try:
                yield await context.new_page()
            finally:
                await context.close()
