"""The verb archive."""

import os

import archive_support as support
import pytest
from cli_support import rows, state_of

import forebay


@pytest.fixture
def filled(tmp_path):
    path = tmp_path / "events"
    with support.small(path) as store:
        support.fill(store, 1)
    return path


def test_sealed_files_are_archived_and_the_store_is_not_changed(run, filled, tmp_path):
    before = state_of(filled)
    status, out, err = run("archive", filled, tmp_path / "a")
    assert (status, err) == (0, "")
    first, second = out.decode().splitlines()
    assert first == f"1 log file copied to {tmp_path / 'a'} (4.0 MiB); already archived: 0"
    assert second == f"archived up to position {support.FILE:,}"
    after = state_of(filled)
    note = filled / "forebay.archived"
    assert {path: after[path] for path in before if path != filled} == {
        path: before[path] for path in before if path != filled
    }
    assert after.keys() - before.keys() == {note}
    status, out, _ = run("archive", filled, tmp_path / "a", "--json")
    (facts,) = rows(out)
    assert status == 0
    assert (facts["files"], facts["skipped"], facts["recorded"]) == (0, 1, True)


def test_an_archive_is_verified_on_request(run, filled, tmp_path):
    status, out, _ = run("archive", filled, tmp_path / "a", "--verify")
    assert status == 0
    last = out.decode().splitlines()[-1]
    assert last == "verified: the archive holds exactly the bytes that were archived"
    log = tmp_path / "a" / "commitlog" / f"{0:020}"
    with open(log, "r+b") as file:
        file.seek(3 << 20)
        file.write(os.urandom(100))
    status, out, _ = run("archive", filled, tmp_path / "a", "--verify")
    assert status == 1
    assert str(log) in out.decode().splitlines()[-1]
    status, out, _ = run("archive", filled, tmp_path / "a", "--verify", "--json")
    (facts,) = rows(out)
    assert status == 1 and facts["damage"][0]["path"] == str(log)


def test_a_refused_archive_is_reported_in_one_line(run, broker, filled, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    status, out, err = run("archive", filled, tmp_path / "other")
    assert (status, out) == (1, b"")
    assert "empty directory" in err and err.count("\n") == 1
    status, out, _ = run("archive", broker, tmp_path / "b")
    assert status == 0
    assert "belongs to another system" in out.decode()


def test_segments_of_a_partition_log_are_archived(run, tmp_path):
    with forebay.open(tmp_path / "log", engine="partitionlog", default_queues=2) as store:
        for queue in range(2):
            store.producer("orders", queue=queue).send_batch([b"x" * 100] * 50)
        store.roll()
    status, out, err = run("archive", tmp_path / "log", tmp_path / "a", "--verify")
    assert (status, err) == (0, "")
    first, second, last = out.decode().splitlines()
    assert first.startswith(f"2 segments copied to {tmp_path / 'a'} (") and first.endswith(": 0")
    assert second == "archived of 2 queues"
    assert last == "verified: the archive holds exactly the bytes that were archived"
    status, out, _ = run("archive", tmp_path / "log", tmp_path / "a", "--json")
    (facts,) = rows(out)
    assert (status, facts["files"], facts["skipped"]) == (0, 0, 2)
    assert facts["offsets"] == {"orders-0": 50, "orders-1": 50}


@pytest.mark.parametrize("engine", ["commitlog", "partitionlog"])
def test_what_is_in_use_is_archived_on_request(run, tmp_path, engine):
    path, target = tmp_path / "events", tmp_path / "a"
    small = {"commitlog_file_size": 1 << 20} if engine == "commitlog" else {}
    forebay.open(path, engine=engine, **small).close()
    assert run("send", path, "orders", "one", "two", "--queue", 0)[0] == 0
    status, out, _ = run("archive", path, target, "--json")
    (facts,) = rows(out)
    assert (status, facts["files"]) == (0, 0)
    # Advice about a call in Python does not help here.
    assert "--roll" in facts["reason"] and "(" not in facts["reason"]
    assert f"nothing was copied: {facts['reason']}\n" in run("archive", path, target)[1].decode()
    status, out, _ = run("archive", path, target, "--roll", "--json", "--verify")
    (facts,) = rows(out)
    assert (status, facts["files"], facts["reason"], facts["damage"]) == (0, 1, None, [])


def test_what_is_in_use_is_archived_beside_processes_that_share_the_store_only(run, tmp_path):
    path, target = tmp_path / "events", tmp_path / "a"
    with forebay.open(path, commitlog_file_size=1 << 20) as store:
        store.send("orders", b"body")
        status, out, err = run("archive", path, target, "--roll")
        assert (status, out) == (1, b"") and "is being written by process" in err
    with forebay.open(path, mode="share") as store:
        store.send("orders", b"body")
        status, out, _ = run("archive", path, target, "--roll", "--json")
        (facts,) = rows(out)
        assert (status, facts["files"], facts["position"]) == (0, 1, 1 << 20)


def test_a_directory_of_another_system_is_sealed_only_if_that_is_allowed(run, broker, tmp_path):
    before = state_of(broker)
    status, out, err = run("archive", broker, tmp_path / "a", "--roll")
    assert (status, out) == (1, b"") and "pass --adopt to write to it" in err
    status, _, err = run("archive", broker, tmp_path / "a", "--adopt")
    assert status == 2 and "--adopt needs --roll" in err
    assert state_of(broker) == before
