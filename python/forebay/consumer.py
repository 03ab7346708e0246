"""Consuming by callback: what `forebay.Consumer.run` does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from forebay._forebay import Consumer, Message, Run
from forebay.errors import (
    AlreadySettledError,
    InvalidOptionError,
    OwnershipLostError,
    StoreClosedError,
)
from forebay.given import check_function, check_has_run

if TYPE_CHECKING:
    import logging

#: Seconds between two checks for a signal. One whose handler lets system calls go on, such as that
#: which Polars installs for SIGINT, wakes no wait.
_SLICE = 0.05
#: A machine has no more to give, and starting many more takes minutes.
_THREADS_MAX = 1024


def run(
    consumer: Consumer,
    handler: Callable[[Any], object],
    threads: int = 1,
    batch: int = 1,
) -> None:
    """Call `handler` with the messages of `consumer` until the consumer closes or a signal comes.

    Returns once all calls have returned. See `forebay.Consumer.run`.
    """
    check_function("handler", handler)
    _check_count("threads", threads, _THREADS_MAX)
    _check_count("batch", batch)
    polls = Run(consumer)
    failures: list[BaseException] = []

    def work(ended: threading.Event) -> None:
        try:
            while messages := _poll(polls, batch):
                _handle(consumer, handler, messages, batch)
        except StoreClosedError:
            pass
        except BaseException as error:
            failures.append(error)
        finally:
            # One that ends, ends all.
            polls.stop()
            ended.set()

    # `Thread.join` cannot tell: before Python 3.13, a signal makes it take the thread for ended.
    ends = [threading.Event() for _ in range(threads)]
    workers = [
        threading.Thread(target=work, args=(ended,), name=f"forebay-run-{n}")
        for n, ended in enumerate(ends)
    ]
    previous = _on_termination(polls)
    try:
        for worker in workers:
            worker.start()
        for ended in ends:
            _wait(ended)
    finally:
        polls.stop()
        for worker, ended in zip(workers, ends, strict=True):
            if worker.ident is not None:
                _wait(ended)
                worker.join()
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)
    if failures:
        raise failures[0]


def _wait(ended: threading.Event) -> None:
    """Wait for the end of a thread, and let the main thread handle signals meanwhile."""
    is_main = threading.current_thread() is threading.main_thread()
    while not ended.wait(_SLICE if is_main else None):
        pass


def _logger() -> logging.Logger:
    """Return the logger of the package.

    The thread of a handler imports it, which no signal interrupts. Ctrl-C that falls into the
    import of ``logging`` ends the process by SIGINT even where it is caught, since some module
    evaluates a text there.
    """
    import logging

    return logging.getLogger("forebay")


def _check_count(name: str, value: int, most: int | None = None) -> None:
    if not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
    if value < 1 or (most is not None and value > most):
        reason = "must be at least 1" if most is None else f"must be from 1 to {most}"
        text = f"{name} {reason}, got {value}"
        raise InvalidOptionError(text, name=name, value=str(value), reason=reason)


def _poll(polls: Run, batch: int) -> list[Message]:
    """Poll on after other processes have got the queues of this one, which hung."""
    while True:
        try:
            return polls.poll(batch)
        except OwnershipLostError as error:
            _logger().warning("%s", error)


def _handle(
    consumer: Consumer, handler: Callable[[Any], object], messages: list[Message], batch: int
) -> None:
    """Call the handler and settle its messages."""
    try:
        check_has_run("handler", handler(messages if batch > 1 else messages[0]))
    except Exception:
        first = messages[0]
        more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
        _logger().exception(
            "the handler failed on the message of topic %s queue %d offset %d%s: to be tried again",
            *(first.topic, first.queue, first.offset, more),
        )
        _settle(messages, consumer.nack)
    else:
        _settle(messages, consumer.ack)


def _settle(messages: list[Message], settle: Callable[[Message], None]) -> None:
    """Settle each message, unless the handler has, or another consumer was given it."""
    for message in messages:
        try:
            settle(message)
        except AlreadySettledError:
            pass
        except OwnershipLostError as error:
            _logger().warning("%s", error)


def _on_termination(polls: Run) -> Any:
    """Have SIGTERM end the polls, where this thread handles signals. Returns the handler before."""
    if threading.current_thread() is not threading.main_thread():
        return None

    def terminate(number: int, frame: FrameType | None) -> None:
        polls.stop()

    return signal.signal(signal.SIGTERM, terminate)
