"""Faulting accesses to mapped files: an error with path and position; the process survives."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import loopdisk
import pytest
from harness import SLOW

MIB = 1 << 20

#: What every child starts with: small files, and a way to try calls that may raise.
PRELUDE = """
import faulthandler, mmap, os, signal, sys
import forebay

root = sys.argv[1]
OPTIONS = dict(commitlog_file_size=1 << 20, index_slots=1024, index_entries=4096,
               queue_file_entries=1024)
if sys.argv[2] == "partitionlog":
    OPTIONS = dict(engine="partitionlog", segment_bytes=1 << 20)


def say(*words):
    print(*words, flush=True)


def store(mode="a", **options):
    return forebay.open(root, mode=mode, **({**OPTIONS, **options} if mode != "r" else options))


def send(st, count, flush=None):
    for n in range(count):
        st.send("t", b"%d." % n + b"x" * 300, queue=0, keys=["k%d" % n])


def read_all(st):
    seen, offset = 0, st.topics["t"].queues[0].min_offset
    while True:
        batch = st.read("t", 0, offset, max_messages=500)
        seen += sum(len(message.body) > 300 for message in batch.messages)
        if batch.next_offset <= offset:
            return seen
        offset = batch.next_offset


def attempt(call):
    try:
        return call()
    except (forebay.ForebayError, OSError) as error:  # pyarrow tells ours as an OSError
        return error


def cut(path, length=0):
    os.truncate(os.path.join(root, path), length)


def wait():
    sys.stdin.readline()
"""


class Child:
    """A process that runs a script after the prelude, over a store of an engine at ``root``."""

    def __init__(self, script: str, root: Path | str, engine: str = "commitlog") -> None:
        command = [sys.executable, "-c", PRELUDE + script, str(root), engine]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> tuple[list[str], str, int]:
        """Continue from a ``wait``; return the lines, the errors and the exit status."""
        out, err = self.process.communicate("\n", timeout=120)
        return out.splitlines(), err, self.process.returncode


def run(script: str, root: Path | str, engine: str = "commitlog") -> tuple[list[str], str, int]:
    return Child(script, root, engine).end()


def survived(result: tuple[list[str], str, int]) -> list[str]:
    lines, err, status = result
    assert status == 0, (status, lines, err[-3000:])
    assert [line for line in err.splitlines() if not line.startswith(SLOW)] == []
    return lines


def fill(point: Path) -> None:
    """Fill the rest of a file system."""
    with open(point / "fill", "wb", buffering=0) as file:
        for step in (MIB, 4096):
            try:
                while True:
                    file.write(bytes(step))
            except OSError:
                pass
        with suppress(OSError):
            os.fsync(file.fileno())


def make_room(point: Path) -> None:
    """Free what `fill` took; XFS frees the blocks of a removed file some time later."""
    os.truncate(point / "fill", 0)
    (point / "fill").unlink()


ENGINES = ["commitlog", "partitionlog"]

WRITER = """
st = store(flush=%r)
send(st, 2000)
st.flush()
say("ready")
wait()
sent, error = 0, None
while error is None and sent < 20_000:
    error = attempt(lambda: st.send("t", b"y" * 400, queue=0, keys=["k%%d" %% sent]))
    sent, error = sent + 1, error if isinstance(error, Exception) else None
