"""What a notebook shows of a store, a topic, a message and statistics.

Names, keys and bodies come from a disk and may hold anything: every text is escaped here, and the
HTML has no scripts, styles or links.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from forebay.errors import ForebayError
from forebay.output import human, plain

if TYPE_CHECKING:
    from forebay._forebay import Latency, Message, Stats, Store, Topic

__all__ = ["message", "stats", "store", "topic"]

#: How many rows of a table, and bytes of a body, are shown.
_ROWS = 50
_BODY = 1000


def store(shown: Store) -> str:
    """Return a store as HTML: where it is, and its topics."""
    facts: list[tuple[str, object]] = [("path", shown.path), ("mode", shown.mode)]
    if shown.closed:
        return _facts("Store", [*facts, ("state", "closed")])
    topics = [found for _, found in sorted(shown.topics.items())]
    facts += [("engine", shown.engine), ("damaged regions", len(shown.damage))]
    rows = [(found.name, len(found.queues), _messages(found)) for found in topics[:_ROWS]]
    table = _table(("topic", "queues", "messages"), rows, len(topics))
    return _facts("Store", facts) + table


def topic(shown: Topic) -> str:
    """Return a topic as HTML: its queues with their offsets."""
    queues = shown.queues
    facts: list[tuple[str, object]] = [
        ("name", shown.name),
        ("messages", _messages(shown)),
        ("readable", shown.readable),
        ("writable", shown.writable),
    ]
    rows = [(queue.id, queue.min_offset, queue.max_offset) for queue in queues[:_ROWS]]
    table = _table(("queue", "first offset", "next offset"), rows, len(queues))
    return _facts("Topic", facts) + table


def message(shown: Message) -> str:
    """Return a message as HTML: its place, times and properties, and the beginning of its body."""
    facts: list[tuple[str, object]] = [
        ("topic", shown.topic),
        ("queue", shown.queue),
        ("offset", shown.offset),
        ("stored", shown.store_time.isoformat(" ", "milliseconds")),
        ("keys", " ".join(shown.keys)),
        ("tags", shown.tags or ""),
        *((f"property {name}", value) for name, value in shown.properties.items()),
    ]
    try:
        body = shown.body
    except ForebayError as error:
        return _facts("Message", [*facts, ("body", f"cannot be read: {error}")])
    facts.append(("body", f"{len(body):,} bytes"))
    return f"{_facts('Message', facts)}<pre>{_body(body)}</pre>"


def stats(shown: Stats) -> str:
    """Return statistics as HTML."""
    rates = f"{shown.recent_messages_per_second:,.0f} messages/s, "
    rates += f"{human(round(shown.recent_bytes_per_second))}/s"
    facts: list[tuple[str, object]] = [
        ("sent", f"{shown.messages_sent:,} messages, {human(shown.bytes_sent)}"),
        ("recently", rates),
        ("refused", shown.sends_failed),
        ("put latency", _latency(shown.put_latency)),
        ("flushes", shown.flushes),
        ("wait for a flush", _latency(shown.flush_wait)),
        ("not yet durable", human(shown.flush_behind)),
        ("not yet dispatched", human(shown.dispatch_behind)),
        ("log", human(shown.log_bytes)),
        ("free on the disk", "" if shown.disk_free is None else human(shown.disk_free)),
        ("damaged regions", shown.damaged),
    ]
    if shown.writer is not None:
        writer = shown.writer
        facts += [
            (f"sent by process {writer.pid}", f"{writer.messages_sent:,} messages"),
            ("its put latency", _latency(writer.put_latency)),
        ]
    return _facts("Stats", facts)


def _messages(found: Topic) -> int:
    return sum(queue.max_offset - queue.min_offset for queue in found.queues)


def _latency(found: Latency) -> str:
    if found.count == 0:
        return ""
    shown = (("median", found.p50), ("99%", found.p99), ("longest", found.max))
    return ", ".join(f"{name} {value * 1000:.3g} ms" for name, value in shown)


def _body(body: bytes) -> str:
    """Return the beginning of a body: escaped text, or hexadecimal digits if it is not text."""
    more = "..." if len(body) > _BODY else ""
    shown = body[:_BODY]
    # The cut may split a character, and then leaves up to three of its bytes.
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(shown, final=not more)
    except UnicodeDecodeError:
        return shown.hex(" ") + more
    if all(letter.isprintable() or letter in "\n\r\t" for letter in text):
        return escape(text) + more
    return shown.hex(" ") + more


def _facts(title: str, facts: Iterable[tuple[str, object]]) -> str:
    rows = "".join(
        f"<tr><th>{_cell(name)}</th><td>{_cell(value)}</td></tr>" for name, value in facts
    )
    return f"<table><caption>{_cell(title)}</caption><tbody>{rows}</tbody></table>"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]], total: int) -> str:
    titles = "".join(f"<th>{_cell(title)}</th>" for title in head)
    cells = ("".join(f"<td>{_cell(value)}</td>" for value in row) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    more = f"<p>and {total - _ROWS:,} more</p>" if total > _ROWS else ""
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return escape(f"{value:,}" if isinstance(value, int) else plain(str(value)))
