"""Times as the store keeps them: milliseconds since the Unix epoch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["milliseconds"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def milliseconds(time: datetime) -> tuple[int, int]:
    """Return `time` in milliseconds, rounded down and rounded up."""
    micros = (time - _EPOCH) // _MICROSECOND
    return micros // 1000, -(-micros // 1000)
