"""Markers: messages that record which Spark commits a log holds. The newest one decides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from forebay.jsons import json_object

if TYPE_CHECKING:
    from forebay import Message, Store

#: The topic that holds the markers, all in queue 0.
TOPIC = "rmq_sys_forebay_commits"
#: How many of the newest markers to read before using the index: if the index lacked the newest
#: entry, it would return an older marker.
_RECENT = 256


def of_query(store: Store, query: str) -> Iterator[dict[str, Any]]:
    """Yield the fields of a query's markers, newest first, as far back as the index has them."""
    if TOPIC not in store.topics:
        return
    queue = store.topics[TOPIC].queues[0]
    start = max(queue.min_offset, queue.max_offset - _RECENT)
    recent = store.read(TOPIC, 0, start, max_messages=_RECENT).messages
    older = (found for found in store.query(TOPIC, query) if found.offset < start)
    for found in (*reversed(recent), *sorted(older, key=lambda it: it.offset, reverse=True)):
        said = _said(found)
        if said is not None and said["query"] == query:
            yield said


def _said(marker: Message) -> dict[str, Any] | None:
    try:
        said = json_object(marker.body)
    except ValueError:
        return None
    if not isinstance(said.get("query"), str):
        return None
    numbers = (said.get(name) for name in ("batch", "part", "parts"))
    return said if all(isinstance(number, int) for number in numbers) else None