say(type(error).__name__)
say(type(attempt(lambda: st.send("t", b"again", queue=0))).__name__)
say(attempt(lambda: read_all(st) >= 2000))
attempt(st.close)
say("alive")
"""


@pytest.fixture
def xfs(tmp_path: Path) -> Iterator[Path]:
    loopdisk.need("xfs")
    loopdisk.make(tmp_path / "image", 320 * MIB, "xfs")
    with loopdisk.mounted(tmp_path / "image", tmp_path / "disk") as point:
        yield point


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("flush", ["async", "sync"])
def test_extents_shared_with_a_copy_on_a_full_disk_end_the_writing_and_not_the_process(
    xfs: Path, flush: str, engine: str
) -> None:
    child = Child(WRITER % flush, xfs / "store", engine)
    assert child.line() == "ready"
    os.sync()
    loopdisk.run("cp", "-a", "--reflink=always", xfs / "store", xfs / "copy")
    os.sync()
    fill(xfs)
    error, after, read, alive = survived(child.end())
    assert error in {"DiskError", "DiskFullError", "StoreFailedError"}
    assert after in {"StoreFailedError", "DiskFullError"}
    assert (read, alive) == ("True", "alive")
    make_room(xfs)
    again = "with store() as st: send(st, 10); say(read_all(st) >= 2010, st.verify().ok)"
    assert survived(run(again, xfs / "store", engine)) == ["True True"]


def test_a_store_whose_blocks_are_shared_opens_on_a_full_disk_with_a_clean_error(xfs: Path) -> None:
    assert survived(run("with store() as st: send(st, 2000)", xfs / "store")) == []
    loopdisk.run("cp", "-a", "--reflink=always", xfs / "store", xfs / "copy")
    os.sync()
    fill(xfs)
    opening = "say(type(attempt(store)).__name__); say(read_all(store('r')))"
    assert survived(run(opening, xfs / "store")) == ["DiskFullError", "2000"]
    make_room(xfs)
    again = "with store() as st: send(st, 10); say(read_all(st))"
    assert survived(run(again, xfs / "store")) == ["2010"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("flush", ["async", "sync"])
def test_a_file_system_that_shuts_down_ends_the_writing_and_not_the_process(
    xfs: Path, flush: str, engine: str
) -> None:
    child = Child(WRITER % flush, xfs / "store", engine)
    assert child.line() == "ready"
    shut_down(xfs)
    error, after, _, alive = survived(child.end())
    assert error in {"DiskError", "StoreFailedError"}
    assert (after, alive) == ("StoreFailedError", "alive")


@pytest.mark.parametrize("engine", ENGINES)
def test_closing_a_store_whose_file_system_shut_down_names_the_cause(
    xfs: Path, engine: str
) -> None:
    """No directory of the store can be stated: it must not be taken for missing, and created."""
    script = """
st = store()
send(st, 2000)
st.flush()
say("ready")
wait()
error = attempt(st.close)
say(type(error).__name__, error.errno)
"""
    child = Child(script, xfs / "store", engine)
    assert child.line() == "ready"
    shut_down(xfs)
    assert survived(child.end()) == [f"DiskError {errno.EIO}"]


def shut_down(point: Path) -> None:
    """Shut a file system down, as a lost device or aborted journal would, through its ioctl."""
    descriptor = os.open(point, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, 0x8004587D, struct.pack("I", 2))
    finally:
        os.close(descriptor)


def test_an_unreadable_sector_is_an_error_and_the_rest_is_read(
    tmp_path: Path,
) -> None:
    """The image ends within a log file: the device cannot provide the blocks after that."""
    loopdisk.need("ext4")
    image = tmp_path / "image"
    loopdisk.make(image, 100 * MIB)
    with loopdisk.mounted(image, tmp_path / "disk") as point:
        (point / "low").write_bytes(bytes(MIB))
        survived(run("with store() as st: send(st, 12_000)", point / "store"))
        os.sync()
        lost = sorted((point / "store/commitlog").iterdir())[1]
        block = extents(lost)[0][1]
    script = f"""
