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
from collections.abc import Iterator
from pathlib import Path
from typing import IO

#: Where the words of locks are: that of appends, and in `forebay.groups` that of its owners.
AT_APPEND, AT_OWNERS = 704, 16


#: The bytes of the file `lock` that a process holds as long as it lives, and while it joins.
SLOT, GATE = 200, 251


def hold(file: IO[bytes], byte: int) -> None:
    asked = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, asked)


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
def held(path: Path, lock: str, words: dict[str, int], *bytes_: int) -> Iterator[None]:
    """Stand for a living process that holds locks: words in files, and bytes of the file `lock`."""
    with (path / lock).open("r+b") as lock_file, contextlib.ExitStack() as released:
        for byte in (SLOT, *bytes_):
            hold(lock_file, byte)
        for name, at in words.items():
            file = released.enter_context((path / name).open("r+b"))
            page = released.enter_context(mmap.mmap(file.fileno(), 4096))
            word = slice(at, at + 8)
            free = page[word]
            taken = (int.from_bytes(free, sys.byteorder) + (1 << 16)) | SLOT
            page[word] = taken.to_bytes(8, sys.byteorder)
            released.callback(page.__setitem__, word, free)
        yield


def check_an_end(process, holding: contextlib.AbstractContextManager[None]) -> None:
    """Press Ctrl-C while the statement of a program waits for what another process holds."""
    assert process.stdout.readline() == "ready\n"
    with holding:
        print(file=process.stdin, flush=True)
        assert process.stdout.readline() == "waits\n"
        os.kill(process.pid, signal.SIGINT)
        assert select.select([process.stdout], [], [], 20)[0]
        assert process.stdout.readline() == "interrupted\n"
    assert process.communicate("\n")[0] == "0\n"
