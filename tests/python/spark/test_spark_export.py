"""The job `export`: every message exactly once, whatever was interrupted and when."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet
import pytest

import forebay
from forebay.spark import export

#: The module; in the package its name refers to the function.
module = sys.modules["forebay.spark.jobs.export"]

#: Runs exports without Spark, one after another, until it is killed.
EXPORTER = """
import sys
import forebay.spark.jobs
module = sys.modules["forebay.spark.jobs.export"]
module.run = lambda spark, tasks, work, progress: [work(task) for task in tasks]
module.tasks_at_once = lambda spark: 3
while True:
    module.export(None, sys.argv[1], sys.argv[2], partition_by=["topic", "queue"])
    print("done", flush=True)
"""


class KilledError(BaseException):
    """Stands for the death of a process: no code catches it."""


def send(path: Path, first: int, count: int) -> None:
    with forebay.open(path, commitlog_file_size=1 << 20) as store:
        for number in range(first, first + count):
            topic = ("orders", "b|lls%", "one")[number % 3]
            store.send(topic, b"body %d" % number, key=f"k{number}", queue=number % 2)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a closed store with 300 messages."""
    path = tmp_path / "store"
    send(path, 0, 300)
    return path


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return an export that runs its tasks in this process, one after another."""
    monkeypatch.setattr(module, "run", lambda _spark, tasks, work, _told: [work(t) for t in tasks])
    monkeypatch.setattr(module, "tasks_at_once", lambda _spark: 3)

    def run(*arguments: Any, **options: Any) -> Any:
        return export(None, *arguments, **options)  # type: ignore[arg-type]

    return run


def visible(target: Path) -> list[tuple[str, bytes]]:
    """Return topic and body of every message that readers see."""
    found = []
    for path in target.rglob("*.parquet"):
        folders = path.relative_to(target).parts
        if any(name.startswith(("_", ".")) for name in folders):
            continue
        topic = next(unquote(name[6:]) for name in folders if name.startswith("topic="))
        bodies = pyarrow.parquet.ParquetFile(path).read(["body"]).column("body").to_pylist()
        found += [(topic, body) for body in bodies]
    return sorted(found)


def sent(count: int) -> list[tuple[str, bytes]]:
    topics = ("orders", "b|lls%", "one")
    return sorted((topics[number % 3], b"body %d" % number) for number in range(count))


def test_spark_reads_what_it_exported(spark: Any, store: Path, tmp_path: Path) -> None:
    target = tmp_path / "lake"
    done = export(spark, store, target)
    assert (done.run, done.rows, done.lost) == (1, 300, 0)
    frame = spark.read.parquet(str(target))
    rows = frame.select("topic", "body", "queue", "offset", "date").collect()
    assert sorted((row.topic, bytes(row.body)) for row in rows) == sent(300)
    days = {str(row.date) for row in rows}
    with forebay.open(store, mode="r") as opened:
        stored = [message.store_timestamp for message in opened.tail("one", "earliest", False)]
    assert {str(datetime.fromtimestamp(time / 1000, UTC).date()) for time in stored} <= days
    assert len({(row.topic, row.queue, row.offset) for row in rows}) == 300
    send(store, 300, 60)
    again = export(spark, store, target)
    assert (again.run, again.rows) == (2, 60)
    assert spark.read.parquet(str(target)).count() == 360
    nothing = export(spark, store, target)
    assert (nothing.run, nothing.rows, nothing.tasks) == (0, 0, 0)


def test_a_run_that_dies_at_any_step_leaves_every_message_once(
    alone: Callable[..., Any], store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run dies once at each call that changes the target; the next run continues."""
    target = tmp_path / "lake"

    def of_one(count: int) -> list[tuple[str, bytes]]:
        return [message for message in sent(count) if message[0] == "one"]

    count, step, deaths = 300, 0, 0
    while True:
        step += 1
        calls = 0

        def deadly(real: Callable[..., Any], last: int) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == last:
                    raise KilledError
                return real(*arguments, **options)

            return call

        before = visible(target) if target.exists() else []
        with monkeypatch.context() as patch:
            for where, name in (
                (os, "replace"),
                (os, "fsync"),
                (os, "makedirs"),
                (shutil, "rmtree"),
            ):
                patch.setattr(where, name, deadly(getattr(where, name), step))
            try:
                alone(store, target, topics=["one"])
                died = False
            except KilledError:
                died = True
                deaths += 1
        found = visible(target)
        # Nothing twice, nothing that was not sent, and nothing taken back.
        assert len(set(found)) == len(found)
        assert set(before) <= set(found) <= set(of_one(count))
        if not died:
            break
        # One run survives between two deaths, so that every step is once the first after a send.
        alone(store, target, topics=["one"])
        assert visible(target) == of_one(count)
        send(store, count, 6)
        count += 6
    assert visible(target) == of_one(count)
    assert deaths > 10
    assert not [name for name in os.listdir(target / "_forebay") if name.endswith(".tmp")]


