"""The verb commits: Spark's commits, and how to end those that cannot finish by themselves."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow
import pytest

import forebay
from forebay import _forebay

MARKERS = "rmq_sys_forebay_commits"
#: Rows of one stage; two such stages make two parts.
LONG = [b"a", b"b", bytes(5 << 19)]


def stage(path: Path, query: str, bodies: list[bytes]) -> Any:
    stager = _forebay.Stager(path, query, "t")
    stager.write(pyarrow.record_batch({"value": bodies}))
    return stager.finish()


def count(path: Path) -> int:
    with forebay.open(path, mode="r") as store:
        if "t" not in store.topics:
            return 0
        return sum(queue.max_offset for queue in store.topics["t"].queues)


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """Return a store that holds the first part of a batch; the stage of the second is gone."""
    stages = [stage(tmp_path, "q", LONG), stage(tmp_path, "q", LONG)]
    _forebay.publish_commit(tmp_path, "q", 4, "stream", stages)
    names = tmp_path / "forebay.stages" / "q"
    manifest = (names / "commit-4").read_bytes()
    with forebay.open(tmp_path) as store:
        _forebay.take_commits(store)
        position = store.get(MARKERS, 0, 0).position
    end_log_after_batch(tmp_path, position)
    (names / "taken-4").write_bytes(manifest)
    # Without forebay.state the directory counts as foreign.
    with forebay.open(tmp_path, adopt=True) as store:
        _forebay.take_commits(store)
    assert count(tmp_path) == 3
    return tmp_path


def end_log_after_batch(path: Path, marker: int) -> None:
    """Leave the log as a process would that died right after the part with this marker."""
    with (path / "commitlog" / f"{0:020}").open("r+b") as log:
        end = marker
        # Skip the marker and the record that ends its atomic batch.
        for _ in range(2):
            log.seek(end)
            end += int.from_bytes(log.read(4), "big")
        log.seek(end)
        log.write(bytes(8 << 20))
    for name in ("forebay.state", "forebay.offsets", "checkpoint"):
        (path / name).unlink()
    for name in ("consumequeue", "index"):
        shutil.rmtree(path / name)
    (path / "abort").touch()


def test_commits_to_a_partition_log_are_listed_and_withdrawn(run, tmp_path):
    forebay.open(tmp_path, engine="partitionlog").close()
    stages = [stage(tmp_path, "q", [b"a", b"b"])]
    _forebay.publish_commit(tmp_path, "q", 7, "stream", stages)
    (found,) = json.loads(run("commits", "list", str(tmp_path), "--json")[1])["commits"]
    assert (found["query"], found["batch"], found["state"]) == ("q", 7, "pending")
    assert found["rows"] == 2
    assert b"withdrawn" in run("commits", "withdraw", str(tmp_path), "q", "7")[1]
    assert b"no commit" in run("commits", "list", str(tmp_path))[1]
    _forebay.publish_commit(tmp_path, "q", 8, "stream", [stage(tmp_path, "q", [b"c"])])
    with forebay.open(tmp_path) as store:
        _forebay.take_commits(store)
    shown = run("commits", "show", str(tmp_path), "q")[1]
    assert b"last in the log: batch 8, part 1 of 1, 1 rows" in shown
    assert count(tmp_path) == 1


def test_commits_are_listed_with_their_progress(run, cut):
    _forebay.publish_commit(cut, "r", 0, "batch", [stage(cut, "r", [b"a", b"b"])])
    (cut / "forebay.stages" / "r" / "taken-1").write_bytes(b"[" * 100_000)
    status, out, _ = run("commits", "list", cut, "--json")
    assert status == 0
    refused, pending, broken = json.loads(out)["commits"]
    assert (refused["query"], refused["batch"], refused["state"]) == ("q", 4, "refused")
    assert refused["appended"]
    assert "commits resolve" in refused["reason"]
    assert (pending["state"], pending["rows"], pending["kind"]) == ("pending", 2, "batch")
    assert broken == {"query": "r", "batch": 1, "state": "begun"}
    status, out, _ = run("commits", "list", cut)
    assert (status, b"pending" in out, b"parts are in the log" in out) == (0, True, True)


def test_a_partly_appended_batch_is_shown_and_resolved(run, cut):
    status, out, _ = run("commits", "show", cut, "q")
    assert status == 0
    assert b"batch 4, part 1 of 2, 6 rows" in out
    assert b"see forebay commits resolve" in out
    # The batch is run again, and does not continue the part in the log.
    _forebay.publish_commit(cut, "q", 4, "stream", [stage(cut, "q", LONG * 2)])
    with forebay.open(cut) as store:
        _forebay.take_commits(store)
    assert _forebay.wait_for_commit(cut, "q", 4, 0).appended is True
    status, _, err = run("commits", "resolve", cut, "q", "3", "--as", "appended")
    assert (status, "nothing to resolve" in err) == (1, True)
    assert run("commits", "resolve", cut, "q", "4", "--as", "again")[0] == 0
    assert b"to be appended again" in run("commits", "show", cut, "q")[1]
    _forebay.publish_commit(cut, "q", 4, "stream", [stage(cut, "q", LONG * 2)])
    with forebay.open(cut) as store:
        _forebay.take_commits(store)
    assert count(cut) == 9
    left = json.loads(run("commits", "list", cut, "--json")[1])["commits"]
    assert [one["batch"] for one in left] == [3]


def test_a_batch_that_counts_as_appended_is_not_appended_again(run, cut):
    with forebay.open(cut):
        # The process that writes the store processes the resolution.
        assert run("commits", "resolve", cut, "q", "4", "--as", "appended")[0] == 0
    _forebay.publish_commit(cut, "q", 4, "stream", [stage(cut, "q", LONG * 2)])
    with forebay.open(cut) as store:
        _forebay.take_commits(store)
    assert _forebay.wait_for_commit(cut, "q", 4, 0).state == "gone"
    assert count(cut) == 3


def test_a_pending_commit_is_withdrawn_and_a_begun_one_is_not(run, tmp_path):
    forebay.open(tmp_path).close()
    for batch in (0, 1):
        _forebay.publish_commit(tmp_path, "q", batch, "stream", [stage(tmp_path, "q", [b"a"])])
    names = tmp_path / "forebay.stages" / "q"
    (names / "commit-1").rename(names / "taken-1")
    assert run("commits", "withdraw", tmp_path, "q", "0")[0] == 0
    status, _, err = run("commits", "withdraw", tmp_path, "q", "1")
    assert (status, "it has begun" in err) == (1, True)
    status, _, err = run("commits", "withdraw", tmp_path, "q", "0")
    assert (status, "no such commit" in err) == (1, True)
    with forebay.open(tmp_path) as store:
        _forebay.take_commits(store)
    assert count(tmp_path) == 1


def test_an_invalid_query_or_store_is_refused(run, tmp_path):
    forebay.open(tmp_path).close()
    assert run("commits", "show", tmp_path, "../q")[0] == 2
    assert run("commits", "list", tmp_path / "absent")[0] == 1
    assert not (tmp_path / "absent").exists()
    status, out, _ = run("commits", "show", tmp_path, "q", "--json")
    assert (status, json.loads(out)) == (0, {"last": None, "commits": []})
