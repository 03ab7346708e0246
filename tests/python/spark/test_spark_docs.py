"""The Spark pages: the tutorial runs as written, and every option is documented."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet
import pytest
from pages import curled
from pyspark.errors import PySparkException
from sparks import run_program

import forebay
import forebay.spark
from forebay.spark.options import _NAMES, _STREAM_NAMES
from forebay.spark.write import NAMES as _WRITE_NAMES

DOCS = Path(__file__).parents[3] / "docs"

#: The options of Spark's Kafka connector, for reading.
KAFKA = """
kafka.bootstrap.servers kafka.group.id assign subscribe subscribePattern startingTimestamp
startingOffsetsByTimestamp startingOffsets endingTimestamp endingOffsetsByTimestamp endingOffsets
startingOffsetsByTimestampStrategy failOnDataLoss kafkaConsumer.pollTimeoutMs
fetchOffset.numRetries fetchOffset.retryIntervalMs maxOffsetsPerTrigger minOffsetsPerTrigger
maxTriggerDelay minPartitions maxRecordsPerPartition groupIdPrefix includeHeaders
"""

SERVE = 'ThreadingHTTPServer(("127.0.0.1", 8000), Capture).serve_forever()\n'
#: The same, at a free port.
SERVE_ANYWHERE = """
server = ThreadingHTTPServer(("127.0.0.1", 0), Capture)
print(server.server_port, flush=True)
server.serve_forever()
"""
TRIGGER = '.trigger(processingTime="10 seconds")'
#: The tutorial's nightly job, and the end of its endless program.
NOW = ".trigger(availableNow=True)"
END = "\nfor active in spark.streams.active:\n    active.processAllAvailable()\nspark.stop()\n"


#: The interpreter of the tutorial: `make test-spark-extra` gives that of an empty environment.
PYTHON = os.environ.get("FOREBAY_TUTORIAL", sys.executable)


def blocks(page: str, language: str) -> list[str]:
    """Return the code blocks of a page."""
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def once(text: str, old: str, new: str) -> str:
    """Replace a text that must be there."""
    assert text.count(old) == 1, old
    return text.replace(old, new)


@contextmanager
def service(code: str, folder: Path) -> Iterator[str]:
    """Run the tutorial's service, and yield its address."""
    command = [PYTHON, "-c", once(code, SERVE, SERVE_ANYWHERE)]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=folder, text=True, **quiet) as running:
        try:
            assert running.stdout is not None
            yield f"http://127.0.0.1:{running.stdout.readline().strip()}/"
        finally:
            running.terminate()


def test_the_tutorial_runs_as_written(tmp_path: Path) -> None:
    capture, stream, back = blocks("spark-tutorial.md", "python")
    (look,) = (line for line in blocks("spark-tutorial.md", "sh")[0].splitlines() if "tail" in line)
    sent = [("42", "look"), ("42", "buy"), ("7", "look")]
    environment = os.environ | {
        "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false --driver-memory 768m pyspark-shell"
    }
    # Another environment has a Spark of its own.
    if sys.executable != PYTHON:
        environment.pop("SPARK_HOME", None)
    with service(capture, tmp_path) as address:
        curled("spark-tutorial.md", address.rstrip("/"))
        for user, page in sent[1:]:
            headers = {"X-User": user}
            request = urllib.request.Request(address, page.encode(), headers, method="POST")
            with urllib.request.urlopen(request) as answer:
                assert answer.status == 204
        words = [PYTHON, "-m", *look.split()]
        tail = subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, text=True)
        assert tail.stdout.count("look") == 2
        program = once(stream, TRIGGER, NOW) + back + END
        run_program(program, python=PYTHON, cwd=tmp_path, env=environment)
    table = pyarrow.parquet.read_table(tmp_path / "clicks.parquet")
    assert table.column_names == ["user", "page", "timestamp"]
    assert sorted(zip(*(table[name].to_pylist() for name in ("user", "page")), strict=True)) == (
        sorted(sent)
    )
    with forebay.open(tmp_path / "purchases", mode="r") as store:
        bought = [(m.key, m.body) for m in store.tail("purchases", "earliest", False)]
    assert bought == [("42", b"buy")]


