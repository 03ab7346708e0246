"""The verb spark: long jobs over a store, in a Spark session that this process starts.

Spark is imported when a job runs, not for `--help`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import forebay
from forebay.cli.arguments import UsageError, add_store, directory, number
from forebay.cli.inspect import write_findings
from forebay.output import human, write_json, write_line, write_table
from forebay.progress import Bar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from forebay.spark import Audit, Rebuild

__all__ = ["add"]


def add(verbs: Any) -> None:
    """Add the verb to the parser."""
    text = "run a long job over a store with Spark"
    parser = verbs.add_parser("spark", help=text, description=text, allow_abbrev=False)
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True)
    _add_audit(jobs)
    _add_rebuild(jobs)
    _add_export(jobs)
    _add_report(jobs)
    _add_compact(jobs)


def _job(jobs: Any, name: str, text: str, run: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = jobs.add_parser(
        name, help=text, description=text, allow_abbrev=False
    )
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write a JSON document")
    parser.add_argument(
        "--master",
        metavar="URL",
        default="local[*]",
        help="where Spark runs the tasks; the default is all processors of this machine",
    )
    parser.add_argument(
        "--conf",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a Spark option; may be repeated",
    )
    parser.set_defaults(run=run)
    return parser


@contextlib.contextmanager
def _session(arguments: argparse.Namespace) -> Iterator[SparkSession]:
    """Start a quiet session for one job, with this interpreter in the workers."""
    # Java takes seconds to start. A URI is refused by the job.
    if "://" not in arguments.store and not os.path.exists(arguments.store):
        text = f"there is no store at {arguments.store}"
        raise forebay.StoreNotFoundError(text, path=arguments.store)
    pyspark = importlib.import_module("forebay.spark") and importlib.import_module("pyspark.sql")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = pyspark.SparkSession.builder.master(arguments.master)
    builder = builder.appName(f"forebay {arguments.job}")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    if arguments.master.startswith("local"):
        builder = builder.config("spark.ui.enabled", "false")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
        builder = builder.config("spark.driver.host", "127.0.0.1")
    for option in arguments.conf:
        name, equals, value = option.partition("=")
        if not equals or not name:
            raise UsageError(f"--conf must have the form NAME=VALUE, got {option}")
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def _write_pace(done: Audit | Rebuild) -> None:
    rate = human(round(done.log_bytes / max(done.seconds, 1e-9)))
    write_line(f"{done.tasks:,} tasks in {done.seconds:.1f} s, {rate}/s")


def _add_audit(jobs: Any) -> None:
    _job(jobs, "audit", "check every record, queue entry and index entry", _audit)


def _audit(arguments: argparse.Namespace) -> int:
    with _session(arguments) as session, Bar("auditing", "tasks") as progress:
        from forebay.spark import audit

        found = audit(session, arguments.store, progress=progress)
    if arguments.json:
        write_json(found._asdict())
    else:
        write_findings(found)
        _write_pace(found)
    return 0 if found.ok else 1


def _add_rebuild(jobs: Any) -> None:
    text = "rebuild queues and index from the log, in the store or in another directory"
    parser = _job(jobs, "rebuild", text, _rebuild)
    parser.add_argument(
        "--target",
        metavar="DIRECTORY",
        type=directory,
        help="build here and leave the store unchanged",
    )
    parser.add_argument(
        "--no-index",
        action="store_true",
        help="build the queues only; in the store, the index is removed and the next writer "
        "rebuilds it",
    )
    parser.add_argument(
        "--adopt", action="store_true", help="change a store that Forebay did not create"
    )


def _rebuild(arguments: argparse.Namespace) -> int:
    with _session(arguments) as session, Bar("rebuilding", "tasks") as progress:
        from forebay.spark import rebuild

        done = rebuild(
            session,
            arguments.store,
            arguments.target,
            index=not arguments.no_index,
            adopt=arguments.adopt,
            progress=progress,
        )
    if arguments.json:
        write_json(done._asdict())
        return 0
    write_line(
        f"built {done.queue_entries:,} entries of {done.queues:,} queues and "
        f"{done.index_entries:,} entries of {done.index_files:,} index files in {done.target}"
    )
    for start, end in done.holes:
        write_line(f"the log holds no intact record from {start} to {end}")
    _write_pace(done)
    return 0


def _add_export(jobs: Any) -> None:
    text = "write messages sent since the last export to partitioned Parquet"
    parser = _job(jobs, "export", text, _export)
    parser.add_argument(
        "target", metavar="DIRECTORY", type=directory, help="directory for the files"
    )
    parser.add_argument(
        "--topic", metavar="TOPIC", action="append", help="only this topic; may be repeated"
    )
    parser.add_argument(
        "--partition-by",
        metavar="NAME[,NAME...]",
        default="topic,date",
        help="partition columns, from topic, date, hour and queue; the default is topic,date",
    )
    parser.add_argument(
        "--compression",
        choices=("zstd", "snappy", "gzip", "lz4", "none"),
        default="zstd",
        help="compression of the files; the default is zstd",
    )
    parser.add_argument(
        "--skip-lost", action="store_true", help="count lost messages and go on, instead of failing"
    )


def _export(arguments: argparse.Namespace) -> int:
    with _session(arguments) as session, Bar("exporting", "tasks") as progress:
        from forebay.spark import export

        done = export(
            session,
            arguments.store,
            arguments.target,
            topics=arguments.topic,
            partition_by=[name for name in arguments.partition_by.split(",") if name],
            compression=arguments.compression,
            fail_on_data_loss=not arguments.skip_lost,
            progress=progress,
        )
    if arguments.json:
        write_json(done._asdict())
        return 0
    if not done.run:
        write_line("no messages were sent since the last export")
        return 0
    write_line(
        f"run {done.run}: {done.rows:,} messages in {done.files:,} files, {human(done.bytes)}, "
        f"in {done.target}"
    )
    if done.lost or done.removed:
        gone = done.lost + sum(done.removed.values())
        write_line(f"{gone:,} messages were lost")
    write_line(f"{done.tasks:,} tasks in {done.seconds:.1f} s")
    return 0


def _add_report(jobs: Any) -> None:
    text = "count messages by topic, queue, hour and key, and show the lag of groups"
    parser = _job(jobs, "report", text, _report)
    parser.add_argument("--html", metavar="FILE", help="also write an HTML page with plots")
    parser.add_argument(
        "--topic", metavar="TOPIC", action="append", help="only this topic; may be repeated"
    )
    parser.add_argument(
        "--keys",
        metavar="N",
        type=number,
        default=20,
        help="number of keys to list; the default is 20",
    )


def _report(arguments: argparse.Namespace) -> int:
    with _session(arguments) as session, Bar("counting", "tasks") as progress:
        from forebay.spark import report

        found = report(
            session,
            arguments.store,
            arguments.html,
            topics=arguments.topic,
            keys=arguments.keys,
            progress=progress,
        )
    if arguments.json:
        write_json(found._asdict())
        return 0
    for name in ("topics", "queues", "hours", "keys", "lag"):
        rows = getattr(found, name)
        if rows:
            head = [field.replace("_", " ") for field in rows[0]._fields]
            write_table(head, [[_shown(value) for value in row] for row in rows])
            write_line()
    write_line(f"{found.messages:,} messages, {human(found.bytes)}, in {found.seconds:.1f} s")
    if found.html is not None:
        write_line(f"wrote {found.html}")
    return 0


def _shown(value: object) -> object:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return "" if value is None else value


def _add_compact(jobs: Any) -> None:
    text = "copy the newest message of each key to a new store"
    parser = _job(jobs, "compact", text, _compact)
    parser.add_argument(
        "target", metavar="TARGET", type=directory, help="directory of the new store"
    )
    parser.add_argument(
        "--topic", metavar="TOPIC", action="append", help="only this topic; may be repeated"
    )


def _compact(arguments: argparse.Namespace) -> int:
    with _session(arguments) as session, Bar("compacting", "tasks") as progress:
        from forebay.spark import compact

        done = compact(
            session, arguments.store, arguments.target, topics=arguments.topic, progress=progress
        )
    if arguments.json:
        write_json(done._asdict())
        return 0
    write_line(
        f"kept {done.kept:,} of {done.messages:,} messages, {done.without_key:,} of them without a "
        f"key, in {done.target}"
    )
    write_line(f"{human(done.kept_bytes)} of {human(done.log_bytes)}, in {done.seconds:.1f} s")
    return 0
