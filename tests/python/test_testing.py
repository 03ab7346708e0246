"""`forebay.testing`: its clock, and its fixtures in runs of pytest."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import forebay
import forebay.testing

ROOT = Path(__file__).parents[2]

TESTS = '''
"""Tests of a user, with the fixtures."""
import pytest


def test_an_unsettled_message_comes_back(forebay_store, forebay_clock):
    forebay_store.send("orders", b"apples")
    with forebay_store.consumer("orders", group="billing", visibility_timeout=60) as consumer:
        assert len(consumer.poll(timeout=0)) == 1
        forebay_clock.advance(59)
        assert consumer.poll(timeout=0) == []
        forebay_clock.advance(1)
        (message,) = consumer.poll(timeout=0)
        consumer.extend(message, 600)
        forebay_clock.advance(minutes=9)
        assert consumer.poll(timeout=0) == []
        forebay_clock.advance(minutes=1)
        assert len(consumer.poll(timeout=0)) == 1


def test_a_message_that_fails_is_tried_sixteen_times(forebay_store, forebay_clock):
    forebay_store.send("orders", b"apples")
    waits = [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]
    with forebay_store.consumer("orders", group="billing") as consumer:
        for attempt, wait in enumerate(waits):
            (message,) = consumer.poll(timeout=0)
            assert message.reconsume_times == attempt
            consumer.nack(message)
            forebay_clock.advance(wait - 1)
            assert consumer.poll(timeout=0) == []
            forebay_clock.advance(1)
        (message,) = consumer.poll(timeout=0)
        consumer.nack(message)
    (dead,) = forebay_store.read("%DLQ%billing", 0, 0)
    assert dead.body == b"apples"


@pytest.mark.parametrize("forebay_store", [{}, {"engine": "commitlog"}], indirect=True)
def test_delay_levels(forebay_store, forebay_clock):
    orders = forebay_store.producer("orders")
    begin = forebay_clock.now
    for level in range(1, 5):
        orders.send(b"%d" % level, delay_level=level)
    tail = []
    for seconds in (1, 4, 5, 20):
        forebay_clock.advance(seconds)
        found = forebay_store.tail("orders", "earliest", follow=False)
        tail.append([message.body for message in found])
    assert tail == [[b"1"], [b"1", b"2"], [b"1", b"2", b"3"], [b"1", b"2", b"3", b"4"]]
    assert (forebay_clock.now - begin).total_seconds() == 30


@pytest.mark.parametrize("forebay_store", [{"default_queues": 3}], indirect=True)
def test_options(forebay_store, tmp_path):
    forebay_store.send("orders", b"apples")
    assert forebay_store.engine == "memory"
    assert len(forebay_store.topics["orders"].queues) == 3


@pytest.mark.parametrize(
    "forebay_store", [{"engine": engine} for engine in ("partitionlog", None)], indirect=True
)
def test_engines_on_disk(forebay_store, forebay_clock, tmp_path):
    forebay_store.send("orders", b"apples")
    assert forebay_store.path == str(tmp_path / "forebay")
    with forebay_store.consumer("orders", group="billing") as consumer:
        consumer.nack(*consumer.poll(timeout=0))
        forebay_clock.advance(10)
        assert len(consumer.poll(timeout=0)) == 1
'''

MISTAKES = '''
"""Parameters that are wrong."""
import pytest


@pytest.mark.parametrize(
    "forebay_store", ["commitlog", {"clock": 5}, {"path": "store"}, {"engin": 1}], indirect=True
)
def test_mistake(forebay_store):
    pass
'''


def run_pytest(folder: Path, *words: str, status: int = 0) -> str:
    """Run pytest in a folder, with warnings as errors; return what it printed."""
    command = [sys.executable, "-W", "error", "-m", "pytest", "-p", "pytest_forebay", "-q", *words]
    command += ["-p", "no:cacheprovider", "-o", "addopts=", "--rootdir", str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def test_the_fixtures_move_retries_delays_and_timeouts(tmp_path):
    (tmp_path / "test_user.py").write_text(TESTS)
    assert "7 passed" in run_pytest(tmp_path)
    help_text = run_pytest(tmp_path, "--fixtures", "test_user.py")
    assert "forebay_store" in help_text and "it is closed after the test" in help_text


def test_a_wrong_parameter_of_the_fixture_is_named(tmp_path):
    (tmp_path / "test_user.py").write_text(MISTAKES)
    printed = run_pytest(tmp_path, status=1)
    assert "forebay_store takes a dict of options, got str" in printed
    for name in ("clock", "path"):
        assert f"forebay_store has its own {name}: leave it out of the options" in printed
    assert "did you mean engine?" in printed


def test_a_run_without_the_fixtures_does_not_import_forebay(tmp_path):
    (tmp_path / "test_other.py").write_text(
        "import sys\n\n\ndef test_other():\n    assert 'forebay' not in sys.modules\n"
    )
    assert "1 passed" in run_pytest(tmp_path)


def test_the_plugin_is_an_entry_point_of_a_packaged_module():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["pytest11"] == {"pytest_forebay": "pytest_forebay"}
    assert "pytest_forebay" in project["tool"]["maturin"]["python-packages"]


def test_a_clock_stands_still_until_it_is_moved():
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    clock = forebay.testing.Clock(at=begin)
    assert repr(clock) == "<Clock at 2026-01-01T00:00:00+00:00>"
    with forebay.testing.open(clock=clock) as store:
        assert store.send("orders", b"a").timestamp == begin.timestamp() * 1000
        clock.advance(timedelta(hours=1))
        clock.advance(0.0015, minutes=1, hours=1)
        assert clock.now == begin + timedelta(hours=2, minutes=1, milliseconds=2)
        message = store.get("orders", *_place(store.send("orders", b"b")))
        assert message.store_time == message.born_time == clock.now
    # Closed stores are left alone.
    clock.advance(1)
    with pytest.raises(ValueError, match="forward"):
        clock.advance(-1)
    with pytest.raises(ValueError, match="time zone"):
        forebay.testing.Clock(at=datetime(2026, 1, 1))


def test_what_is_due_after_a_fraction_of_a_millisecond_is_due():
    """The clock had dropped fractions: it stood still however often it was moved by one."""
    clock = forebay.testing.Clock()
    begin = clock.now
    odd = timedelta(microseconds=1001)
    for by, moved in ((0, 0), (1e-6, 1), (0.0005, 1), (odd, 2), (0.003, 3)):
        before = clock.now
        clock.advance(by)
        assert clock.now - before == timedelta(milliseconds=moved)
    assert clock.now - begin == timedelta(milliseconds=7)
    with forebay.testing.open(clock=clock) as store:
        store.send("orders", b"apples", delay=0.1)
        for _ in range(3):
            clock.advance(0.1 / 3)
        assert [one.body for one in store.tail("orders", "earliest", follow=False)] == [b"apples"]


@pytest.mark.parametrize("year", [1, 1969, 2501, 9999])
def test_a_clock_shows_no_time_that_a_store_cannot_keep(year):
    with pytest.raises(ValueError, match="between the years 1970 and 2500"):
        forebay.testing.Clock(at=datetime(year, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("by", [float("nan"), float("inf"), 1e30, timedelta.max, 10**400], ids=str)
def test_a_clock_that_cannot_be_moved_so_far_stands_still(by):
    clock = forebay.testing.Clock(at=datetime(2026, 1, 1, tzinfo=UTC))
    with pytest.raises(ValueError, match=r"the clock (cannot move by|moves to the year)"):
        clock.advance(by)
    with pytest.raises(ValueError, match="the year 2500"):
        clock.advance(hours=24 * 366 * 500)
    assert clock.now == datetime(2026, 1, 1, tzinfo=UTC)


def _place(sent: forebay.SendResult) -> tuple[int, int]:
    return sent.queue, sent.offset


def test_where_a_group_begins_goes_by_the_clock(tmp_path):
    clock = forebay.testing.Clock(at=datetime(2026, 1, 1, tzinfo=UTC))
    with forebay.testing.open(tmp_path / "store", clock=clock) as store:
        store.send("orders", b"old", queue=0)
        clock.advance(hours=1)
        store.send("orders", b"young", queue=0)
        start = timedelta(minutes=30)
        with store.consumer("orders", group="billing", start=start) as consumer:
            assert [message.body for message in consumer.poll(timeout=0)] == [b"young"]
            consumer.seek(timedelta(hours=2))
            assert len(consumer.poll(timeout=0)) == 2


def test_stores_of_one_clock_are_moved_together(tmp_path):
    clock = forebay.testing.Clock()
    with (
        forebay.testing.open(clock=clock) as one,
        forebay.testing.open(tmp_path / "store", clock=clock) as two,
        forebay.testing.open(tmp_path / "store", "r", clock=clock),
    ):
        for store in (one, two):
            store.send("orders", b"later", queue=0, delay_level=18)
        clock.advance(hours=2)
        for store in (one, two):
            assert store.get("orders", 0, 0).body == b"later"
