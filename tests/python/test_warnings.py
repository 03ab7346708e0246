"""Skipped damage is reported by warnings of the logger ``forebay``, once per region."""

import logging
import os
import subprocess
import sys

import pyarrow
import pytest

import forebay

BODY = b"body of a message that will be damaged"


@pytest.fixture
def place(tmp_path):
    """Return the directory of a closed store, and the damaged message of its nine."""
    path = tmp_path / "store"
    with forebay.open(path, commitlog_file_size=1 << 20) as store:
        orders = store.producer("orders", queue=0)
        results = [orders.send(BODY, key="k") for _ in range(9)]
    return path, results[4]


def spoil(path, result):
    """Damage the body of a message, which opening a cleanly closed store does not check."""
    log = path / "commitlog" / f"{0:020}"
    bytes_before = log.read_bytes()
    at = bytes_before.index(BODY, result.position)
    with log.open("r+b") as file:
        os.pwrite(file.fileno(), b"X" + BODY[1:], at)


def told(caplog):
    """Return the logger's warnings, and clear them."""
    found = [r.getMessage() for r in caplog.records if r.name == "forebay"]
    assert all(r.levelno == logging.WARNING for r in caplog.records)
    caplog.clear()
    return found


def read(store):
    return [m.offset for m in store.read("orders", 0, 0)]


def scan(store):
    return pyarrow.table(store.scan("orders", columns=["offset"]))["offset"].to_pylist()


def scan_all(store):
    return pyarrow.table(store.scan(columns=["offset"]))["offset"].to_pylist()


def tail(store):
    return [m.offset for m in store.tail("orders", start="earliest", follow=False)]


def query(store):
    return sorted(m.offset for m in store.query("orders", "k"))


@pytest.mark.parametrize("way", [read, scan, scan_all, tail, query])
@pytest.mark.parametrize("mode", ["a", "r"])
def test_skipped_damage_is_logged_once_per_region(place, caplog, mode, way):
    path, lost = place
    spoil(path, lost)
    with forebay.open(path, mode) as store:
        assert told(caplog) == []
        assert way(store) == [0, 1, 2, 3, 5, 6, 7, 8]
        # A stream is consumed without the interpreter; the next call reports the damage.
        assert store.stats().damaged == 1
        (line,) = told(caplog)
        log = path / "commitlog" / f"{0:020}"
        assert line.startswith(f"damage in {log} at {lost.position}, ")
        assert "checksum" in line
        if way is not scan_all:
            assert line.endswith("; lost: offset 4 of orders-0")
        way(store)
    assert told(caplog) == []


@pytest.mark.parametrize("way", ["get", "message"])
def test_a_requested_message_that_is_lost_is_logged(place, caplog, way):
    path, lost = place
    spoil(path, lost)
    with forebay.open(path, "r") as store:
        for _ in range(2):
            with pytest.raises(forebay.CorruptError):
                store.get("orders", 0, 4) if way == "get" else store.message(lost.position)
    (line,) = told(caplog)
    assert line.endswith("; lost: offset 4 of orders-0")


def test_a_query_reports_the_length_and_the_message_of_a_damaged_record(place):
    path, lost = place
    with forebay.open(path, "r") as store:
        length = store.get("orders", 0, 5).position - lost.position
    spoil(path, lost)
    with forebay.open(path, "r") as store:
        query(store)
        (damage,) = store.damage
    assert (damage.position, damage.length) == (lost.position, length)
    assert damage.lost == [("orders", 0, 4)]


def test_a_search_by_time_logs_skipped_damage(place, caplog):
    path, lost = place
    log = path / "commitlog" / f"{0:020}"
    with log.open("r+b") as file:
        os.pwrite(file.fileno(), bytes(40), lost.position)
    with forebay.open(path, "r") as store:
        told(caplog)
        store.offset_at("orders", 0, lost.timestamp)
        (damage,) = store.damage
        assert damage.lost == [("orders", 0, 4)]
        assert len(told(caplog)) == 1


def test_damage_found_by_an_opening_is_logged_by_it(place, caplog):
    path, lost = place
    (path / "forebay.state").unlink()
    log = path / "commitlog" / f"{0:020}"
    with log.open("r+b") as file:
        os.pwrite(file.fileno(), bytes(40), lost.position)
    forebay.open(path, "r").close()
    lines = told(caplog)
    assert len(lines) == 1 and str(log) in lines[0]


def test_a_scan_logs_a_body_that_cannot_be_decompressed(tmp_path, caplog):
    path = tmp_path / "store"
    with forebay.open(path, commitlog_file_size=1 << 20, checksum=False) as store:
        lost = store.send("orders", BODY)
    with (path / "commitlog" / f"{0:020}").open("r+b") as file:
        # The flag that marks the body as compressed: no checksum covers it.
        os.pwrite(file.fileno(), b"\x01", lost.position + 39)
    with forebay.open(path, "r") as store:
        for _ in range(2):
            assert pyarrow.table(store.scan("orders")).num_rows == 0
    (line,) = told(caplog)
    assert f" at {lost.position}, " in line and "body: " in line


def test_damage_is_logged_when_the_store_is_closed_or_dropped(place, caplog):
    path, lost = place
    spoil(path, lost)
    store = forebay.open(path, "r")
    pyarrow.table(store.scan("orders"))
    assert told(caplog) == []
    store.close()
    assert len(told(caplog)) == 1
    store = forebay.open(path, "r")
    pyarrow.table(store.scan("orders"))
    del store
    assert len(told(caplog)) == 1


def test_a_failing_logger_does_not_fail_a_read(place, caplog, monkeypatch):
    path, lost = place
    spoil(path, lost)

    def fail(*_args):
        raise RuntimeError("no logging today")

    monkeypatch.setattr(logging.getLogger("forebay"), "warning", fail)
    unraised = []
    monkeypatch.setattr(sys, "unraisablehook", unraised.append)
    with forebay.open(path, "r") as store:
        assert len(read(store)) == 8
    assert [str(one.exc_value) for one in unraised] == ["no logging today"]


def test_the_command_line_reports_damage_only_in_its_own_words(place):
    path, lost = place
    spoil(path, lost)
    command = [sys.executable, "-m", "forebay", "cat", str(path), "orders"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    script = f"import forebay; s = forebay.open({str(path)!r}, 'r'); s.read('orders', 0, 0)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr.startswith("damage in ")