def test_exporters_that_are_killed_leave_every_message_once(store: Path, tmp_path: Path) -> None:
    target, chosen = tmp_path / "lake", random.Random(5)
    count = 300
    command = [sys.executable, "-c", EXPORTER, str(store), str(target)]
    for _ in range(4):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            # Once it works, kill it at any moment; meanwhile it exports what is sent here.
            assert child.stdout is not None
            assert child.stdout.readline() == b"done\n"
            with forebay.open(store) as writer:
                for number in range(count, count + chosen.randrange(200, 2000)):
                    topic = ("orders", "b|lls%", "one")[number % 3]
                    writer.send(topic, b"body %d" % number, key="k", queue=number % 2)
                    count += 1
                child.kill()
            child.wait()
        found = visible(target)
        assert len(set(found)) == len(found)
        assert set(found) <= set(sent(count))
    program = EXPORTER.replace("while True", "for _ in range(1)")
    command = [sys.executable, "-c", program, str(store), str(target)]
    subprocess.run(command, check=True, stdout=subprocess.PIPE)
    assert visible(target) == sent(count)


def test_a_spark_driver_that_is_killed_leaves_every_message_once(
    store: Path, tmp_path: Path
) -> None:
    target = tmp_path / "lake"
    send(store, 300, 20_000)
    command = [sys.executable, "-m", "forebay", "spark", "export", str(store), str(target)]
    command += ["--master", "local[2]"]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL) as child:
        staging = target / "_forebay" / "00000001.tmp"
        while child.poll() is None and not staging.exists():
            time.sleep(0.01)
        # Kill the driver, its JVM and the workers.
        os.killpg(child.pid, signal.SIGKILL)
    assert set(visible(target)) <= set(sent(20_300))
    done = subprocess.run([*command, "--json"], check=True, stdout=subprocess.PIPE)
    assert json.loads(done.stdout)["run"] in (1, 2, 0)
    assert visible(target) == sent(20_300)


def test_what_is_not_durable_is_not_exported(alone: Callable[..., Any], tmp_path: Path) -> None:
    path, target = tmp_path / "store", tmp_path / "lake"
    options = {"flush_interval": 3600.0, "flush_thorough_interval": 3600.0}
    with forebay.open(path, commitlog_file_size=1 << 20, **options) as store:
        for number in range(30):
            store.send("orders", b"durable %d" % number, queue=number % 2)
        store.flush()
        for number in range(30):
            store.send("orders", b"not yet %d" % number, queue=number % 3)
        store.get("orders", 2, 9)
        assert alone(path, target).rows == 30
        assert all(body.startswith(b"durable") for _, body in visible(target))
        store.flush()
        assert alone(path, target).rows == 30
    assert len(visible(target)) == 60


def test_topics_and_partitions(alone: Callable[..., Any], store: Path, tmp_path: Path) -> None:
    target = tmp_path / "lake"
    partitions = ["date", "hour", "topic", "queue"]
    assert alone(store, target, topics=["one"], partition_by=partitions).rows == 100
    assert alone(store, target, partition_by=partitions).rows == 200
    assert visible(target) == sent(300)
    folders = {path.parent.relative_to(target).parts for path in target.rglob("*=*/*.parquet")}
    assert {tuple(part.split("=")[0] for part in folder) for folder in folders} == {
        ("date", "hour", "topic", "queue")
    }
    with pytest.raises(forebay.InvalidOptionError):
        alone(store, target)
    with pytest.raises(forebay.InvalidOptionError):
        alone(store, tmp_path / "other", partition_by=["colour"])
    with pytest.raises(forebay.UnknownTopicError):
        alone(store, tmp_path / "other", topics=["nothing"])


def test_another_log_is_noticed(alone: Callable[..., Any], store: Path, tmp_path: Path) -> None:
    target = tmp_path / "lake"
    alone(store, target)
    shutil.rmtree(store)
    send(store, 0, 30)
    with pytest.raises(forebay.CorruptError, match="the log was cut"):
        alone(store, target)
    with forebay.open(store) as opened:
        for number in range(600):
            opened.send(("orders", "b|lls%", "one")[number % 3], b"other, longer", queue=number % 2)
    with pytest.raises(forebay.CorruptError, match="is not the one"):
        alone(store, target)


def test_lost_messages_fail_a_run_or_are_counted(
    alone: Callable[..., Any], store: Path, tmp_path: Path
) -> None:
    with forebay.open(store, mode="r") as opened:
        position = opened.get("orders", 0, 20).position
    log = store / "commitlog" / f"{0:020}"
    with log.open("r+b") as file:
        file.seek(position + 100)
        file.write(b"\xff")
    with pytest.raises(forebay.CorruptError):
        alone(store, tmp_path / "lake")
    done = alone(store, tmp_path / "lake", fail_on_data_loss=False)
    assert (done.rows, done.lost) == (299, 1)
    assert alone(store, tmp_path / "lake", fail_on_data_loss=False).run == 0


