"""Small separate file systems: an image in a file, mounted through a loop device."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import lacks


def run(*command: str | Path) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout.strip()


def need(kind: str = "ext4") -> None:
    """Skip the test, with the reason, if such a file system cannot be created or mounted."""
    if os.geteuid() != 0:
        lacks("root", "mounting takes root")
    for tool in (f"mkfs.{kind}", "mount", "losetup"):
        if shutil.which(tool) is None:
            lacks("xfs" if kind == "xfs" else "loop", f"{tool} is not installed")


def make(image: Path, size: int, kind: str = "ext4", block: int = 4096) -> None:
    """Create an empty file system of ``size`` bytes; ``block``: the bytes of a block of ext4."""
    with open(image, "wb") as file:
        file.truncate(size)
    options = {
        "ext4": ("-q", "-F", "-b", str(block), "-m", "0", "-E", "lazy_itable_init=0"),
        "xfs": ("-q", "-f"),
    }
    run(f"mkfs.{kind}", *options[kind], image)


@contextmanager
def mounted(source: Path, point: Path, *options: str) -> Iterator[Path]:
    """Mount an image or a device; unmount lazily, as a failed test may still hold a map."""
    point.mkdir(exist_ok=True)
    try:
        run("mount", "-o", ",".join(("loop", *options)), source, point)
    except OSError as error:
        if "loop" in str(error) or "permitted" in str(error) or "denied" in str(error):
            lacks("loop", str(error))
        raise
    try:
        yield point
    finally:
        try:
            run("umount", point)
        except OSError:
            run("umount", "-l", point)


@contextmanager
def in_memory(point: Path, size: int) -> Iterator[Path]:
    """Mount an empty file system of ``size`` bytes in memory."""
    if os.geteuid() != 0:
        lacks("root", "mounting takes root")
    point.mkdir(exist_ok=True)
    try:
        run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", point)
    except OSError as error:
        lacks("tmpfs", str(error))
    try:
        yield point
    finally:
        run("umount", "-l", point)


@contextmanager
def read_only(point: Path) -> Iterator[None]:
    """Make what is below a directory read-only, by a mount of its own."""
    if os.geteuid() != 0:
        lacks("root", "mounting takes root")
    run("mount", "--bind", point, point)
    try:
        run("mount", "-o", "remount,ro,bind", point)
        yield
    finally:
        run("umount", "-l", point)
