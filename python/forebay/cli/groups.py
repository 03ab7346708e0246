"""The verbs groups and reset-offsets: how far groups of consumers are, and where they continue."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import Any

import forebay
from forebay.cli.arguments import TIME, UsageError, add_store, bound, open_existing, unknown
from forebay.output import ago, human, lasting, write_json, write_line, write_table

__all__ = ["add"]


def add(verbs: Any) -> None:
    """Add the verbs to the parser."""
    text = "list the groups of consumers, with the lag of each in each queue"
    groups = verbs.add_parser("groups", help=text, description=text, allow_abbrev=False)
    add_store(groups)
    groups.add_argument("--json", action="store_true", help="write a JSON document")
    groups.set_defaults(run=_groups)

    text = "set where a group continues in a topic"
    reset = verbs.add_parser("reset-offsets", help=text, description=text, allow_abbrev=False)
    add_store(reset)
    reset.add_argument("group", metavar="GROUP")
    reset.add_argument("topic", metavar="TOPIC")
    where = f"earliest, latest, {TIME}, or QUEUE=OFFSET[,QUEUE=OFFSET...]"
    reset.add_argument("--to", metavar="WHERE", type=bound, required=True, help=where)
    reset.add_argument(
        "--create", action="store_true", help="allow a group that has consumed nothing yet"
    )
    reset.add_argument(
        "--adopt", action="store_true", help="write to a directory that Forebay did not create"
    )
    reset.add_argument("--json", action="store_true", help="write a JSON document")
    reset.set_defaults(run=_reset)


def _groups(arguments: argparse.Namespace) -> int:
    with forebay.open(arguments.store, mode="r") as store:
        queues = [queue for _, found in sorted(store.groups.items()) for queue in found]
    if arguments.json:
        write_json([queue._asdict() for queue in queues])
    elif queues:
        known = (it for one in queues for it in (one.owner_pid, one.progress_timestamp))
        shares = any(it is not None for it in known)
        head = (
            *("group", "topic", "queue", "committed", "end", "lag", "bytes", "waiting for"),
            *(("consumer", "process", "unsettled", "retries", "moved") if shares else ()),
        )
        rows = [
            (
                *(one.group, one.topic, one.queue, one.committed, one.max_offset),
                *(one.lag, human(one.lag_bytes), lasting(one.lag_seconds) if one.lag else ""),
                *(_live(one) if shares else ()),
            )
            for one in queues
        ]
        write_table(head, rows)
    else:
        write_line("no group has consumed anything")
    return 0


def _live(queue: forebay.GroupQueue) -> tuple[object, ...]:
    """Return the facts of a queue that only the processes that share the store know."""
    moved = queue.progress_timestamp
    return (
        *(queue.owner or "", str(queue.owner_pid or ""), queue.unsettled, queue.retries),
        "" if moved is None else ago(datetime.fromtimestamp(moved / 1000, UTC)),
    )


def _reset(arguments: argparse.Namespace) -> int:
    group, topic, where = arguments.group, arguments.topic, arguments.to
    if isinstance(where, int):
        raise UsageError(f"{where} may be an offset or a time: write QUEUE={where}")
    with open_existing(arguments.store, adopt=arguments.adopt) as store:
        if topic not in store.topics:
            raise forebay.UnknownTopicError(unknown("topic", topic, store.topics), topic=topic)
        known = store.groups
        if group not in known and not arguments.create:
            raise ValueError(unknown("group", group, known) + " (--create allows a new group)")
        before = {one.queue: one.committed for one in _of_topic(store, group, topic)}
        store.reset_offsets(group, topic, where)
        after = _of_topic(store, group, topic)
    if arguments.json:
        queues = {
            str(one.queue): {"before": before.get(one.queue), "after": one.committed}
            for one in after
        }
        write_json({"group": group, "topic": topic, "queues": queues})
    else:
        rows = [(one.queue, before.get(one.queue, "none"), one.committed, one.lag) for one in after]
        write_table(("queue", "before", "after", "lag"), rows)
    return 0


def _of_topic(store: forebay.Store, group: str, topic: str) -> list[forebay.GroupQueue]:
    return [one for one in store.groups.get(group, []) if one.topic == topic]
