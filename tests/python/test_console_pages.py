"""The console's pages in a browser: long text fits wide and narrow windows."""

import pytest
from console_support import LIMIT_MS, browsing, serving

import forebay
from forebay.console import Console

#: As long as names and reasons can be, without a place where a line may break.
NAME = "t" * 120
REASON = "r" * 1000
TOKEN = "the-token-of-these-tests"


@pytest.fixture
def browser():
    """Return a headless Chromium."""
    with browsing() as browser:
        yield browser


@pytest.fixture
def url():
    """Serve a store with long names, keys, tags and reasons; return its address."""
    with forebay.open(":memory:", default_queues=1) as store:
        store.send(NAME, b"b" * 500, key="k" * 200, tags="g" * 200, properties={"p": "v" * 500})
        with store.consumer(NAME, group="g" * 100) as consumer:
            consumer.reject(*consumer.poll(timeout=10), reason=REASON)
        console = Console(store, token=TOKEN)
        with serving(console) as url:
            yield url
        console.close()


@pytest.mark.parametrize("width", [1440, 390])
def test_long_names_and_reasons_fit_the_window(url, browser, width):
    """A long name in an error or a caption had made the page wider than a narrow window."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.set_default_timeout(LIMIT_MS)
    page.goto(f"{url}/#token={TOKEN}")
    page.get_by_text("live", exact=True).wait_for()
    group, dead = "g" * 100, "%25DLQ%25" + "g" * 100
    for where, title, text in (
        ("/topics", "Topics", NAME),
        (f"/topic?topic={NAME}", NAME, "b" * 20),
        (f"/message?topic={NAME}&queue=0&offset=0", f"{NAME} 0@0", "v" * 20),
        (f"/message?topic={dead}&queue=0&offset=0", f"%DLQ%{group} 0@0", REASON),
        (f"/message?topic={NAME}&queue=7&offset=0", f"{NAME} 7@0", "has no queue 7"),
        ("/groups", "Groups", "Queues of ggg"),
        ("/letters", "Dead letters", group),
        (f"/letters?group={group}", f"Dead letters of {group}", REASON),
    ):
        page.goto(f"{url}/#{where}")
        # Else the text may be that of the page before.
        page.get_by_role("heading", name=title, exact=True, level=1).wait_for()
        page.get_by_role("main").get_by_text(text).first.wait_for()
        wider = page.evaluate(
            """() => [document.documentElement, ...document.querySelectorAll("main .scroll")]
              .filter((one) => one.scrollWidth > one.clientWidth)
              .map((one) => `${one.getAttribute("aria-label")}: ${one.scrollWidth}`)"""
        )
        assert wider == [], where
    # Further lines of a reason are on the message's page.
    reason = page.get_by_role("cell").filter(has_text=REASON)
    assert reason.locator("bdi").bounding_box()["height"] < 200
    page.close()