bad = {lost.name!r}
st = store("r")
say("ready")
wait()
error = attempt(lambda: read_all(st))
say(type(error).__name__, error.errno, os.path.basename(error.path) == bad)
say(error.position < 1 << 20)
say(len(st.read("t", 0, 0, max_messages=100).messages))
"""
    with loopdisk.mounted(image, tmp_path / "disk", "ro", "noload") as point:
        # Opening reads some records of each file, and a bad one is an error there too.
        child = Child(script, point / "store")
        assert child.line() == "ready"
        Path("/proc/sys/vm/drop_caches").write_text("3")
        # All others are in memory, wherever their blocks are.
        for file in (point / "store").rglob("*"):
            if file.is_file() and file.name != lost.name:
                file.read_bytes()
        with bad_blocks(image, block * 4096):
            lines = survived(child.end())
    assert lines == ["DiskError 5 True", "True", "100"]


def extents(file: Path) -> list[tuple[int, int]]:
    """Return of each extent its first block in the file, and that on the device."""
    lines = loopdisk.run("filefrag", "-v", "-b4096", file).splitlines()
    rows = [line.split(":") for line in lines if ".." in line]
    return [(int(row[1].split("..")[0]), int(row[2].split("..")[0])) for row in rows]


def write_with_last(point: Path, contents: bytes, block: int) -> int:
    """Write a file, one block of which is the last one on the device; return its number there.

    ext4 exchanges the block with one of a file that was written later.
    """
    for name in ("file", "donor"):
        with open(point / name, "wb") as file:
            file.write(contents)
            file.flush()
            os.fsync(file.fileno())
    with open(point / "file", "r+b") as file, open(point / "donor", "r+b") as donor:
        donor_block = len(contents) // 4096 - 1
        os.pwrite(donor.fileno(), contents[block * 4096 : (block + 1) * 4096], donor_block * 4096)
        os.fsync(donor.fileno())
        move = struct.pack("IIQQQQ", 0, donor.fileno(), block, donor_block, 1, 0)
        # EXT4_IOC_MOVE_EXT
        fcntl.ioctl(file.fileno(), 0xC028660F, move)
        os.fsync(file.fileno())
    (point / "donor").unlink()
    assert (point / "file").read_bytes() == contents
    found = dict(extents(point / "file"))
    assert found[block] == max(found.values()), found
    return found[block]


@contextmanager
def on_a_device_of_its_own(file: Path, folder: Path, block: int) -> Iterator[int]:
    """Move a file to an image in which one of its blocks is the last; yield its first byte there.

    Nothing else is stored on that device, so that it can be cut while the file is in use.
    """
    image = folder / "other-image"
    with open(image, "wb") as made:
        made.truncate(16 * MIB)
    loopdisk.run("mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-O", "^has_journal", image)
    with loopdisk.mounted(image, folder / "other") as point:
        last = write_with_last(point, file.read_bytes(), block)
    with loopdisk.mounted(image, folder / "other", "noatime") as point:
        loopdisk.run("mount", "--bind", point / "file", file)
        try:
            yield last * 4096
        finally:
            loopdisk.run("umount", "-l", file)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mode", ["r", "a"])
def test_a_store_opened_with_an_unreadable_sector_names_it_and_reads_the_rest(
    tmp_path: Path, mode: str, engine: str
) -> None:
    """The sector is bad before the store is opened, and readable again afterwards."""
    loopdisk.need("ext4")
    root, block = tmp_path / "store", 60
    survived(run("with store() as st: send(st, 12_000)", root, engine))
    logs = "commitlog/*" if engine == "commitlog" else "t-0/*.log"
    lost = sorted(root.glob(logs))[1]
    script = f"""
