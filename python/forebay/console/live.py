"""Samples of a store for all pages that are open, and the rates between them.

One task samples while any page listens. Each listener takes the newest sample when it is ready for
one, so a slow page costs no memory, and misses samples instead.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from forebay._forebay import Store
from forebay.console.facts import marks

__all__ = ["LISTENERS", "Live", "Sample", "take"]

#: Pages that may listen at the same time.
LISTENERS = 32
#: Rates cover at least these seconds; before that, the time since the first sample.
_WINDOW = 5.0
#: Topics of which the rates are known.
_TOPICS = 10_000
#: A sample takes at most this share of the time.
_SHARE = 0.1


@dataclass(frozen=True)
class Sample:
    """What was counted at one time."""

    at: float
    ends: Mapping[str, int]
    figures: dict[str, Any] = field(default_factory=dict)


def take(store: Store) -> Sample:
    """Count what is in a store. This blocks: call it in a thread."""
    first = end = queues = 0
    ends = {}
    for name, topic in store.topics.items():
        bounds = [(one.min_offset, one.max_offset) for one in topic.queues]
        queues += len(bounds)
        first += sum(one for one, _ in bounds)
        ends[name] = sum(one for _, one in bounds)
        end += ends[name]
    stats = store.stats()
    writer = stats.writer
    groups = store.groups
    figures = {
        "messages": end - first,
        "sent": end,
        "topics": len(ends),
        "queues": queues,
        **marks(store, stats),
        "log_bytes": stats.log_bytes,
        "disk_free": stats.disk_free,
        "damaged": len(store.damage),
        # A writer shows its latencies up to a second after its last message.
        "writer": writer and [writer.pid, writer.put_latency.count, writer.flush_wait.count],
        "lag": sum(one.lag for each in groups.values() for one in each),
        "committed": sum(one.committed for each in groups.values() for one in each),
    }
    return Sample(time.monotonic(), ends, figures)


class Live:
    """The samples of a store.

    Parameters
    ----------
    sample
        Takes a sample, without blocking the event loop.
    interval
        Seconds between two samples.
    """

    def __init__(self, sample: Callable[[], Awaitable[Sample]], interval: float) -> None:
        self._sample = sample
        self._interval = interval
        self._base: Sample | None = None
        self._middle: Sample | None = None
        self._newest: Sample | None = None
        self._event: dict[str, Any] | None = None
        self._number = 0
        self._next = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        #: Pages that listen.
        self.listeners = 0

    def close(self) -> None:
        """End all streams. Call it in the event loop."""
        self._closed = True
        self._next.set()

    def topic_rates(self) -> dict[str, float]:
        """Return messages per second by topic; nothing if no page listens."""
        old, new = self._base, self._newest
        if old is None or new is None or new.at <= old.at or len(new.ends) > _TOPICS:
            return {}
        took = new.at - old.at
        return {name: (end - old.ends.get(name, 0)) / took for name, end in new.ends.items()}

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Yield samples as server-sent events."""
        if self.listeners >= LISTENERS:
            yield b'event: full\ndata: {"error": "too many pages listen"}\n\n'
            return
        self.listeners += 1
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="forebay console")
        seen = 0
        try:
            yield b"retry: 2000\n\n"
            while not self._closed:
                if self._event is None or self._number == seen:
                    await self._next.wait()
                    continue
                seen = self._number
                yield b"id: %d\ndata: %s\n\n" % (seen, json.dumps(self._event).encode())
        finally:
            self.listeners -= 1
            if self.listeners == 0:
                self._task.cancel()
                self._task = self._base = self._middle = self._newest = self._event = None

    async def _run(self) -> None:
        while not self._closed:
            began = time.monotonic()
            try:
                self._publish(self._add(await self._sample()))
            except Exception as error:
                # Whatever it is, the pages show it, and the next sample may succeed.
                self._publish({"error": str(error)})
            took = time.monotonic() - began
            await asyncio.sleep(max(self._interval, took / _SHARE))

    def _add(self, sample: Sample) -> dict[str, Any]:
        old, self._newest = self._newest, sample
        # The base of the rates is from one to two windows old.
        if self._middle is None or sample.at - self._middle.at >= _WINDOW:
            self._base, self._middle = self._middle or sample, sample
        base = self._base or sample
        took = sample.at - base.at
        rates = {}
        free = {"disk_free": sample.figures["disk_free"]}
        for name, counted in (("messages_per_second", "sent"), ("bytes_per_second", "position")):
            new, past = sample.figures[counted], base.figures[counted]
            is_known = new is not None and took > 0
            rates[name] = max(new - past, 0) / took if is_known else None
        # Other files on the disk change what is free of it.
        changed = old is None or old.figures | free != sample.figures
        return sample.figures | rates | {"time": round(time.time() * 1000), "changed": changed}

    def _publish(self, event: dict[str, Any]) -> None:
        self._event = event
        self._number += 1
        if not self._closed:
            self._next.set()
            self._next = asyncio.Event()
