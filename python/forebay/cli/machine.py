"""Facts about the machine, read from ``/proc`` and ``/sys``.

Everything is read below a root directory, so that a test can imitate a machine. A file that does
not exist gives None: nothing here fails on a machine without these files.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

__all__ = ["Machine", "Mount"]


@dataclass(frozen=True)
class Mount:
    """A mounted file system; `options` are those of the mount and of the file system."""

    point: str
    kind: str
    source: str
    device: str
    options: frozenset[str]


class Machine:
    """The kernel's files.

    Parameters
    ----------
    root
        Directory that stands for ``/``.
    """

    def __init__(self, root: str | os.PathLike[str] = "/") -> None:
        self._root = os.fspath(root)

    def text(self, name: str) -> str | None:
        """Return the content of a file, stripped; None if it cannot be read."""
        try:
            with open(os.path.join(self._root, name), encoding="utf-8", errors="replace") as file:
                return file.read().strip()
        except OSError:
            return None

    def number(self, name: str) -> int | None:
        """Return the integer in a file; None if there is none."""
        text = self.text(name)
        return int(text) if text is not None and re.fullmatch(r"-?[0-9]+", text) else None

    def chosen(self, name: str) -> str | None:
        """Return the word in brackets, which marks the active choice, or else the whole text."""
        text = self.text(name)
        found = re.search(r"\[([^\]]+)\]", text or "")
        return found[1] if found else text or None

    def memory(self, name: str) -> int | None:
        """Return an entry of ``meminfo``, in bytes."""
        table = self.text("proc/meminfo") or ""
        found = re.search(rf"^{re.escape(name)}:\s+([0-9]+) kB", table, re.M)
        return int(found[1]) * 1024 if found else None

    def has_swap(self) -> bool | None:
        """Return whether any swap space is configured."""
        text = self.text("proc/swaps")
        return None if text is None else len(text.splitlines()) > 1

    def soft_limit(self, name: str) -> int | float | None:
        """Return a soft limit of this process by its name in ``limits``; infinity if unlimited."""
        table = self.text("proc/self/limits") or ""
        found = re.search(rf"^{re.escape(name)}\s+(unlimited|[0-9]+)\s", table, re.M)
        if not found:
            return None
        return float("inf") if found[1] == "unlimited" else int(found[1])

    def mount(self, path: str) -> Mount | None:
        """Return the file system that holds a path; the path must contain no symbolic links."""
        best = None
        for line in (self.text("proc/self/mountinfo") or "").splitlines():
            found = _mount(line)
            # Of two mounts at one point, the later one hides the earlier.
            if not found or not _lies_below(path, found.point):
                continue
            if best is None or len(found.point) >= len(best.point):
                best = found
        return best

    def disks(self, mount: Mount) -> list[str]:
        """Return the ``/sys`` folders of the disks under a file system, through its volumes."""
        # Some file systems have a device number of their own; then their source names the device.
        name = os.path.basename(mount.source)
        for folder in (f"sys/dev/block/{mount.device}", f"sys/class/block/{name}"):
            if name and os.path.isdir(os.path.join(self._root, folder)):
                return self._below(folder, depth=8)
        return []

    def _below(self, folder: str, depth: int) -> list[str]:
        slaves = self._names(f"{folder}/slaves")
        if slaves and depth:
            found = (self._below(f"{folder}/slaves/{name}", depth - 1) for name in slaves)
            return [disk for disks in found for disk in disks]
        # A partition has no queue folder; its disk, the parent folder, does.
        whole = os.path.isdir(os.path.join(self._root, folder, "queue"))
        return [folder if whole else f"{folder}/.."]

    def _names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(os.path.join(self._root, folder)))
        except OSError:
            return []


def _mount(line: str) -> Mount | None:
    """Parse a line of ``mountinfo``: six fields, optional fields, a dash, three more fields."""
    before, dash, after = line.partition(" - ")
    fields, more = before.split(" "), after.split(" ")
    if not dash or len(fields) < 6 or len(more) < 2:
        return None
    options = {*fields[5].split(","), *(more[2].split(",") if len(more) > 2 else ())}
    return Mount(_plain(fields[4]), more[0], _plain(more[1]), fields[2], frozenset(options))


def _plain(text: str) -> str:
    """Decode the kernel's octal escapes, such as that of a space."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def _lies_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
