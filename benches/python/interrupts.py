"""How long calls of the package take to answer Ctrl-C: waits, and reads that never end."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable

import pyarrow as pa

import forebay

#: Times that Ctrl-C is pressed in each call.
PRESSES = 5
#: Most messages of a read; it takes several slices.
READ_ROWS = 100_000


def calls(store: forebay.Store, topic: str) -> dict[str, Callable[[], object]]:
    """Return calls that do not end by themselves."""

    def wait_of_poll() -> None:
        with store.consumer(topic, group="interrupts", start="latest") as consumer:
            consumer.poll()

    def wait_of_loop() -> None:
        with store.consumer(topic, group="interrupts", start="latest") as consumer:
            next(iter(consumer))

    def read() -> None:
        while True:
            store.read(topic, 0, 0, max_messages=READ_ROWS)

    def stream() -> None:
        while True:
            pa.table(store.scan(topic))

    return {
        "a tail": lambda: next(store.tail(topic)),
        "a poll": wait_of_poll,
        "a loop over a consumer": wait_of_loop,
        "a read": read,
        "a stream": stream,
    }


def answer_ms(call: Callable[[], object], pause: float) -> float:
    """Press Ctrl-C after a pause in a call; return the time until the exception, in ms."""
    main, pressed = threading.main_thread().ident, []
    assert main is not None

    def press() -> None:
        time.sleep(pause)
        pressed.append(time.perf_counter())
        signal.pthread_kill(main, signal.SIGINT)

    presser = threading.Thread(target=press)
    try:
        presser.start()
        try:
            call()
        except OSError:
            # Of a stream, whose reader is foreign code. The exception follows after the next call.
            time.sleep(0)
    except KeyboardInterrupt:
        answered = time.perf_counter()
        presser.join()
        return (answered - pressed[0]) * 1e3
    raise AssertionError("the call has ended")


def measure(store: forebay.Store, topic: str, figures: dict[tuple[str, str], list[float]]) -> None:
    """Add the longest answer in each call."""
    # A shell that runs in the background has SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    draw = random.Random(1)
    try:
        for name, call in calls(store, topic).items():
            answers = [answer_ms(call, draw.uniform(0.05, 0.15)) for _ in range(PRESSES)]
            figures.setdefault((f"Ctrl-C in {name}: longest", "ms"), []).append(max(answers))
    finally:
        signal.signal(signal.SIGINT, before)
