"""The verb export: every format, bounds, and what a failure leaves."""

import base64
import csv
import fcntl
import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow
import pyarrow.parquet
import pytest
from cli_support import BROKER_MESSAGES, command, listing, state_of
from golden_stores import unpack


def bodies_of(path: Path) -> list[bytes]:
    if path.suffix == ".parquet":
        table = pyarrow.parquet.read_table(path)
    elif path.suffix == ".arrow":
        table = pyarrow.ipc.open_file(path).read_all()
    else:
        with path.open(newline="") as text:
            found = csv.DictReader(text) if path.suffix == ".csv" else map(json.loads, text)
            return [
                base64.b64decode(row["body"])
                if row["body_encoding"] == "base64"
                else row["body"].encode()
                for row in found
            ]
    table.validate(full=True)
    return table["body"].to_pylist()


@pytest.mark.parametrize("ending", ["parquet", "arrow", "jsonl", "csv"])
def test_export_writes_every_message_in_every_format(run, broker, tmp_path, ending):
    target = tmp_path / f"all.{ending}"
    before = state_of(broker)
    status, out, err = run("export", broker, target)
    assert (status, err) == (0, "")
    assert out.decode().startswith(f"wrote {BROKER_MESSAGES} messages to {target}, ")
    assert state_of(broker) == before
    assert sorted(bodies_of(target)) == sorted(row["body"] for row in listing("broker"))
    assert [file.name for file in tmp_path.glob("*all*")] == [target.name]
    assert [file.name for file in tmp_path.glob(".*")] == []


@pytest.mark.parametrize("ending", ["parquet", "arrow", "jsonl", "csv"])
def test_export_respects_its_bounds_in_every_format(run, store, tmp_path, ending):
    target = tmp_path / f"some.{ending}"
    bounds = ("--topic", "orders", "--queue", "0", "--start", "1", "--end", "3")
    assert run("export", store, target, *bounds)[0] == 0
    assert bodies_of(target) == [b"body 1", b"body 2"]
    assert run("export", store, target, "--topic", "orders", "--tags", "odd", "--force")[0] == 0
    assert bodies_of(target) == [b"body 1", b"body 3"]


def test_duckdb_reads_an_export_by_its_columns(run, store, tmp_path):
    target = tmp_path / "orders.parquet"
    run("export", store, target, "--topic", "orders")
    query = f"select properties['region'], keys, topic from '{target}' where queue = 1"
    assert duckdb.sql(query).fetchall() == [("eu", "a k1", "orders")]


def test_export_writes_in_batches_and_not_the_store_as_a_whole(run, store, tmp_path, monkeypatch):
    monkeypatch.setattr("forebay.cli.export._BATCH_ROWS", 2)
    for ending in ("parquet", "arrow"):
        target = tmp_path / f"orders.{ending}"
        assert run("export", store, target)[0] == 0
        if ending == "parquet":
            assert pyarrow.parquet.ParquetFile(target).num_row_groups >= 3
        else:
            assert pyarrow.ipc.open_file(target).num_record_batches >= 3
        assert len(bodies_of(target)) == 6


def test_export_replaces_a_file_only_when_forced(run, store, tmp_path):
    target = tmp_path / "orders.jsonl"
    target.write_text("precious")
    status, _, err = run("export", store, target)
    assert (status, err) == (1, f"forebay: {target} already exists; pass --force to replace it\n")
    assert target.read_text() == "precious"
    assert run("export", store, target, "--force")[0] == 0
    assert len(bodies_of(target)) == 6


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_an_export_that_fails_leaves_the_old_file_and_no_other(
    run, store, tmp_path, monkeypatch, ending
):
    target = tmp_path / f"orders.{ending}"
    target.write_text("precious")

    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    status, _, err = run("export", store, target, "--force")
    assert (status, err) == (1, "forebay: No space left on device\n")
    assert target.read_text() == "precious"
    assert sorted(file.name for file in tmp_path.iterdir()) == [target.name, "store"]


def test_ctrl_c_when_parquet_is_complete_prints_nothing(run, store, tmp_path, monkeypatch):
    closes = []

    def close(writer, close=pyarrow.parquet.ParquetWriter.close):
        closes.append(writer)
        if len(closes) == 1:
            raise KeyboardInterrupt
        close(writer)

    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    monkeypatch.setattr(pyarrow.parquet.ParquetWriter, "close", close)
    assert run("export", store, tmp_path / "all.parquet") == (130, b"", "")
    assert list(tmp_path.glob("*all*")) == []
    closes.clear()
    gc.collect()
    # Its finaliser would have closed the writer of the file that is gone.
    assert (closes, unraisable) == ([], [])


def test_an_export_removes_what_killed_ones_left_and_nothing_of_live_ones(run, store, tmp_path):
    target = tmp_path / "orders.jsonl"
    # In a container, a restarted process often has the same number.
    left = [tmp_path / f".{target.name}.{number}.tmp" for number in (1, os.getpid())]
    others = [tmp_path / name for name in (f".{target.name}.x.tmp", ".bills.jsonl.1.tmp")]
    live = tmp_path / f".{target.name}.2.tmp"
    for path in (*left, *others, live):
        path.write_bytes(b"part")
    with live.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert run("export", store, target)[0] == 0
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in (*others, live))


def test_a_running_export_holds_the_lock_of_its_temporary_file(run, store, tmp_path, monkeypatch):
    target = tmp_path / "orders.jsonl"
    fsync, seen = os.fsync, []

    def look(file):
        (path,) = tmp_path.glob(".*.tmp")
        with path.open("rb") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        seen.append(path.name)
        fsync(file)

    monkeypatch.setattr(os, "fsync", look)
    assert run("export", store, target)[0] == 0
    assert len(seen) == 1


def test_export_refuses_targets_that_are_not_files(run, store, tmp_path):
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    status, _, err = run("export", store, pipe, "--force")
    assert (status, err) == (1, f"forebay: {pipe} exists and is not a regular file\n")
    assert pipe.is_fifo()


def test_export_of_a_damaged_store_writes_intact_messages_and_reports_the_damage(run, tmp_path):
    target = tmp_path / "all.parquet"
    status, _, err = run("export", unpack("torn-hole", tmp_path), target)
    assert status == 1
    assert "at 1867720" in err
    assert len(bodies_of(target)) == 2156


def test_parquet_without_pyarrow_names_the_extra(run, store, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    status, _, err = run("export", store, tmp_path / "x.parquet")
    assert status == 1
    assert err == "forebay: writing parquet needs pyarrow: pip install 'forebay[arrow]'\n"
    assert run("export", store, tmp_path / "x.jsonl")[0] == 0


@pytest.mark.parametrize("form", ["parquet", "arrow", "jsonl", "csv"])
def test_export_writes_to_a_pipe(store, tmp_path, form):
    done = subprocess.run(
        command("export", store, "-", "--format", form), capture_output=True, check=True
    )
    assert done.stderr == b""
    target = tmp_path / f"copy.{form}"
    target.write_bytes(done.stdout)
    assert len(bodies_of(target)) == 6
    assert not (Path.cwd() / "-").exists()