st = store({mode!r})
error = attempt(lambda: read_all(st))
at = error.position and error.position // 4096
say(type(error).__name__, error.errno, os.path.basename(error.path), at)
say(len(st.read("t", 0, 0, max_messages=100).messages), len(st.read("t", 0, 9_000).messages) > 0)
say(st.damage)
attempt(st.close)
"""
    with on_a_device_of_its_own(lost, tmp_path, block) as start:
        Path("/proc/sys/vm/drop_caches").write_text("3")
        with bad_blocks(tmp_path / "other-image", start):
            lines = survived(run(script, root, engine))
        # Segments are not mapped for reading, and a call that reads has no position.
        at = block if engine == "commitlog" else None
        assert lines == [f"DiskError 5 {lost.name} {at}", "100 True", "[]"]
        Path("/proc/sys/vm/drop_caches").write_text("3")
        again = "with store() as st: say(read_all(st), st.damage, st.verify().ok)"
        assert survived(run(again, root, engine)) == ["12000 [] True"]


@contextmanager
def bad_blocks(image: Path, start: int) -> Iterator[None]:
    """Cut an image at `start`; a loop device fails to read beyond the end of its file."""
    with open(image, "r+b") as file:
        file.seek(start)
        kept = file.read()
        file.truncate(start)
        try:
            yield
        finally:
            file.seek(start)
            file.write(kept)


EVERYTHING = """
def everything(st, mode):
    calls = {
        "topics": lambda: st.topics,
        "read": lambda: read_all(st),
        "held": lambda: [(m.body, m.keys, m.properties, m.topic) for m in held],
        "scan": lambda: scan(st),
        "query": lambda: st.query("t", key="k7"),
        "verify": lambda: st.verify(),
    }
    if mode == "a":
        calls |= {"send": lambda: send(st, 50), "flush": lambda: st.flush()}
    calls["close"] = st.close
    for name, call in calls.items():
        attempt(call)


def scan(st):
    try:
        import pyarrow
    except ImportError:
        return None
    return pyarrow.table(st.scan("t")).num_rows
"""

#: Files of a store, each to be truncated while it is mapped.
FILES = ["commitlog/0", "commitlog/1", "consumequeue", "index", "forebay.state", "checkpoint"]
#: The same of a partition log; the last two are there while processes share it.
LOG_FILES = [".log/0", ".log/1", ".index", ".timeindex", "forebay.shared", "forebay.partitions"]
TRUNCATED = [
    *(("commitlog", name, mode) for name in FILES for mode in ("r", "a", "beside")),
    *(("partitionlog", name, "a") for name in LOG_FILES[:4]),
    *(("partitionlog", name, "beside") for name in LOG_FILES[:2]),
    *(("partitionlog", name, "share") for name in (".log/1", *LOG_FILES[4:])),
]


@pytest.mark.parametrize(("engine", "name", "mode"), TRUNCATED)
def test_a_truncated_file_kills_no_process(
    tmp_path: Path, engine: str, name: str, mode: str
) -> None:
    script = f"""
name, mode = {name!r}, {mode!r}
writer = store()
send(writer, 4000)
writer.flush()
if mode != "beside":
    writer.close()
st = store("r" if mode == "beside" else mode)
held = st.read("t", 0, 0, max_messages=100).messages
read_all(st), st.query("t", key="k3")
found = []
for folder, _, names in sorted(os.walk(root)):
    found += [os.path.relpath(os.path.join(folder, n), root) for n in sorted(names)]
folder, _, number = name.partition("/")
files = [path for path in found if path.startswith(folder) or path.endswith(folder)]
cut(files[int(number or 0)])
everything(st, "r" if mode == "beside" else mode)
if mode == "beside":
    everything(writer, "a")
say("alive")
"""
    lines, err, status = run(EVERYTHING + script, tmp_path / "store", engine)
    assert (lines, status) == (["alive"], 0), err
    # Warnings may report damage that was read, and work that a thread could not do.
    known = (*SLOW, "damage in ", "cannot deliver ")
    assert [line for line in err.splitlines() if not line.startswith(known)] == []


def test_a_load_that_faults_has_path_and_position_and_the_rest_is_read(tmp_path: Path) -> None:
    script = """
with store() as st: send(st, 4000)
with store("r") as st:
    held = st.read("t", 0, 0, max_messages=100).messages
    cut("commitlog/00000000000000000000", 8192)
    error = attempt(lambda: held[-1].body)
    say(type(error).__name__, error.errno, os.path.basename(error.path), error.position >= 8192)
    say(len(held[0].body) > 300, len(st.read("t", 0, 3500, max_messages=100).messages))
"""
    told = ["DiskError 5 00000000000000000000 True", "True 100"]
    assert survived(run(script, tmp_path / "store")) == told


def test_a_store_that_faults_ends_the_writing(tmp_path: Path) -> None:
    script = """
