"""Consuming by callback: what `forebay.Consumer.run` does."""

from __future__ import annotations

import errno
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from forebay._forebay import Consumer, Message, Run
from forebay.errors import (
    AlreadySettledError,
    BusyError,
    CorruptError,
    DiskError,
    DiskFullError,
    FlushTimeoutError,
    ForebayError,
    InvalidOptionError,
    OwnershipLostError,
    StoreClosedError,
)
from forebay.given import check_function, check_has_run

if TYPE_CHECKING:
    import logging

#: Seconds between two checks for a signal. A signal does not wake a wait if its handler restarts
#: system calls, as the handler that Polars installs for SIGINT does.
_SLICE = 0.05
#: Seconds between two attempts to store an outcome. The pause doubles each time.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
#: The system ran out of a resource that other processes may release.
_OUT_OF = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM))
#: More threads would gain nothing, and starting many more takes minutes.
_THREADS_MAX = 1024


class _Polls:
    """The polls of a run, and whether it was stopped.

    The handler of a signal stops it, also while this thread stops it, so `stop` takes no lock.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._polls = Run(consumer)
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True
        self._polls.stop()

    def poll(self, batch: int) -> list[Message]:
        return self._polls.poll(batch)

    def pause(self, seconds: float) -> None:
        """Sleep, unless the run is stopped."""
        end = time.monotonic() + seconds
        while not self.is_stopped and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _SLICE))


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
    polls = _Polls(consumer)
    failures: list[BaseException] = []

    def work(ended: threading.Event) -> None:
        try:
            while messages := _poll(polls, batch):
                _handle(consumer, polls, handler, messages, batch)
        except StoreClosedError:
            pass
        except BaseException as error:
            failures.append(error)
        finally:
            # One thread that ends makes all others end.
            polls.stop()
            ended.set()

    # `Thread.join` does not suffice: before Python 3.13, a signal makes it return too early.
    ends = [threading.Event() for _ in range(threads)]
    workers = [
        threading.Thread(target=work, args=(ended,), name=f"forebay-run-{n}")
        for n, ended in enumerate(ends)
    ]
    _until_all_end(polls, workers, ends)
    if failures:
        raise failures[0]


def _until_all_end(
    polls: _Polls, workers: list[threading.Thread], ends: list[threading.Event]
) -> None:
    """Start the threads, and wait until all have ended. Then raise what interrupted that.

    The first exception, usually of a signal, stops the polls. Later ones change nothing: this
    returns only after the handlers of messages have returned.
    """
    is_main = threading.current_thread() is threading.main_thread()
    previous = signal.getsignal(signal.SIGTERM) if is_main else None
    raised: BaseException | None = None
    is_over = False
    while not is_over:
        try:
            if raised is None:
                if is_main:
                    _end_at_termination(polls)
                for worker in workers:
                    worker.start()
            else:
                polls.stop()
            for worker, ended in zip(workers, ends, strict=True):
                if worker.ident is not None:
                    _wait(ended)
                    worker.join()
            if previous is not None:
                signal.signal(signal.SIGTERM, previous)
            is_over = True
        except BaseException as error:
            if raised is None:
                raised = error
    if raised is not None:
        raise raised


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


def _poll(polls: _Polls, batch: int) -> list[Message]:
    """Poll, and continue if this process hung and others took over its queues."""
    pauses = _Pauses(polls)
    while True:
        try:
            return polls.poll(batch)
        except OwnershipLostError as error:
            _logger().warning("%s", error)
        except ForebayError as error:
            pauses.after(error, "no messages yet")


def _handle(
    consumer: Consumer,
    polls: _Polls,
    handler: Callable[[Any], object],
    messages: list[Message],
    batch: int,
) -> None:
    """Call the handler and settle its messages."""
    try:
        check_has_run("handler", handler(messages if batch > 1 else messages[0]))
    except Exception:
        first = messages[0]
        more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
        _logger().exception(
            "the handler failed on the message of topic %s queue %d offset %d%s; will be retried",
            *(first.topic, first.queue, first.offset, more),
        )
        settle: Callable[[Message], None] = partial(_refuse, consumer)
    else:
        settle = consumer.ack
    for number, message in enumerate(messages):
        if not _settle(polls, message, settle):
            consumer._give_back(messages[number:])
            break


def _refuse(consumer: Consumer, message: Message) -> None:
    """Have a message delivered again, unless its bytes were damaged since it was delivered.

    Such a message stays unsettled. The read of its next delivery fails, which settles it.
    """
    try:
        consumer.nack(message)
    except CorruptError as error:
        place = (message.topic, message.queue, message.offset)
        _logger().warning("topic %s queue %d offset %d cannot be tried again: %s", *place, error)


def _settle(polls: _Polls, message: Message, settle: Callable[[Message], None]) -> bool:
    """Settle a message, unless the handler has, or another consumer was given it.

    A temporary error is retried. Returns False if the run was stopped before the message was
    settled.
    """
    place = (message.topic, message.queue, message.offset)
    pauses = _Pauses(polls)
    while True:
        try:
            settle(message)
        except AlreadySettledError:
            pass
        except OwnershipLostError as error:
            _logger().warning("%s", error)
        except FlushTimeoutError as error:
            # Its retry is in the log. Another attempt would append a second one.
            text = "topic %s queue %d offset %d will be delivered twice: %s"
            _logger().warning(text, *place, error)
        except ForebayError as error:
            pauses.after(error, "topic %s queue %d offset %d is not settled yet", *place)
            if polls.is_stopped:
                return False
            continue
        return True


class _Pauses:
    """The pauses between the attempts of a call that may succeed later."""

    def __init__(self, polls: _Polls) -> None:
        self._polls = polls
        self._next = _FIRST_PAUSE

    def after(self, error: ForebayError, text: str, *facts: object) -> None:
        """Pause after a temporary error, and log the first one. Raise any other."""
        is_wanting = isinstance(error, DiskError) and error.errno in _OUT_OF
        if not is_wanting and not isinstance(error, (BusyError, DiskFullError)):
            raise error
        if self._next == _FIRST_PAUSE:
            _logger().warning(f"{text}, and it is tried again: %s", *facts, error)
        self._polls.pause(self._next)
        self._next = min(2 * self._next, _LONGEST_PAUSE)


def _end_at_termination(polls: _Polls) -> None:
    """Have SIGTERM end the polls. Only the main thread may handle signals."""

    def terminate(number: int, frame: FrameType | None) -> None:
        polls.stop()

    signal.signal(signal.SIGTERM, terminate)
