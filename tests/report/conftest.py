"""A browser that opens a page, and says whether anything in it went wrong."""

import shutil

import pytest


@pytest.fixture(scope="module")
def browser():
    play = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if not path:
        pytest.skip("no browser: apt-get install chromium")
    with play.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def opened(watched):
    """Opens a page from a file, which asks for nothing elsewhere."""
    asked = []

    def open_(path, width=1400, **more):
        address = path if str(path).startswith("file:") else f"file://{path}"
        return watched(address, width, lambda request: asked.append(request.url), **more)

    yield open_
    assert all(url.startswith("file:") for url in asked)


@pytest.fixture
def watched(browser):
    """Opens an address as people do, waits until it is drawn; afterwards there must have been no
    error. `asking` is told of each request.
    """
    errors = []

    def open_(address, width=1400, asking=lambda request: None, **more):
        page = browser.new_page(viewport={"width": width, "height": 900}, **more)
        page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", asking)
        page.goto(address)
        page.wait_for_selector("html[data-ready]")
        return page

    yield open_
    assert not errors