st = store()
send(st, 100)
st.read("t", 0, 0)
cut("commitlog/00000000000000000000", 4096)
first = attempt(lambda: send(st, 1000))
say(type(first).__name__, first.errno, os.path.basename(first.path), first.position >= 4096)
say(type(attempt(lambda: send(st, 1))).__name__)
say(len(st.read("t", 0, 0, max_messages=3).messages))
attempt(st.close)
"""
    told = ["DiskError 5 00000000000000000000 True", "StoreFailedError", "3"]
    assert survived(run(script, tmp_path / "store")) == told


#: An open store's log is truncated and read, or another owner's map is.
ABSORBED = """
st.read("t", 0, 0)
cut("commitlog/00000000000000000000")
say(type(attempt(lambda: read_all(st))).__name__)
"""
OTHERS = """
with open(os.path.join(root, "other"), "w+b") as file:
    file.truncate(4096)
    own = mmap.mmap(file.fileno(), 4096)
    file.truncate(0)
    say("before")
    own[0]
say("behind")
"""
OPEN = "with store() as st: send(st, 100)\nst = store('r'{})\n"
ENABLE = "faulthandler.enable()\n"
#: Waits until Forebay next checks whether its handler is the first: at a tick of a coarse clock.
TICK = "import time\ntime.sleep(0.05)\nattempt(lambda: read_all(st))\n"

ORDERS = {
    "alone": OPEN.format(""),
    "faulthandler before": ENABLE + OPEN.format(""),
    "faulthandler behind": OPEN.format("") + ENABLE + TICK,
    "both": ENABLE + OPEN.format("") + "faulthandler.disable()\n" + ENABLE + TICK,
    "twice": OPEN.format("") + (ENABLE + TICK + "faulthandler.disable()\n" + TICK) * 6 + ENABLE,
}


@pytest.mark.parametrize("order", [name for name in ORDERS if name != "twice"])
def test_a_fault_of_forebay_is_handled_silently(tmp_path: Path, order: str) -> None:
    assert survived(run(ORDERS[order] + ABSORBED, tmp_path / "store")) == ["DiskError"]


@pytest.mark.parametrize("order", ORDERS)
def test_another_fault_kills_as_it_would_without_forebay(tmp_path: Path, order: str) -> None:
    lines, err, status = run(ORDERS[order] + OTHERS, tmp_path / "store")
    assert (lines, status) == (["before"], -signal.SIGBUS)
    told = err.count("Fatal Python error: Bus error")
    assert told == (0 if order == "alone" else 1), err


@pytest.mark.parametrize("order", ORDERS)
def test_a_sent_signal_kills_as_it_would_without_forebay(tmp_path: Path, order: str) -> None:
    script = ORDERS[order] + "os.kill(os.getpid(), signal.SIGBUS)\nsay('behind')"
    lines, _, status = run(script, tmp_path / "store")
    assert (lines, status) == ([], -signal.SIGBUS)


def test_a_handler_of_python_still_gets_sent_signals(tmp_path: Path) -> None:
    before = "signal.signal(signal.SIGBUS, lambda *_: say('handled'))\n"
    sent = "os.kill(os.getpid(), signal.SIGBUS)\nsay('on')\n"
    assert survived(run(before + ORDERS["alone"] + sent, tmp_path / "a")) == ["handled", "on"]
    ignored = "signal.signal(signal.SIGBUS, signal.SIG_IGN)\n"
    assert survived(run(ignored + ORDERS["alone"] + sent, tmp_path / "b")) == ["on"]
    after = ORDERS["alone"] + before + TICK + sent + ABSORBED
    assert survived(run(after, tmp_path / "c")) == ["handled", "on", "DiskError"]


def test_without_the_guard_no_handler_is_installed_and_a_fault_kills(tmp_path: Path) -> None:
    script = OPEN.format(", guard_maps=False").replace("store()", "store(guard_maps=False)")
    _, err, status = run(script + ABSORBED, tmp_path / "store")
    assert status == -signal.SIGBUS, err
