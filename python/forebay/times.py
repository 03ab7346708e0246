"""Times as the store counts them, in milliseconds since the epoch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["milliseconds"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def milliseconds(time: datetime) -> tuple[int, int]:
    """Return the last millisecond that is not after a time, and the first that is not before."""
    micros = (time - _EPOCH) // _MICROSECOND
    return micros // 1000, -(-micros // 1000)
