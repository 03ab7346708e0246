"""Programs that wait for another process, and locks that stand for one that never releases them."""

import contextlib
import fcntl
import mmap
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from harness import LONG_S, state_of

#: Where the words of locks are: that of appends, and in `forebay.groups` that of its owners.
AT_APPEND, AT_OWNERS = 704, 16

#: The parts of such a word: who holds the lock, whether others sleep, whether what a holder left
#: was not erased yet, and how often it was taken.
HOLDER, WAITERS, DIRTY, GENERATION = 0x1FF, 1 << 9, 1 << 10, 1 << 16

#: Where `forebay.groups` has the number of its queues, and the queues. The first word of a queue
#: has its epoch and the committed offset.
AT_QUEUES_LEN, AT_QUEUES, QUEUE_LEN, EPOCH = 28, 8_458_240, 64, 1 << 48

#: The bytes of the file `lock` that a process holds as long as it lives, and while it joins.
SLOT, GATE = 200, 251


def hold(file: IO[bytes], byte: int) -> bool:
    """Lock a byte unless another process has it locked; return whether it was free."""
    asked = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, asked)
    except (BlockingIOError, PermissionError):
        return False
    return True


@contextlib.contextmanager
def running(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run a program with pipes, which Ctrl-C interrupts; kill it if it is left running."""
    with subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # A shell that runs in the background has SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def stopped(
    process: subprocess.Popen[str] | subprocess.Popen[bytes] | None,
) -> Iterator[None]:
    """Stop all threads of a process for a while; nothing if there is none."""
    if process is None:
        yield
        return
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def take(path: Path, lock: str, words: dict[str, int], *bytes_: int) -> contextlib.ExitStack | None:
    """Take locks and return what releases them; take none if one of them is not free."""
    with contextlib.ExitStack() as taken:
        lock_file = taken.enter_context((path / lock).open("r+b"))
        if not all(hold(lock_file, byte) for byte in (SLOT, *bytes_)):
            return None
        for name, at in words.items():
            file = taken.enter_context((path / name).open("r+b"))
            page = taken.enter_context(mmap.mmap(file.fileno(), 4096))
            word = slice(at, at + 8)
            free = int.from_bytes(page[word], sys.byteorder)
            if free & HOLDER:
                return None
            generation = (free // GENERATION + 1) % (1 << 48) * GENERATION
            left = generation | free & DIRTY
            page[word] = (left | free & WAITERS | SLOT).to_bytes(8, sys.byteorder)
            # A process that sleeps on the word wakes by itself after some milliseconds.
            taken.callback(page.__setitem__, word, left.to_bytes(8, sys.byteorder))
        return taken.pop_all()
    return None


def begin_again(path: Path) -> None:
    """Reset all groups to where they are, as another process does that holds the lock of owners."""
    with (
        (path / "forebay.groups").open("r+b") as file,
        mmap.mmap(file.fileno(), 0) as table,
    ):
        (count,) = struct.unpack_from("=I", table, AT_QUEUES_LEN)
        for at in range(AT_QUEUES, AT_QUEUES + count * QUEUE_LEN, QUEUE_LEN):
            (word,) = struct.unpack_from("=Q", table, at)
            struct.pack_into("=Q", table, at, (word + 2 * EPOCH) % (1 << 64))


@contextlib.contextmanager
def held(
    process: subprocess.Popen[str] | None,
    path: Path,
    lock: str,
    words: dict[str, int],
    *bytes_: int,
) -> Iterator[None]:
    """Stand for a living process that holds locks: words in files, and bytes of the file `lock`.

    The process that shares the store is stopped while they are taken: Python has no atomic
    exchange. If it is the test's own (`None`), none of its threads may want them at that moment.
    """
    end = time.monotonic() + LONG_S
    while True:
        with stopped(process):
            taken = take(path, lock, words, *bytes_)
        if taken is not None:
            break
        # A service of the process has one of them, and releases it soon.
        assert time.monotonic() < end, "the locks are never free at once"
        time.sleep(0.001)
    with taken:
        yield


def await_sleep(process: subprocess.Popen[str]) -> None:
    """Return once the main thread of a process sleeps."""
    end = time.monotonic() + LONG_S
    while state_of(process.pid) != "S":
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.001)


def check_an_end(process, holding: contextlib.AbstractContextManager[None]) -> None:
    """Press Ctrl-C while the statement of a program waits for what another process holds."""
    assert process.stdout.readline() == "ready\n"
    with holding:
        print(file=process.stdin, flush=True)
        assert process.stdout.readline() == "waits\n"
        # Else the statement may not have begun.
        await_sleep(process)
        process.send_signal(signal.SIGINT)
        assert select.select([process.stdout], [], [], LONG_S)[0]
        assert process.stdout.readline() == "interrupted\n"
    assert process.communicate("\n", timeout=LONG_S)[0] == "0\n"
