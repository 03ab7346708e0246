"""The verb repair: saves damaged bytes, and repairs what can be repaired."""

from __future__ import annotations

import argparse
from typing import Any

import forebay
from forebay.cli.arguments import add_store
from forebay.cli.inspect import damage_line, lost_places, places
from forebay.output import counted, write_json, write_line
from forebay.progress import Bar

__all__ = ["add"]


def add(verbs: Any) -> None:
    """Add the verb to the parser."""
    text = "save damaged bytes beside the log, and repair what can be repaired"
    parser = verbs.add_parser("repair", help=text, description=text, allow_abbrev=False)
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write a JSON document")
    parser.add_argument(
        "--adopt", action="store_true", help="repair a directory that Forebay did not create"
    )
    parser.set_defaults(run=_repair)


def _repair(arguments: argparse.Namespace) -> int:
    # Verify read-only first: opening for writing would create a missing store, and itself repairs
    # queues and index before their damage could be reported.
    with forebay.open(arguments.store, mode="r") as store, Bar("verifying", "bytes") as progress:
        before = store.verify(progress)
    with forebay.open(arguments.store, adopt=arguments.adopt) as store:
        with Bar("repairing", "bytes") as progress:
            repair = store.repair(progress)
        # Queues are opened, and rebuilt from the log, when the repair uses them.
        recovery = store.recovery
    if arguments.json:
        facts = {"ok": repair.ok, "recovery": recovery._asdict()}
        facts["found"] = [damage._asdict() for damage in before.damage]
        facts["steps"] = [step._asdict() for step in repair.steps]
        facts["left"] = [damage._asdict() for damage in repair.left]
        write_json(facts)
        return 0 if repair.ok else 1
    for damage in before.damage:
        write_line(f"found: {damage_line(damage)}")
    for name, count in (
        ("queue", recovery.queue_entries_rebuilt),
        ("index", recovery.index_entries_rebuilt),
    ):
        if count and before.damage:
            rebuilt = counted(count, f"{name} entry", f"{name} entries")
            write_line(f"opening: {rebuilt} rebuilt")
    for step in repair.steps:
        write_line(f"repaired: {_step_line(step)}")
    for damage in repair.left:
        write_line(f"left: {damage_line(damage)}")
    if repair.left:
        write_line(f"could not repair {places(repair.left)}")
    else:
        write_line("all damage is repaired" if before.damage else "nothing is damaged")
    return 0 if repair.ok else 1


def _step_line(step: forebay.RepairStep) -> str:
    line = f"{step.path} at {step.position}: {step.what}"
    if step.length:
        line += f" ({counted(step.length, 'byte')})"
    if step.saved is not None:
        line += f"; saved as {step.saved}"
    return line + lost_places(step.lost)
