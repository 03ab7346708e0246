"""Stores for tests, with a clock that the test moves.

Examples
--------
pytest finds the fixtures `forebay_store`, a store in memory, and `forebay_clock`, its clock:

>>> def test_a_message_comes_back(forebay_store, forebay_clock):
...     forebay_store.send("orders", b"apples")
...     with forebay_store.consumer("orders", group="billing") as consumer:
...         assert consumer.poll(timeout=0)
...         assert not consumer.poll(timeout=0)
...         forebay_clock.advance(minutes=15)
...         assert consumer.poll(timeout=0)

Elsewhere `Clock` and `open` do the same:

>>> import forebay.testing
>>> clock = forebay.testing.Clock()
>>> with forebay.testing.open(clock=clock) as store:
...     test_a_message_comes_back(store, clock)
"""

from __future__ import annotations

import os
import weakref
from datetime import UTC, datetime, timedelta
from typing import Any, Unpack

from forebay import _forebay
from forebay._forebay import Store
from forebay.given import check
from forebay.options import EngineName, Flush, Mode, Options
from forebay.store import close_at_exit

__all__ = ["Clock", "open"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
#: The last time that a clock shows; the core counts nanoseconds.
_LAST = datetime(2500, 1, 1, tzinfo=UTC)


class Clock:
    """A clock that stands still until it is moved, for stores opened with `open`.

    It determines the times of messages, the delays of messages and retries, the time after which
    an unsettled message is delivered again, and the age at which ``roll_after`` seals log files.
    Waits in calls, such as ``poll(timeout=1)``, and the intervals of flushes use real time.

    Parameters
    ----------
    at
        The time that it shows first, an aware datetime from 1970 to 2500; by default now.

    Examples
    --------
    >>> from datetime import datetime, UTC
    >>> clock = forebay.testing.Clock(at=datetime(2026, 1, 1, tzinfo=UTC))
    >>> clock.advance(90)
    >>> clock.now
    datetime.datetime(2026, 1, 1, 0, 1, 30, tzinfo=datetime.timezone.utc)
    """

    def __init__(self, at: datetime | None = None) -> None:
        at = datetime.now(UTC) if at is None else at
        check("at", at, datetime, "an aware datetime, or None")
        if at.tzinfo is None:
            raise ValueError(f"at must have a time zone, got {at}")
        if not _EPOCH <= at <= _LAST:
            raise ValueError(f"at must be between the years 1970 and 2500, got {at}")
        self._core = _forebay.ManualClock((at - _EPOCH) // _MILLISECOND)
        self._stores: weakref.WeakSet[Store] = weakref.WeakSet()

    @property
    def now(self) -> datetime:
        """The time that the clock shows, in UTC and whole milliseconds."""
        return _EPOCH + self._core.now_ms * _MILLISECOND

    def advance(
        self, seconds: float | timedelta = 0, *, minutes: float = 0, hours: float = 0
    ) -> None:
        """Move the clock forward, and return when all that fell due has been delivered.

        Parameters
        ----------
        seconds
            How far, as a number of seconds or a timedelta. The sum is rounded up to whole
            milliseconds, so that at least this time has passed.
        minutes, hours
            Added to the seconds.
        """
        check("seconds", seconds, (int, float, timedelta), "a number of seconds, or a timedelta")
        check("minutes", minutes, (int, float), "a number")
        check("hours", hours, (int, float), "a number")
        try:
            if not isinstance(seconds, timedelta):
                seconds = timedelta(seconds=seconds)
            by = seconds + timedelta(minutes=minutes, hours=hours)
            # A deadline that is due after this time must be due.
            by = -(-by // _MILLISECOND) * _MILLISECOND
            until = self.now + by
        except (OverflowError, ValueError):
            raise ValueError(
                f"the clock cannot move by {seconds} s, {minutes} min and {hours} h"
            ) from None
        if by < timedelta(0):
            raise ValueError(f"the clock moves forward only, got {by.total_seconds():g} s")
        if until > _LAST:
            raise ValueError(f"the clock moves to the year 2500 at most, got {until}")
        self._core.advance(by // _MILLISECOND)
        for store in list(self._stores):
            if not store.closed:
                _forebay.clock_moved(store)

    def __repr__(self) -> str:
        return f"<Clock at {self.now.isoformat()}>"


def open(
    path: str | os.PathLike[str] = ":memory:",
    mode: Mode = "a",
    *,
    clock: Clock,
    engine: EngineName | None = None,
    flush: Flush | None = None,
    adopt: bool = False,
    **options: Unpack[Options],
) -> Store:
    """Open a store whose clock the test moves.

    Parameters
    ----------
    path
        Directory of the store; by default it is in memory.
    clock
        Its clock. Several stores may have the same one.
    mode, engine, flush, adopt, **options
        As for `forebay.open`.

    Examples
    --------
    >>> clock = forebay.testing.Clock()
    >>> with forebay.testing.open(clock=clock) as store:
    ...     _ = store.send("orders", b"later", delay_level=3)
    ...     clock.advance(10)
    ...     [message.body for message in store.tail("orders", "earliest", follow=False)]
    [b'later']
    """
    check("clock", clock, Clock, "a Clock")
    check("adopt", adopt, bool, "True or False")
    given: dict[str, Any] = {**options}
    store = _forebay.open_store(path, mode, engine, flush, adopt, given, clock._core)
    clock._stores.add(store)
    return close_at_exit(store)
