"""The verb commits: lists Spark's commits to a store, and ends those that are stuck.

``list`` and ``show`` read the commit files and the markers in the log, and change neither.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forebay
from forebay import _forebay
from forebay.cli.arguments import UsageError, add_store, number
from forebay.jsons import json_object
from forebay.output import write_json, write_line, write_table

__all__ = ["add"]

_DIRECTORY = "forebay.stages"
_QUERY = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
#: A file of a query in a partition log, which has no folders but those of its partitions.
_FLAT = re.compile(r"forebay\.stages\.([A-Za-z0-9_-]{1,64})\.(.+)", re.ASCII)
_FILE = re.compile(r"(commit|taken|refused)-(\d{1,19})", re.ASCII)
_STATES = {"commit": "pending", "taken": "begun", "refused": "refused"}
#: The largest file that is read; a manifest of many stages takes a few megabytes.
_LEN_MAX = 64 << 20
#: How long to wait for the process that writes the store, in seconds.
_PATIENCE_S = 60.0


def add(verbs: Any) -> None:
    """Add the verb to the parser."""
    text = "list unfinished Spark commits, and end those that cannot finish by themselves"
    parser = verbs.add_parser("commits", help=text, description=text, allow_abbrev=False)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, run, what in (
        ("list", _list, "list commits that are pending, begun or refused"),
        ("show", _show, "show a query's last batch in the log, and its unfinished commits"),
        ("resolve", _resolve, "decide what happens to a batch of which only a part is in the log"),
        ("withdraw", _withdraw, "withdraw a commit of which nothing is in the log"),
    ):
        action = actions.add_parser(name, help=what, description=what, allow_abbrev=False)
        add_store(action)
        if name != "list":
            action.add_argument("query", metavar="QUERY", help="Spark's id of the query")
        if name in ("resolve", "withdraw"):
            action.add_argument("batch", metavar="BATCH", type=number, help="number of the batch")
        else:
            action.add_argument("--json", action="store_true", help="write a JSON document")
        if name == "resolve":
            action.add_argument(
                "--as",
                dest="resolution",
                choices=("appended", "again"),
                required=True,
                help="what happens to the batch; appended: it counts as done, with only the rows "
                "already in the log; again: the next run appends the whole batch, so these rows "
                "are in the log twice",
            )
        action.set_defaults(run=run)


def _list(arguments: argparse.Namespace) -> int:
    _check_store(arguments.store)
    found = list(_commits(arguments.store, None))
    if arguments.json:
        write_json({"commits": found})
    elif found:
        _write(found)
    else:
        write_line("no commit is pending, begun or refused")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    _check_store(arguments.store)
    found = list(_commits(arguments.store, _query(arguments)))
    marker = _last_marker(arguments.store, arguments.query)
    if arguments.json:
        write_json({"last": marker, "commits": found})
        return 0
    if marker is None:
        write_line("the log holds no batch of this query")
    elif marker["part"] == 0:
        write_line(f"batch {marker['batch']} is to be appended again (resolved with --as again)")
    else:
        rows = f", {marker['rows']:,} rows" if isinstance(marker.get("rows"), int) else ""
        write_line(
            f"last in the log: batch {marker['batch']}, part {marker['part']} of "
            f"{marker['parts']}{rows}"
        )
        if marker["part"] < marker["parts"] and not any(one["state"] == "begun" for one in found):
            write_line("no commit will append the other parts: see forebay commits resolve")
    if found:
        _write(found)
    return 0


def _resolve(arguments: argparse.Namespace) -> int:
    _check_store(arguments.store)
    query, batch = _query(arguments), arguments.batch
    own = _forebay.resolve_commit(arguments.store, query, batch, arguments.resolution)
    state, refusal = _process(arguments.store, query, batch)
    if refusal is not None:
        raise ValueError(f"batch {batch} of query {query}: {refusal}")
    if not own:
        raise ValueError(
            f"batch {batch} of query {query} was not resolved: another commit of it was pending "
            f"and is {state}; see forebay commits show {arguments.store} {query}"
        )
    if state != "gone":
        raise ValueError(
            f"the process that writes {arguments.store} has not answered; batch {batch} will be "
            "resolved when it does, or when the store is next opened for writing"
        )
    done = arguments.resolution == "appended"
    outcome = "counts as done" if done else "will be appended in full when it is run again"
    write_line(f"batch {batch} of query {query} {outcome}")
    return 0


def _withdraw(arguments: argparse.Namespace) -> int:
    _check_store(arguments.store)
    query, batch = _query(arguments), arguments.batch
    if not _forebay.withdraw_commit(arguments.store, query, batch):
        state = _forebay.wait_for_commit(arguments.store, query, batch, 0).state
        what = "it has begun and will finish" if state == "begun" else "no such commit is pending"
        raise ValueError(f"batch {batch} of query {query} cannot be withdrawn: {what}")
    write_line(f"batch {batch} of query {query} is withdrawn: nothing of it was appended")
    return 0


def _check_store(store: str) -> None:
    """Raise unless there is a store."""
    forebay.open(store, mode="r").close()


def _query(arguments: argparse.Namespace) -> str:
    if not _QUERY.fullmatch(arguments.query):
        rule = "QUERY must be 1 to 64 of the characters a-z, A-Z, 0-9, _ and -"
        raise UsageError(f"{rule}, got {arguments.query!r}")
    return str(arguments.query)


def _process(store: str, query: str, batch: int) -> tuple[str, str | None]:
    """Have the writer process a commit; return its state, and the reason if it was refused."""
    try:
        with forebay.open(store) as writer:
            _forebay.take_commits(writer)
    except forebay.StoreLockedError:
        pass
    progress = _forebay.wait_for_commit(store, query, batch, _PATIENCE_S)
    return progress.state, progress.reason


def _commits(store: str, query: str | None) -> Iterator[dict[str, Any]]:
    """Yield the commits of one query, or of all, that are not done."""
    for name, files in sorted(_queries(Path(store)).items()):
        if query not in (None, name) or not _QUERY.fullmatch(name):
            continue
        found = [(one, path) for path, text in files if (one := _FILE.fullmatch(text)) is not None]
        for one, path in sorted(found, key=lambda pair: (int(pair[0][2]), pair[0][1])):
            fields = _fields(path)
            if fields is not None:
                facts = {"query": name, "batch": int(one[2]), "state": _STATES[one[1]]}
                yield facts | _known(fields)


def _queries(store: Path) -> dict[str, list[tuple[Path, str]]]:
    """Return the files of each query, with their names: in folders, or flat in a partition log."""
    top = store / _DIRECTORY
    if top.is_dir():
        folders = [folder for folder in top.iterdir() if folder.is_dir()]
        return {it.name: [(it / name, name) for name in os.listdir(it)] for it in folders}
    queries: dict[str, list[tuple[Path, str]]] = {}
    for name in os.listdir(store):
        found = _FLAT.fullmatch(name)
        if found is not None:
            queries.setdefault(found[1], []).append((store / name, found[2]))
    return queries


def _fields(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file; `None` if the file is gone."""
    try:
        if path.is_symlink() or path.stat().st_size > _LEN_MAX:
            return {}
        return json_object(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        return {}


def _known(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a manifest or refusal that are shown."""
    kinds = {"kind": str, "rows": int, "created_ms": int, "reason": str, "appended": bool}
    facts = {name: fields.get(name) for name in kinds if isinstance(fields.get(name), kinds[name])}
    for name in ("stages", "parts"):
        if isinstance(fields.get(name), list):
            facts[name] = len(fields[name])
    return facts


def _last_marker(store: str, query: str) -> dict[str, Any] | None:
    with forebay.open(store, mode="r") as reader:
        # The newest marker need not have the highest batch: an older batch may have been accepted.
        marker = _forebay.last_marker(reader, query)
    return None if marker is None else json_object(marker)


def _write(found: list[dict[str, Any]]) -> None:
    columns = ("query", "batch", "state", "kind", "rows", "parts", "stages")
    write_table(columns, [tuple(str(one.get(name, "")) for name in columns) for one in found])
    for one in found:
        if "reason" in one:
            write_line(f"batch {one['batch']} of {one['query']}: {one['reason']}")
