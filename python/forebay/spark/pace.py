"""The size of a micro-batch: limits of messages and bytes, and how long to wait for a minimum."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.spark.errors import invalid, must
from forebay.spark.offsets import K
from forebay.spark.options import ReadOptions, by_name, parse_options, positive

if TYPE_CHECKING:
    from forebay._forebay import Fitted

#: Number of messages of a queue whose sizes serve to estimate the others.
SAMPLE = 32

#: Length of a unit in seconds, by its name in Spark's durations.
_UNITS = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
    "": 1e-3,
}

#: A function that takes ``{queue: (start, end, bytes)}`` and returns, by queue, the messages from
#: `start` that fit into `bytes`.
Fit = Callable[[Mapping[K, tuple[int, int, int]]], Mapping[K, "Fitted"]]


@dataclass(frozen=True)
class Pace:
    """The limits that the options of a stream set for its batches."""

    offsets_max: int | None = None
    offsets_min: int | None = None
    #: Seconds after which a batch may have fewer messages than `offsets_min`.
    delay_max: float = 900.0
    bytes_max: int | None = None


@dataclass(frozen=True)
class StreamOptions:
    """What a stream reads, how fast, and the group under which it records its progress."""

    read: ReadOptions
    pace: Pace
    group: str | None = None


def parse_stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Return the options of a stream.

    Raises
    ------
    InvalidOptionError
        As for a batch, and if a limit contradicts another.
    """
    read = parse_options(given, streaming=True)
    options = by_name(given)
    pace = Pace(
        offsets_max=positive(options, "maxOffsetsPerTrigger"),
        offsets_min=positive(options, "minOffsetsPerTrigger"),
        delay_max=_seconds("maxTriggerDelay", options.get("maxTriggerDelay", "15m")),
        bytes_max=positive(options, "maxBytesPerTrigger"),
    )
    least, most = pace.offsets_min, pace.offsets_max
    if least is not None and most is not None and least > most:
        rule = f"not exceed maxOffsetsPerTrigger ({most})"
        raise must("minOffsetsPerTrigger", least, rule)
    group = options.get("group")
    if group is not None and not re.fullmatch(r"[%|a-zA-Z0-9_-]{1,255}", group):
        rule = "be 1 to 255 letters, digits, -, _, % or |"
        raise must("group", group, rule)
    return StreamOptions(read, pace, group)


def _seconds(name: str, text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", text.strip().lower())
    if found is None or found[2] not in _UNITS:
        raise invalid(name, text, 'expected e.g. "90s", "15m" or "2h"; a bare number is ms')
    return int(found[1]) * _UNITS[found[2]]


def share_bytes(limit: int, ranges: Mapping[K, tuple[int, int]], fit: Fit[K]) -> dict[K, int]:
    """Share bytes among queues as `share` does messages; return the end offset of each share.

    The queues come in the order of their turns. The total never exceeds `limit`, with one
    exception: if the next message of the first queue is larger than `limit`, it is taken alone.
    Otherwise it would wait for as long as other queues have smaller messages. Each queue gets one
    message before any gets more, as far as there is room. The rest is shared in proportion to the
    bytes in the queues, estimated from the sizes of a few messages.
    """
    some = {at: (start, end) for at, (start, end) in ranges.items() if start < end}
    ends = {at: start for at, (start, _) in ranges.items()}
    if not some:
        return ends
    first = fit({at: (start, start + 1, limit) for at, (start, _) in some.items()})
    foremost = next(iter(some))
    if first[foremost].end == ends[foremost]:
        ends[foremost] += 1
        return ends
    left = limit
    for at in some:
        if first[at].bytes <= left:
            ends[at] = first[at].end
            left -= first[at].bytes
    more = {at: (ends[at], end) for at, (start, end) in some.items() if start < ends[at]}
    seen = fit({at: (start, min(end, start + SAMPLE), limit) for at, (start, end) in more.items()})
    sizes = {}
    for at, (start, end) in more.items():
        count = seen[at].end - start
        # If not even one message fits into the limit, the queue gets no share.
        sizes[at] = seen[at].bytes * (end - start) // count if count > 0 else 0
    total = max(sum(sizes.values()), 1)
    parts = {at: (*more[at], left * size // total) for at, size in sizes.items()}
    return ends | {at: found.end for at, found in fit(parts).items()}
