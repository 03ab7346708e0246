"""Messages of a topic, page by page: by offset, by time, by key."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from typing import Any

from forebay._forebay import Message, Store, Topic
from forebay.console.bodies import cut, preview, shown
from forebay.errors import UnknownTopicError

__all__ = ["Page", "body_of", "by_key", "detail", "row"]

#: Messages that are read at once from a queue, at most, and the bytes of a read.
_CHUNK, _CHUNK_BYTES = 64, 4 << 20
#: Reads for one page. Damage that is passed over takes some.
_READS = 5_000
#: Queues that are merged.
_QUEUES = 1_000


class Page:
    """Messages of a topic in the order in which they were stored, or in the reverse order.

    Parameters
    ----------
    store, topic
        Where they are.
    queue
        Only this queue; by default all are merged.
    newest
        Whether the newest come first.
    offset
        Where to begin in the queue.
    time
        Where to begin: the first message stored at or after it, or with `newest` the last one
        stored at or before it. Milliseconds since 1970.
    places
        Where to begin by queue, as an earlier page returned it.

    Raises
    ------
    UnknownTopicError
        If there is no such topic or queue.
    ValueError
        If an offset is given without a queue, or the queues are too many to be merged.
    """

    def __init__(
        self,
        store: Store,
        topic: str,
        *,
        queue: int | None = None,
        newest: bool = True,
        offset: int | None = None,
        time: int | None = None,
        places: dict[int, int] | None = None,
    ) -> None:
        if offset is not None and (queue is None or time is not None):
            raise ValueError("an offset needs a queue, and no time beside it")
        self._store = store
        self._topic = topic
        self._newest = newest
        self._reads = 0
        found = [one for one in topic_of(store, topic).queues if queue in (None, one.id)]
        if queue is not None and not found:
            raise UnknownTopicError(f"topic {topic} has no queue {queue}", topic=topic, queue=queue)
        if len(found) > _QUEUES:
            raise ValueError(f"topic {topic} has {len(found):,} queues: choose one")
        self._bounds = {one.id: (one.min_offset, one.max_offset) for one in found}
        self._at = {
            one: self._begin(one, offset, time)
            if places is None or one not in places
            else self._within(one, places[one])
            for one in self._bounds
        }

    def _within(self, queue: int, offset: int) -> int:
        first, end = self._bounds[queue]
        return min(max(offset, first), end)

    def _begin(self, queue: int, offset: int | None, time: int | None) -> int:
        """Return the first offset of a queue, or with `newest` the one after the last."""
        first, end = self._bounds[queue]
        if offset is not None:
            return self._within(queue, offset + self._newest)
        if time is not None:
            found = self._store.offset_at(self._topic, queue, time + self._newest)
            return self._within(queue, found)
        return end if self._newest else first

    def read(self, limit: int) -> dict[str, Any]:
        """Return at most `limit` messages, and where the next page begins."""
        each = self._backward if self._newest else self._forward
        streams = [each(queue, limit) for queue in self._at]
        merged = heapq.merge(*streams, key=lambda one: one.position, reverse=self._newest)
        rows = []
        for message in merged:
            rows.append(row(message))
            self._at[message.queue] = message.offset + (not self._newest)
            if len(rows) == limit:
                break
        cut_short = self._reads >= _READS
        after = self._next() if cut_short or len(rows) == limit else None
        return {"messages": rows, "next": after, "cut": cut_short}

    def _next(self) -> str | None:
        bounds = self._bounds
        left = [
            queue
            for queue, at in self._at.items()
            if (at > bounds[queue][0] if self._newest else at < bounds[queue][1])
        ]
        if not left:
            return None
        return ".".join(f"{queue}-{at}" for queue, at in self._at.items())

    def _read(self, queue: int, offset: int, count: int) -> tuple[list[Message], int]:
        self._reads += 1
        found = self._store.read(self._topic, queue, offset, count, _CHUNK_BYTES)
        return found.messages, found.next_offset

    def _forward(self, queue: int, limit: int) -> Iterator[Message]:
        at, end, count = self._at[queue], self._bounds[queue][1], 1
        while at < end and self._reads < _READS:
            messages, after = self._read(queue, at, min(count, limit, _CHUNK))
            yield from (one for one in messages if one.offset < end)
            if after <= at:
                return
            at, count = after, 2 * count

    def _backward(self, queue: int, limit: int) -> Iterator[Message]:
        end, first, count = self._at[queue], self._bounds[queue][0], 1
        while end > first and self._reads < _READS:
            start = at = max(first, end - min(count, limit, _CHUNK))
            messages: list[Message] = []
            while at < end and self._reads < _READS:
                found, after = self._read(queue, at, end - at)
                messages += (one for one in found if one.offset < end)
                if after <= at:
                    break
                at = after
            yield from reversed(messages)
            end, count = start, 2 * count


def topic_of(store: Store, name: str) -> Topic:
    """Return a topic."""
    found = store.topics.get(name)
    if found is None:
        raise UnknownTopicError(f'there is no topic "{cut(name)}"', topic=name)
    return found


def by_key(
    store: Store, topic: str, key: str, *, begin: int | None, end: int | None, limit: int
) -> dict[str, Any]:
    """Return the newest messages with a key, between two times."""
    found = store.query(topic, key, begin=begin, end=end, max_messages=limit)
    return {"messages": [row(one) for one in found], "next": None, "cut": False}


def row(message: Message) -> dict[str, Any]:
    """Return a message as a row of a list."""
    return {
        "topic": message.topic,
        "queue": message.queue,
        "offset": message.offset,
        "stored": message.store_timestamp,
        "key": None if message.key is None else cut(message.key),
        "tags": None if message.tags is None else cut(message.tags),
        "body": preview(memoryview(message)),
    }


def detail(message: Message) -> dict[str, Any]:
    """Return all of a message, with as much of its body as a page shows."""
    return row(message) | {
        "position": message.position,
        "size": message.size,
        "message_id": message.message_id,
        "born": message.born_timestamp,
        "born_host": message.born_host,
        "store_host": message.store_host,
        "keys": list(message.keys),
        "properties": message.properties,
        "system_properties": message.system_properties,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "reconsume_times": message.reconsume_times,
        "body": shown(memoryview(message)),
    }


def body_of(store: Store, topic: str, queue: int, offset: int) -> tuple[str, bytes]:
    """Return the name of a file for a body, and the body."""
    message = store.get(topic, queue, offset)
    name = re.sub("[^A-Za-z0-9_-]", "_", topic)[:100]
    return f"{name}-{queue}-{offset}.bin", message.body
