"""Scans of archives: their arguments, and what exports their batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from operator import index
from typing import TYPE_CHECKING, Any

from forebay import _forebay
from forebay.errors import InvalidOptionError
from forebay.given import ITEMS_MAX
from forebay.times import milliseconds

if TYPE_CHECKING:
    from forebay import Damage
    from forebay.archive.parts import ArchiveDamage

__all__ = ["ArchiveScan", "iterable", "milliseconds_of", "plain_offsets"]

#: The highest offset, and the highest time.
_FAR = (1 << 63) - 1


class ArchiveScan:
    """A scan of an archive; each call of ``__arrow_c_stream__`` starts a new read.

    Ctrl-C ends a stream that the main thread reads: its reader reports an error, and
    ``KeyboardInterrupt`` follows.

    Attributes
    ----------
    damage
        Damage that the streams of this scan have skipped so far.
    """

    def __init__(
        self,
        path: str,
        scans: Callable[[list[Damage | ArchiveDamage]], Iterator[_forebay.BlockScan]],
        arguments: Mapping[str, Any],
    ) -> None:
        self._path = path
        self._scans = scans
        self._arguments = arguments
        self.damage: list[Damage | ArchiveDamage] = []

    def __arrow_c_schema__(self) -> object:
        """Export the schema of the batches."""
        return _forebay.block_schema(dict(self._arguments))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export a new stream."""
        scans = self._scans(self.damage)
        return _forebay.chain_scans(scans, dict(self._arguments), self._path)


def iterable(value: Any) -> Any:
    """Return an argument in a form that can be iterated more than once.

    An iterator without an end gives one item more than any argument may have, and is refused.
    """
    return list(islice(value, ITEMS_MAX + 1)) if isinstance(value, Iterator) else value


def plain_offsets(limit: Any) -> Any:
    """Return a start or end of a scan, with queues and offsets as plain int."""
    if not isinstance(limit, Mapping):
        return limit
    return {index(queue): min(index(offset), _FAR) for queue, offset in limit.items()}


def milliseconds_of(time: datetime | int) -> int:
    """Return a time in milliseconds, rounded up."""
    if isinstance(time, datetime):
        if time.utcoffset() is None:
            reason = "must have a time zone, as in datetime.now(timezone.utc)"
            message = f"time {reason}, got {time}"
            raise InvalidOptionError(message, name="time", value=str(time), reason=reason)
        return milliseconds(time)[1]
    if isinstance(time, bool) or not hasattr(time, "__index__"):
        kind = type(time).__name__
        raise TypeError(f"time must be an aware datetime or integer milliseconds, got {kind}")
    # No message has a time beyond these bounds.
    return max(-_FAR - 1, min(index(time), _FAR))
