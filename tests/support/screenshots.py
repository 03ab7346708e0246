"""Takes the screenshots of the console that the documentation shows: `make screenshots`.

A store is filled with the same messages each time, a thread sends to it at a steady pace, and
Chromium, headless, opens the pages. Times and rates are those of the run, so that the bytes of an
image differ from run to run, and what it shows does not. It needs Chromium on the path.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from console_support import chromium, serving
from playwright.sync_api import Page, sync_playwright

import forebay
from forebay.console import Console

if TYPE_CHECKING:
    from playwright.sync_api import Browser

IMAGES = Path(__file__).parents[2] / "docs" / "images"
#: Bytes of an image at most, that pages stay quick.
LIMIT = 150_000
#: Messages a second that are sent meanwhile, and seconds until the curves show something.
PACE = 300
WARM_UP_S = 30

FRUITS = ("apples", "pears", "plums", "figs", "limes")


class Shot(NamedTuple):
    """An image: its name, the page, what must be on it, and how big a window is."""

    name: str
    page: str
    text: str
    size: tuple[int, int] = (1280, 800)
    dark: bool = False


SHOTS = (
    Shot("console", "/", "Messages per second", (1280, 820)),
    Shot("console-groups", "/groups", "billing", (1280, 640)),
    Shot("console-letters", "/letters?group=billing", "no such fruit", (1280, 560), dark=True),
    Shot("console-message", "/message?topic=orders&queue=1&offset=0", "fruit", (1280, 900)),
    Shot("console-messages", "/topic?topic=orders", "apples", (390, 760)),
)


def fill(store: forebay.Store) -> None:
    """Send orders, payments and audits, and let a group fail with some of them."""
    for topic, queues in (("orders", 4), ("payments", 2), ("audit", 1)):
        store.create_topic(topic, queues=queues)
    orders = store.producer("orders")
    for number in range(2000):
        fruit = FRUITS[number % len(FRUITS)]
        body = b'{"order": %d, "fruit": "%s", "count": %d}' % (number, fruit.encode(), number % 9)
        properties = {"region": ("eu", "us")[number % 2], "source": "shop"}
        orders.send(body, key=str(number), tags=("paid", "open")[number % 2], properties=properties)
    store.producer("payments").send_batch([b'{"paid": true}'] * 700)
    store.producer("audit").send_batch([b"checked"] * 100)
    with store.consumer("orders", group="billing") as billing:
        messages = billing.poll(800, timeout=5)
        for message in messages[:3]:
            billing.reject(message, reason="no such fruit")
        billing.ack(messages[3:])
    with store.consumer("payments", group="ledger") as ledger:
        ledger.ack(ledger.poll(650, timeout=5))


@contextlib.contextmanager
def sending(store: forebay.Store) -> Iterator[None]:
    """Send at a steady pace in a thread."""
    ended = threading.Event()

    def send() -> None:
        orders = store.producer("orders")
        number = 2000
        while not ended.wait(0.1):
            for _ in range(PACE // 10):
                body = b'{"order": %d, "fruit": "apples", "count": 1}' % number
                orders.send(body, key=str(number), tags="paid")
                number += 1

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def opened(browser: Browser, shot: Shot, address: str) -> Page:
    """Open a page in a window of its own, and wait until it shows its text."""
    page = browser.new_page(
        viewport={"width": shot.size[0], "height": shot.size[1]},
        color_scheme="dark" if shot.dark else "light",
    )
    page.goto(address)
    page.get_by_text("live", exact=True).wait_for()
    page.goto(f"{address.partition('#')[0]}#{shot.page}")
    page.get_by_text(shot.text).first.wait_for()
    return page


def main() -> int:
    """Take all screenshots; fail if one has become too big."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        # The pages show the path as it was given.
        stack.enter_context(contextlib.chdir(folder))
        store = stack.enter_context(forebay.open("events", commitlog_file_size=64 << 20))
        fill(store)
        stack.enter_context(sending(store))
        console = Console(store, write=True)
        address = stack.enter_context(serving(console)) + f"/#token={console.token}"
        browser = chromium(stack.enter_context(sync_playwright()))
        pages = [(shot, opened(browser, shot, address)) for shot in SHOTS]
        # The curves grow meanwhile.
        pages[0][1].wait_for_timeout(WARM_UP_S * 1000)
        for shot, page in pages:
            page.screenshot(path=IMAGES / f"{shot.name}.png")
        browser.close()
    sizes = {shot.name: (IMAGES / f"{shot.name}.png").stat().st_size for shot in SHOTS}
    for name, size in sizes.items():
        print(f"docs/images/{name}.png: {size:,} bytes")
    return 1 if max(sizes.values()) > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
