"""Verbs that inspect a whole store: info, topics, verify."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import forebay
from forebay.archive import ArchiveDamage
from forebay.cli.arguments import add_store
from forebay.output import counted, human, write_json, write_line, write_table
from forebay.progress import Bar

if TYPE_CHECKING:
    from forebay.spark import Audit

__all__ = ["add", "damage_line", "lost_places", "places", "write_findings"]


def add(verbs: Any) -> None:
    """Add the verbs to the parser."""
    for name, run, text in (
        ("info", _info, "show the state of a store: marks, recovery, sizes, damage"),
        ("topics", _topics, "list the topics of a store"),
        ("verify", _verify, "check every record, queue entry, index entry and table"),
    ):
        parser = verbs.add_parser(name, help=text, description=text, allow_abbrev=False)
        add_store(parser)
        parser.add_argument("--json", action="store_true", help="write a JSON document")
        if name == "topics":
            parser.add_argument("--queues", action="store_true", help="one row per queue")
        parser.set_defaults(run=run)


def damage_line(damage: forebay.Damage | ArchiveDamage) -> str:
    """Describe a damaged region and the messages that it cost."""
    line = f"{damage.path} at {damage.position}: {damage.reason}"
    if damage.length:
        line += f" ({damage.length:,} bytes)"
    return line + lost_places(damage.lost)


def lost_places(lost: list[tuple[str, int, int]]) -> str:
    """List lost messages, as the end of a line."""
    if not lost:
        return ""
    named = ", ".join(f"{topic}-{queue}@{offset}" for topic, queue, offset in lost[:8])
    more = f" and {len(lost) - 8:,} more" if len(lost) > 8 else ""
    return f"; lost: {named}{more}"


def places(damage: Sequence[forebay.Damage]) -> str:
    """Return the number of damaged regions, in words."""
    return counted(len(damage), "damaged region")


def _info(arguments: argparse.Namespace) -> int:
    with forebay.open(arguments.store, mode="r") as store:
        topics = store.topics.values()
        messages = sum(_messages(topic) for topic in topics)
        facts = {
            "path": store.path,
            "engine": store.engine,
            "topics": len(topics),
            "queues": sum(len(topic.queues) for topic in topics),
            "messages": messages,
            "marks": _marks(store.stats()),
            "recovery": store.recovery._asdict(),
            "damage": [damage._asdict() for damage in store.damage],
            "sizes": _sizes(arguments.store),
        }
        if arguments.json:
            write_json(facts)
        else:
            _write_info(facts, store.damage)
    return 0


def _marks(stats: forebay.Stats) -> dict[str, int]:
    names = ("min_position", "durable", "dispatched", "published")
    return {name: getattr(stats, name) for name in names}


def _write_info(facts: dict[str, Any], damage: list[forebay.Damage]) -> None:
    found, marks = facts["recovery"], facts["marks"]
    topics, queues = counted(facts["topics"], "topic"), counted(facts["queues"], "queue")
    held = f"{facts['messages']:,} in {topics} of {queues}"
    unclean = "uncleanly: a writer is still running, or did not close the store"
    ended = "cleanly" if found["clean"] else unclean
    checked = counted(found["records_checked"], "record")
    opened = f"in {found['elapsed'] * 1000:.1f} ms; {checked} checked"
    lines = [
        ("path", facts["path"]),
        ("engine", facts["engine"]),
        ("messages", held),
        ("log", f"from {marks['min_position']:,} to {marks['published']:,}"),
        ("durable to", f"{marks['durable']:,}"),
        ("queues built to", f"{marks['dispatched']:,}"),
        ("ended", ended),
        ("opened", opened),
    ]
    for name, what in (
        ("truncated_bytes", "bytes after the valid end"),
        ("queue_entries_rebuilt", "queue entries rebuilt"),
        ("index_entries_rebuilt", "index entries rebuilt"),
        ("stale_checksums", "copied messages with the checksum of their original"),
    ):
        if found[name]:
            lines.append(("found", f"{found[name]:,} {what}"))
    lines.append(("damage", places(damage) if damage else "none"))
    for name, value in lines:
        write_line(f"{name + ':':<17}{value}")
    for place in damage:
        write_line(f"  {damage_line(place)}")
    write_line()
    rows = [
        (row["name"], row["files"], human(row["bytes"]), human(row["allocated"]))
        for row in facts["sizes"]
    ]
    write_table(("folder", "files", "length", "on disk"), rows)


def _sizes(root: str) -> list[dict[str, Any]]:
    """Return file lengths and allocated bytes by folder; they differ, as most files are sparse."""
    rows: dict[str, dict[str, Any]] = {}
    for folder, _folders, files in os.walk(root):
        top = os.path.relpath(folder, root).split(os.sep)[0]
        for name in files:
            try:
                found = os.lstat(os.path.join(folder, name))
            except FileNotFoundError:
                # A writer may retire the file meanwhile.
                continue
            row = rows.setdefault(top, {"name": top, "files": 0, "bytes": 0, "allocated": 0})
            row["files"] += 1
            row["bytes"] += found.st_size
            row["allocated"] += found.st_blocks * 512
    return [rows[name] for name in sorted(rows)]


def _messages(topic: forebay.Topic) -> int:
    return sum(queue.max_offset - queue.min_offset for queue in topic.queues)


def _topics(arguments: argparse.Namespace) -> int:
    with forebay.open(arguments.store, mode="r") as store:
        # A topic asks its store for offsets, so it must be used while the store is open.
        _write_topics([topic for _, topic in sorted(store.topics.items())], arguments)
    return 0


def _write_topics(topics: list[forebay.Topic], arguments: argparse.Namespace) -> None:
    if arguments.json:
        write_json([_topic(topic) for topic in topics])
    elif arguments.queues:
        rows = [
            (topic.name, queue.id, queue.min_offset, queue.max_offset)
            for topic in topics
            for queue in topic.queues
        ]
        write_table(("topic", "queue", "min offset", "max offset"), rows)
    else:
        totals = [
            (topic.name, len(topic.queues), _messages(topic), topic.readable, topic.writable)
            for topic in topics
        ]
        write_table(("topic", "queues", "messages", "readable", "writable"), totals)


def _topic(topic: forebay.Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "messages": _messages(topic),
        "read_queues": topic.read_queues,
        "write_queues": topic.write_queues,
        "readable": topic.readable,
        "writable": topic.writable,
        "queues": [
            {"id": queue.id, "min_offset": queue.min_offset, "max_offset": queue.max_offset}
            for queue in topic.queues
        ],
    }


def _verify(arguments: argparse.Namespace) -> int:
    with forebay.open(arguments.store, mode="r") as store, Bar("verifying", "bytes") as progress:
        report = store.verify(progress)
    if arguments.json:
        names = ("ok", "records", "queue_entries", "index_entries", "stale_checksums")
        facts = {name: getattr(report, name) for name in names}
        write_json(facts | {"damage": [place._asdict() for place in report.damage]})
    else:
        write_findings(report)
    return 0 if report.ok else 1


def write_findings(found: forebay.Verification | Audit) -> None:
    """Write the findings of a check."""
    for place in found.damage:
        write_line(damage_line(place))
    whole = counted(found.records, "record")
    # A partition log has neither.
    if found.queue_entries or found.index_entries:
        queues = counted(found.queue_entries, "queue entry", "queue entries")
        index = counted(found.index_entries, "index entry", "index entries")
        whole += f", {queues} and {index} are intact"
    else:
        whole += " is intact" if found.records == 1 else " are intact"
    if found.stale_checksums:
        whole += f"; {found.stale_checksums:,} copied messages carry the checksum of their original"
    write_line(whole if found.ok else f"{places(found.damage)}; {whole}")