def test_the_kafka_page_is_right_about_writing_and_views(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "events")
    row = {"key": b"\xff", "value": None, "topic": "orders", "partition": 1, "offset": 7}
    schema = "key binary, value binary, topic string, partition int, offset bigint"
    kafka = spark.createDataFrame([row], schema)
    names = {"spark": spark, "kafka": kafka, "orders": kafka.drop("offset")}
    code = blocks("spark-kafka.md", "python")
    both, written, copied, selected = code
    view, query = (part for part in blocks("spark-kafka.md", "sql")[0].split(";") if part.strip())
    view = once(view, "/data/events", path)
    exec(once(written, "/data/events", path), names)
    spark.sql(view)
    counted = spark.sql(query)
    assert [tuple(found) for found in counted.collect()] == [(1, 1)]
    exec(once(copied, "/data/events", path), names)
    # The view stays as planned until it is created again.
    assert [tuple(found) for found in spark.sql(query).collect()] == [(1, 1)]
    spark.sql(view)
    assert [tuple(found) for found in spark.sql(query).collect()] == [(1, 2)]
    exec(once(selected, "/data/events", path), names)
    read = spark.read.format("forebay").option("subscribe", "orders").load(path)
    assert {(found.key, found.value) for found in read.collect()} == {(b"\xff", None)}
    # Of the first block, the half that needs no broker.
    exec("forebay = " + once(both, "/data/events", path).partition("forebay = ")[2], names)
    assert (
        names["forebay"].columns
        == names["forebay"]
        .select("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
        .columns
    )
    assert names["forebay"].count() == 2
    with pytest.raises(PySparkException):
        spark.sql(view.replace("OR REPLACE TEMPORARY VIEW orders", "TABLE orders_table"))
    # Without a mode it is Spark that raises this.
    with pytest.raises(PySparkException, match='use either the "Append"'):
        kafka.drop("offset").write.format("forebay").save(path)


class Reader:
    """Stands for a reader of Spark: the connector, and a broker, are not here."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.options: dict[str, str] = {}
        self.loaded: tuple[str, ...] = ()

    def option(self, name: str, value: str) -> Reader:
        self.options[name] = value
        return self

    def load(self, *path: str) -> Reader:
        self.loaded = path
        return self


def test_the_job_that_read_kafka_changes_its_format_and_its_address_alone() -> None:
    reads = SimpleNamespace(read=SimpleNamespace(format=Reader))
    names: dict[str, Any] = {"spark": reads}
    exec(blocks("spark-kafka.md", "python")[0], names)
    kafka, ours = names["kafka"], names["forebay"]
    assert set(kafka.options) <= set(KAFKA.split())
    assert (kafka.name, kafka.loaded) == ("kafka", ())
    assert (ours.name, ours.loaded) == ("forebay", ("/data/events",))
    assert kafka.options == ours.options | {"kafka.bootstrap.servers": "broker:9092"}


@pytest.mark.parametrize(
    ("page", "names"),
    [("spark.md", [*_NAMES, *_STREAM_NAMES, *_WRITE_NAMES]), ("spark-kafka.md", KAFKA.split())],
)
def test_every_option_is_documented_on_its_page(page: str, names: list[str]) -> None:
    named = {
        name
        for line in (DOCS / page).read_text().splitlines()
        for name in re.findall(r"`([\w.]+)`", line)
    }
    assert [name for name in names if name not in named] == []


def placed(code: str, folder: Path) -> str:
    """Return a block with its paths in a folder: Spark's processes have another directory."""
    names = r"/[\w*/]+|events|copy|lake|caches|newest|events\.html|checkpoint|other-events"
    code = re.sub(rf'"/?({names})"', lambda found: f'"{folder / found[1].lstrip("/")}"', code)
    # A checkpoint that the page leaves open, and a table that has the name of the topic.
    code = code.replace('"..."', f'"{folder / uuid.uuid4().hex}"')
    return code.replace('.start("orders")', f'.start("{folder / "orders"}")')


def run_block(code: str, folder: Path, names: dict[str, Any]) -> None:
    """Run a block of a page; what it has begun to stream ends with it."""
    exec(placed(code, folder), names)
    for query in names["spark"].streams.active:
        query.stop()


def check_files(shown: list[str], folder: Path) -> None:
    """Check that an export has made the files that the page shows, and no others."""
    (text,) = shown
    names = [line.split()[0] for line in text.splitlines()]
    (top,) = {name.partition("/")[0] for name in names}
    made = [str(it.relative_to(folder)) for it in (folder / top).rglob("*") if it.is_file()]
    # The page has another day, words for numbers, and one topic.
    changes = r"<\w+>|\d{4}-\d\d-\d\d|(?<=topic=)\w+"
    forms = [re.sub(changes, r"[\\w-]+", name) for name in names]
    assert [name for name in made if not any(re.fullmatch(form, name) for form in forms)] == []
    assert [form for form in forms if not any(re.fullmatch(form, name) for name in made)] == []


def test_the_blocks_of_the_pages_of_spark_and_of_jobs_run(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in ("events", "data/a/events", "archive/2026/events"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        with forebay.open(tmp_path / path, commitlog_file_size=1 << 20) as store:
            store.send("orders", b"3 apples", key="42", tags="paid")
    frame = spark.createDataFrame([("43", "4 pears")], "key string, value string")
    names = {"spark": spark, "frame": frame}
    (block,) = (code for code in blocks("../README.md", "python") if "forebay.spark" in code)
    run_block(block, tmp_path, names)
    for code in blocks("spark.md", "python"):
        run_block(code, tmp_path, names)
    names["copy"](frame.selectExpr("key", "value"), 0)
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert "[34 32]" in capsys.readouterr().out
    for code in blocks("spark-jobs.md", "python"):
        run_block(code, tmp_path, names)
        if "spark.export" in code:
            check_files(blocks("spark-jobs.md", "text"), tmp_path)
    assert (tmp_path / "events.html").exists()
    with forebay.open(tmp_path / "newest", mode="r") as store:
        bodies = {message.body for message in store.tail("orders", "earliest", False)}
    assert bodies == {b"3 apples", b"4 pears"}


def test_the_examples_of_the_docstrings_run(spark: Any, tmp_path: Path) -> None:
    """Elsewhere they are skipped, since they need a session; their figures are of bigger stores."""
    with forebay.open(tmp_path / "events", commitlog_file_size=1 << 20) as store:
        store.send("orders", b"3 apples", key="42")
    ran = []
    for name in forebay.spark.__all__:
        text = getattr(forebay.spark, name).__doc__ or ""
        for example in doctest.DocTestParser().get_examples(text):
            exec(placed(example.source, tmp_path), {"spark": spark, "forebay": forebay})
            ran.append(name)
    assert ran == ["audit", "compact", "export", "rebuild", "register", "report"]
