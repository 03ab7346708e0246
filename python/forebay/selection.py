"""Ranges of a topic that can pass a filter, for query engines that hand their filters down.

A range is wide enough for every message that passes; the engine evaluates its filter again. So a
filter that is not understood costs time, never rows.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from forebay import _forebay
from forebay._forebay import Scan, Store
from forebay.errors import OffsetOutOfRangeError

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

__all__ = ["UNBOUNDED", "QueueRange", "Span", "open_reader", "ranges", "require", "scan_ranges"]

#: How often ranges are computed while retention removes their first messages.
_ATTEMPTS = 5


class QueueRange(NamedTuple):
    """A queue, the first offset, and the offset after the last."""

    queue: int
    start: int
    end: int


@dataclass(frozen=True)
class Span:
    """A half-open range of integers; `None` means unbounded."""

    start: int | None = None
    end: int | None = None

    def within(self, other: Span) -> Span:
        """Return the intersection of both spans."""
        starts = [start for start in (self.start, other.start) if start is not None]
        ends = [end for end in (self.end, other.end) if end is not None]
        return Span(max(starts, default=None), min(ends, default=None))


#: The span of everything.
UNBOUNDED = Span()


def require(package: str, extra: str) -> Any:
    """Import an optional package; the error names the extra to install."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        message = f"this needs {package}: pip install 'forebay[{extra}]'"
        raise ImportError(message, name=package) from error


def ranges(
    store: Store,
    topic: str,
    queues: Iterable[int] | None = None,
    start: Any = "earliest",
    end: Any = "latest",
) -> list[QueueRange]:
    """Return the non-empty ranges of the queues of a topic between two bounds.

    Raises
    ------
    UnknownTopicError
        If there is no such topic, or it has no such queue.
    OffsetOutOfRangeError
        If the start is an offset outside its queue.
    """
    found = store.topics.get(topic)
    there = [] if found is None else found.queues
    known = {queue.id for queue in there}
    wanted = known if queues is None else set(queues)
    if found is None or not wanted <= known:
        # A stream reports what does not exist, in the words of the store.
        store.scan(topic, queues=wanted or None).__arrow_c_stream__()
    there = [queue for queue in there if queue.id in wanted]
    bounded = _forebay.offsets_between(store, topic, there, start, end)
    return [QueueRange(it.queue, it.start, it.end) for it in bounded if it.start < it.end]


def scan_ranges(store: Store, topic: str, found: Iterable[QueueRange], **arguments: Any) -> Scan:
    """Return a scan of ranges of a topic, with further arguments of `Store.scan`."""
    found = list(found)
    return store.scan(
        topic,
        queues=[it.queue for it in found],
        start={it.queue: it.start for it in found},
        end={it.queue: it.end for it in found},
        **arguments,
    )


def open_reader(plan: Callable[[], Scan]) -> pyarrow.RecordBatchReader:
    """Return a reader of the scan that `plan` makes.

    Retention may remove the start of a range between the plan and the read; then it plans again.
    """
    pyarrow = require("pyarrow", "arrow")
    for _ in range(_ATTEMPTS - 1):
        try:
            return pyarrow.RecordBatchReader.from_stream(plan())
        except OffsetOutOfRangeError:
            continue
    return pyarrow.RecordBatchReader.from_stream(plan())
