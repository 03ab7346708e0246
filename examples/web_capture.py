"""Capture events in the threads of a web service without losing any.

With ``flush="sync"`` a send returns when its message is durable; only then is the request
answered. Threads that send at the same time share one sync.
"""

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import forebay

THREADS = 8
REQUESTS = 400


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "captured")
        with forebay.open(path, flush="sync") as store:
            clicks = store.producer("clicks")

            def handle(number: int) -> int:
                """Answer a request: 200 when the event is durable, 503 when it is not."""
                try:
                    sent = clicks.send(f"click {number}".encode(), key=f"user-{number % 50}")
                except forebay.BusyError:
                    # Nothing was appended, so the client may try again.
                    return 503
                return 200 if sent.durable else 503

            begin = time.perf_counter()
            with ThreadPoolExecutor(THREADS) as pool:
                answers = list(pool.map(handle, range(REQUESTS)))
            took = time.perf_counter() - begin
            answered = answers.count(200)
            print(f"{answered} events made durable by {THREADS} threads in {took:.2f} s")

        # A nightly job may read while the service runs; here it reads afterwards.
        with forebay.open(path, mode="r") as store:
            events = list(store.tail("clicks", start="earliest", follow=False))
            print(
                f"{len(events)} events captured, {len(store.query('clicks', 'user-7'))} of user-7"
            )
            assert len({event.body for event in events}) == answered == REQUESTS


if __name__ == "__main__":
    main()
