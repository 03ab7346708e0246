"""The verb doctor: reports settings of the machine that do not suit a store."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from forebay.cli.arguments import directory
from forebay.cli.checks import OK, WARNING, Check, examine
from forebay.cli.machine import Machine
from forebay.output import write_json, write_line, write_table

__all__ = ["add"]


def add(verbs: Any) -> None:
    """Add the verb to the parser."""
    text = "check the settings of the machine, and of a path's file system, that matter to a store"
    parser = verbs.add_parser("doctor", help=text, description=text, allow_abbrev=False)
    parser.add_argument(
        "path",
        metavar="PATH",
        type=directory,
        nargs="?",
        default=".",
        help="directory of the store, which need not exist; the default is the current one",
    )
    parser.add_argument(
        "--lock-memory",
        action="store_true",
        help="also check the limit that the option lock_memory of a store needs",
    )
    parser.add_argument("--json", action="store_true", help="write a JSON document")
    parser.set_defaults(run=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    checks = examine(arguments.path, Machine(), lock_memory=arguments.lock_memory)
    if arguments.json:
        write_json({"path": arguments.path, "checks": [asdict(check) for check in checks]})
    else:
        _write(checks)
    return status(checks)


def status(checks: list[Check]) -> int:
    """Return 1 if messages that were reported durable may be lost, else 0."""
    return int(any(check.verdict == WARNING for check in checks))


def _write(checks: list[Check]) -> None:
    rows = [(check.name, check.value, check.verdict) for check in checks]
    write_table(("check", "found", "verdict"), rows)
    noted = [check for check in checks if check.verdict != OK and check.value]
    if noted:
        write_line()
    for check in noted:
        write_line(f"{check.verdict}: {check.name}: {check.advice}")
