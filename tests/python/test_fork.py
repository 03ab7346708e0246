"""Processes that fork while a thread of theirs is in the middle of something."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import run_with_children

from forebay import _forebay

# Both threads run their steps in C, without bytecode, so they switch only where a step releases the
# interpreter. The second thread wakes the main thread and counts. Then the main thread counts while
# the second one begins the call, up to where the call releases the interpreter and the second
# thread waits for its turn. At that moment the main thread forks.
FORK = """
import datetime, operator, os, signal, sys, threading, types
from functools import partial
import forebay
call, path = sys.argv[1:]
store = forebay.open(path, mode="share", default_queues=1, busy_timeout=60)
store.create_topic("orders")
producer = store.producer("orders")
now = datetime.datetime.now(datetime.timezone.utc)
properties = types.MappingProxyType({"a": "b"})
work = {
    "datetime": partial(producer.send, b"x", timestamp=now),
    "mapping": partial(producer.send, b"x", properties=properties),
    "wrong": partial(forebay._forebay.ManualClock, "now"),
}[call]
begun, done = threading.Lock(), []
begun.acquire()
threading.excepthook = lambda raised: None
count = partial(sum, range(3_000_000))
steps = (begun.release, count, work)
thread = threading.Thread(target=done.extend, args=(map(operator.call, steps),))
sys.setswitchinterval(1e-6)
thread.start()
*_, pid = map(operator.call, (begun.acquire, count, os.fork))
if pid == 0:
    # Ends the child if it waits for the thread.
    signal.alarm(30)
    try:
        work()
    except TypeError:
        pass
    os._exit(0)
_, status = os.waitpid(pid, 0)
thread.join()
store.close()
sys.exit(status != 0)
"""


@pytest.mark.parametrize("call", ["datetime", "mapping", "wrong"])
def test_a_child_does_not_wait_for_a_thread_of_its_parent(tmp_path: Path, call: str):
    """The first call of its kind made a lock, and let other threads run before it was ready."""
    done = run_with_children(FORK, call, str(tmp_path / "s"))
    assert done.returncode == 0, done.stderr


def test_an_import_under_way_does_not_hold_up_a_child(tmp_path: Path):
    """What the package imports on first use is imported before a shared store is open."""
    code = (
        "import sys, forebay\n"
        "late = {'difflib', 'inspect', 'logging', 'threading'}\n"
        "assert not late & sys.modules.keys()\n"
        "store = forebay.open(sys.argv[1], mode='share')\n"
        "assert late <= sys.modules.keys()\n"
        "store.close()\n"
    )
    done = run_with_children(code, str(tmp_path / "s"))
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="reads the symbols of an ELF file")
def test_every_lock_of_the_extension_is_initialised_when_it_loads():
    """Forebay's own locks are in one variable; PyO3's are its only variables of these sizes.

    A lock has a word that is 2 once it is initialised, and references.
    """
    code = "import test_fork; test_fork.print_locks()"
    done = run_with_children(code, cwd=Path(__file__).parent)
    assert done.returncode == 0, done.stderr
    locks = dict(line.split() for line in done.stdout.splitlines())
    if not locks:
        pytest.skip("the extension has no symbols")
    assert any("MADE" in name for name in locks)
    assert [name for name, state in locks.items() if state != "ready"] == []


def print_locks() -> None:
    assert _forebay.__file__
    path = Path(_forebay.__file__).resolve()
    maps = Path("/proc/self/maps").read_text().splitlines()
    base = min(int(line.split("-")[0], 16) for line in maps if line.endswith(str(path)))
    for name, address, size in variables(path.read_bytes()):
        # It is for a text without placeholders, and the text there has some.
        if "argument_extraction_error" in name and size == 16:
            continue
        if ("pyo3" in name and size in (16, 32)) or "once4MADE" in name:
            words = struct.unpack(f"={size // 8}Q", ctypes.string_at(base + address, size))
            print(name, "ready" if 2 in words else "empty")


def variables(elf: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield the name, address and size of each variable of a library for 64 bits."""
    (table,), (count, names) = struct.unpack_from("=Q", elf, 40), struct.unpack_from("=HH", elf, 60)
    sections = [struct.unpack_from("=IIQQQQIIQQ", elf, table + 64 * row) for row in range(count)]
    titles = sections[names][4]
    written = {
        row
        for row, section in enumerate(sections)
        if text_at(elf, titles + section[0]) in (".data", ".bss")
    }
    for section in sections:
        if section[1] == 2:
            texts = sections[section[6]][4]
            for at in range(section[4], section[4] + section[5], 24):
                name, kind, _, place, address, size = struct.unpack_from("=IBBHQQ", elf, at)
                if place in written and kind & 15 == 1:
                    yield text_at(elf, texts + name), address, size


def text_at(elf: bytes, at: int) -> str:
    return elf[at : elf.index(b"\0", at)].decode()