def test_one_export_at_a_time(alone: Callable[..., Any], store: Path, tmp_path: Path) -> None:
    target = tmp_path / "lake"
    holder = (
        "import fcntl, sys; file = open(sys.argv[1], 'ab'); fcntl.flock(file, fcntl.LOCK_EX);"
        "print('held', flush=True); sys.stdin.read()"
    )
    (target / "_forebay").mkdir(parents=True)
    command = [sys.executable, "-c", holder, str(target / "_forebay" / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(BlockingIOError):
            alone(store, target)
        child.kill()
    assert alone(store, target).rows == 300


def test_one_export_at_a_time_in_one_process(
    alone: Callable[..., Any], store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Start another export, as another thread would, while the tasks of the first run."""
    target, refused = tmp_path / "lake", []

    def run(_spark: Any, tasks: list[Any], work: Callable[[Any], Any], _told: Any) -> list[Any]:
        with pytest.raises(BlockingIOError) as caught:
            alone(store, target)
        refused.append(caught.value.filename)
        return [work(task) for task in tasks]

    monkeypatch.setattr(module, "run", run)
    assert alone(store, target).rows == 300
    assert refused == [str(target)]
    assert visible(target) == sent(300)


@pytest.mark.parametrize("how", ["one is missing", "one is short", "all are elsewhere"])
def test_a_run_whose_files_the_driver_cannot_find_exports_nothing(
    how: str,
    alone: Callable[..., Any],
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = tmp_path / "lake"
    staging = target / "_forebay" / "00000001.tmp"

    def run(_spark: Any, tasks: list[Any], work: Callable[[Any], Any], _told: Any) -> list[Any]:
        outcomes = [work(task) for task in tasks]
        chosen = staging / outcomes[-1][0][-1].name
        if how == "one is missing":
            chosen.unlink()
        elif how == "one is short":
            os.truncate(chosen, chosen.stat().st_size - 1)
        else:
            shutil.rmtree(staging)
        return outcomes

    with monkeypatch.context() as patch:
        patch.setattr(module, "run", run)
        with pytest.raises(forebay.CorruptError, match="every worker must reach") as caught:
            alone(store, target)
    assert str(caught.value.path).startswith(str(staging))
    assert visible(target) == []
    assert not list(target.glob("_forebay/*.json"))
    assert alone(store, target).run == 1
    assert visible(target) == sent(300)


def test_the_names_of_files_are_durable_before_the_manifest(
    alone: Callable[..., Any], store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "lake"
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(file: int) -> None:
        steps.append(os.readlink(f"/proc/self/fd/{file}"))
        fsync(file)

    def noted_replace(source: str, name: str) -> None:
        steps.append(name)
        replace(source, name)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    alone(store, target)
    hidden = target / "_forebay"
    before = steps[: steps.index(str(hidden / "00000001.json"))]
    assert before[-4:-1] == [str(hidden / "00000001.tmp"), str(hidden), str(target)]


def test_a_missing_file_fails_the_next_run(
    alone: Callable[..., Any], store: Path, tmp_path: Path
) -> None:
    target = tmp_path / "lake"
    alone(store, target, topics=["one"])
    alone(store, target, topics=["orders"])
    # Files of a run before the newest are not needed.
    shutil.rmtree(target / "topic=one")
    shutil.rmtree(target / "topic=orders")
    with pytest.raises(forebay.CorruptError, match="run 2 wrote this file") as caught:
        alone(store, target)
    assert str(caught.value.path).startswith(str(target / "topic=orders"))
    manifest = target / "_forebay" / "00000002.json"
    facts = json.loads(manifest.read_text())
    facts["files"] = []
    manifest.write_text(json.dumps(facts))
    assert alone(store, target).rows == 100
    assert {topic for topic, _ in visible(target)} == {"b|lls%"}


def test_a_recreated_store_with_messages_of_the_same_sizes_is_noticed(
    alone: Callable[..., Any], store: Path, tmp_path: Path
) -> None:
    """Every message is at the position of the exported one; only its time differs."""
    target = tmp_path / "lake"
    alone(store, target)
    with forebay.open(store, mode="r") as opened:
        before = opened.get("one", 0, 49)
    shutil.rmtree(store)
    send(store, 0, 360)
    with forebay.open(store, mode="r") as opened:
        after = opened.get("one", 0, 49)
    assert after.position == before.position
    assert after.store_timestamp > before.store_timestamp
    with pytest.raises(forebay.CorruptError, match="is not the one that was exported"):
        alone(store, target)
    assert visible(target) == sent(300)


def test_export_continues_from_manifests_without_store_times(
    alone: Callable[..., Any], store: Path, tmp_path: Path
) -> None:
    target = tmp_path / "lake"
    alone(store, target)
    manifest = target / "_forebay" / "00000001.json"
    facts = json.loads(manifest.read_text())
    assert all(len(end) == 5 and end[4] > 0 for end in facts["ends"])
    facts["ends"] = [end[:4] for end in facts["ends"]]
    manifest.write_text(json.dumps(facts))
    send(store, 300, 60)
    assert alone(store, target).rows == 60
    assert visible(target) == sent(360)
