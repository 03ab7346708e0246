"""The checks of `forebay doctor`, each against the advice of the tuning page.

A check never raises: a value that the machine does not report is `UNKNOWN`. A warning means that
messages reported durable may be lost; anything less serious is advice.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import forebay
from forebay.cli.machine import Machine, Mount
from forebay.options import Options
from forebay.output import human

__all__ = ["ADVICE", "OK", "UNKNOWN", "WARNING", "Check", "examine"]

OK, ADVICE, WARNING, UNKNOWN = "ok", "advice", "warning", "unknown"

_GIB = 1 << 30
#: A store refuses to append when less space than this is free.
_RESERVE = 256 << 20
_LOG_FILE = _GIB
#: Options that only partition logs keep.
_LOG_OPTIONS = (
    *("segment_bytes", "segment_ms", "index_interval_bytes", "segment_index_bytes"),
    *("compression", "message_timestamp_type"),
)
_MEMORY = ("tmpfs", "ramfs")
_NETWORK = (
    "9p",
    "afs",
    "ceph",
    "cifs",
    "glusterfs",
    "lustre",
    "ncpfs",
    "nfs",
    "nfs4",
    "smb3",
    "smbfs",
    "virtiofs",
)
_SLOW_CLOCKS = ("acpi_pm", "hpet", "jiffies", "pit", "xen")


@dataclass(frozen=True)
class Check:
    """The result of one check: the value found, the verdict, and the reason for it."""

    name: str
    value: str
    verdict: str
    advice: str


def examine(
    path: str,
    machine: Machine,
    *,
    lock_memory: bool = False,
    free_space: Callable[[str], int | None] | None = None,
) -> list[Check]:
    """Check the machine and the file system of a path, which need not exist yet."""
    path = os.path.realpath(path)
    mount = machine.mount(path)
    free = (free_space or _free_space)(path)
    return [
        _file_system(mount),
        _mount_options(mount),
        _write_cache(machine, mount),
        _scheduler(machine, mount),
        _room(free),
        *_saved_options(path),
        _swap(machine),
        *_dirty(machine),
        _zone_reclaim(machine),
        _maps(machine),
        _descriptors(machine),
        _locked_memory(machine, lock_memory),
        _huge_pages(machine),
        _clock(machine),
    ]


def _unknown(name: str) -> Check:
    return Check(name, "", UNKNOWN, "this machine does not report it")


def _file_system(mount: Mount | None) -> Check:
    name = "file system"
    if mount is None:
        return _unknown(name)
    kind, where = mount.kind, f"{mount.kind} at {mount.point}"
    if kind in ("ext4", "xfs"):
        return Check(name, where, OK, "Forebay is measured and tested on it")
    if kind in _MEMORY:
        reason = (
            "its files are in memory: a flush saves nothing, and a power loss destroys everything"
        )
        return Check(name, where, WARNING, reason)
    if kind in _NETWORK or kind.startswith("fuse"):
        reason = (
            "locks, mapped files and syncs are unreliable on network and user-space file systems: "
            "write to a local ext4 or xfs, and keep only closed stores here"
        )
        return Check(name, where, WARNING, reason)
    if kind == "overlay":
        reason = "the layer is deleted with its container: mount a volume for the store"
        return Check(name, where, WARNING, reason)
    if kind in ("btrfs", "zfs", "bcachefs", "f2fs", "nilfs2"):
        reason = (
            "it writes changed data to new blocks, so reserved blocks guarantee nothing and a "
            "full disk can end in a bus error; ext4 and xfs write to the blocks they reserved"
        )
        return Check(name, where, ADVICE, reason)
    return Check(name, where, UNKNOWN, "Forebay is tested on ext4 and xfs, not on this")


def _mount_options(mount: Mount | None) -> Check:
    name = "mount options"
    if mount is None:
        return _unknown(name)
    options = mount.options
    shown = ",".join(sorted(options))
    if unsafe := options & {"nobarrier", "barrier=0", "volatile"}:
        word = sorted(unsafe)[0]
        reason = f"with {word} a sync does not reach the disk, so flushed messages can be lost"
        return Check(name, shown, WARNING, reason)
    if "ro" in options:
        return Check(name, shown, ADVICE, "read-only: stores can be read here but not written")
    if options & {"sync", "dirsync"}:
        reason = "every write waits for the disk; Forebay already syncs where it has to"
        return Check(name, shown, ADVICE, reason)
    if not options & {"noatime", "relatime"}:
        reason = "every read updates an access time: mount with noatime"
        return Check(name, shown, ADVICE, reason)
    return Check(name, shown, OK, "")


def _of_disks(machine: Machine, mount: Mount | None, *files: str) -> Iterator[list[str | None]]:
    """Yield the values of these files in the queue folder of each disk."""
    for disk in machine.disks(mount) if mount else ():
        yield [machine.chosen(f"{disk}/queue/{file}") for file in files]


def _write_cache(machine: Machine, mount: Mount | None) -> Check:
    name = "write cache"
    found = {cache for (cache,) in _of_disks(machine, mount, "write_cache") if cache}
    if not found:
        return _unknown(name)
    holds = "write back" in found
    text = "a sync makes the disk empty its cache" if holds else "the disk has no volatile cache"
    unsafe = mount is not None and mount.options & {"nobarrier", "barrier=0"}
    if holds and unsafe:
        reason = "the disk may lose cached writes: the mount options keep syncs from flushing them"
        return Check(name, "write back", WARNING, reason)
    return Check(name, ", ".join(sorted(found)), OK, text)


def _scheduler(machine: Machine, mount: Mount | None) -> Check:
    name = "I/O scheduler"
    found = [pair for pair in _of_disks(machine, mount, "scheduler", "rotational") if pair[0]]
    shown = ", ".join(sorted({str(scheduler) for scheduler, _ in found}))
    for scheduler, rotational in found:
        if scheduler in ("bfq", "cfq"):
            reason = f"{scheduler} favours fairness and delays syncs: use none or mq-deadline"
            return Check(name, shown, ADVICE, reason)
        if scheduler == "none" and rotational == "1":
            return Check(name, shown, ADVICE, "a spinning disk does better with mq-deadline")
    return Check(name, shown, OK, "") if found else _unknown(name)


def _room(free: int | None) -> Check:
    name = "free space"
    if free is None:
        return _unknown(name)
    if free < _RESERVE + _LOG_FILE:
        reason = (
            f"a log file takes {human(_LOG_FILE)}, and {human(_RESERVE)} must stay free: "
            "sends will soon fail with DiskFullError"
        )
        return Check(name, human(free), ADVICE, reason)
    return Check(name, human(free), OK, "")


def _is_valid(option: str, value: Any) -> bool:
    """Return whether a store takes a value of an option that it keeps."""
    if option not in ("flush", *Options.__annotations__):
        # Of a later version; it has no effect.
        return True
    given: dict[str, Any] = {option: value}
    try:
        if option in _LOG_OPTIONS:
            with tempfile.TemporaryDirectory() as folder:
                forebay.open(folder, engine="partitionlog", **given).close()
        else:
            forebay.open(":memory:", **given).close()
    except (forebay.InvalidOptionError, TypeError, ValueError):
        return False
    except (forebay.ForebayError, OSError):
        # Without a temporary directory the value cannot be checked, so it is not reported.
        return True
    return True


def _saved_options(path: str) -> Iterator[Check]:
    """Check whether the options that a store keeps can be read; it may keep none."""
    name = "saved options"
    try:
        with open(os.path.join(path, "forebay.options"), "rb") as file:
            found = json.loads(file.read())
    except FileNotFoundError:
        return
    except OSError:
        yield _unknown(name)
        return
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        invalid = sorted(option for option, value in found.items() if not _is_valid(option, value))
        if invalid:
            reason = (
                f"invalid value for {', '.join(invalid)}: writers use the default; pass a value to "
                "forebay.open once, or run forebay repair"
            )
            yield Check(name, "invalid", ADVICE, reason)
        else:
            yield Check(name, ", ".join(sorted(found)), OK, "")
    else:
        reason = (
            "the file is not a table of options, so writers use the defaults: run forebay repair, "
            "or pass the options of the store to forebay.open once"
        )
        yield Check(name, "damaged", ADVICE, reason)


def _swap(machine: Machine) -> Check:
    name = "vm.swappiness"
    value = machine.number("proc/sys/vm/swappiness")
    if value is None:
        return _unknown(name)
    if machine.has_swap() is False:
        return Check(name, str(value), OK, "there is no swap")
    if value > 10:
        reason = "the kernel swaps out program pages to keep log pages cached: set it to 1"
        return Check(name, str(value), ADVICE, reason)
    return Check(name, str(value), OK, "")


def _dirty(machine: Machine) -> Iterator[Check]:
    limit, shown = _dirty_bytes(machine, "dirty")
    if limit is None:
        yield _unknown("dirty limit")
    elif limit < _GIB:
        reason = "from half of this limit on, senders are slowed to the speed of the disk: raise it"
        yield Check("dirty limit", shown, ADVICE, reason)
    else:
        yield Check("dirty limit", shown, OK, "")
    background, shown = _dirty_bytes(machine, "dirty_background")
    name = "dirty background limit"
    if background is None:
        yield _unknown(name)
    elif limit is not None and background >= limit:
        reason = "write-back begins when senders already wait: set it to half of the dirty limit"
        yield Check(name, shown, ADVICE, reason)
    elif background > 4 * _GIB:
        reason = (
            "other programs may leave this much unwritten, and a sync then has to wait for it: "
            "set vm.dirty_background_bytes to 1 GiB or less"
        )
        yield Check(name, shown, ADVICE, reason)
    else:
        yield Check(name, shown, OK, "")


def _dirty_bytes(machine: Machine, name: str) -> tuple[int | None, str]:
    """Return a limit in bytes, and its setting: in bytes, or in percent of available memory."""
    exact = machine.number(f"proc/sys/vm/{name}_bytes")
    if exact:
        return exact, f"vm.{name}_bytes = {human(exact)}"
    ratio = machine.number(f"proc/sys/vm/{name}_ratio")
    available = machine.memory("MemAvailable")
    if ratio is None or available is None:
        return None, ""
    limit = available * ratio // 100
    return limit, f"vm.{name}_ratio = {ratio}, {human(limit)}"


def _zone_reclaim(machine: Machine) -> Check:
    name = "vm.zone_reclaim_mode"
    value = machine.number("proc/sys/vm/zone_reclaim_mode")
    if value is None:
        return _unknown(name)
    if value:
        reason = "one node's cache is dropped while other nodes have free memory: set it to 0"
        return Check(name, str(value), ADVICE, reason)
    return Check(name, str(value), OK, "")


def _maps(machine: Machine) -> Check:
    return _at_least(
        "vm.max_map_count",
        machine.number("proc/sys/vm/max_map_count"),
        65_530,
        "every map of the process counts, mapped log files too: raise it to 655360",
    )


def _descriptors(machine: Machine) -> Check:
    return _at_least(
        "open files",
        machine.soft_limit("Max open files"),
        1024,
        "a store needs a few open files besides the program's own: raise it with ulimit -n",
    )


def _locked_memory(machine: Machine, wanted: bool) -> Check:
    name, limit = "locked memory", machine.soft_limit("Max locked memory")
    if not wanted and limit is not None:
        shown = "unlimited" if limit == float("inf") else human(int(limit))
        return Check(name, shown, OK, "it matters only to stores with the option lock_memory")
    reason = (
        "a store with the option lock_memory locks its current log file and the next: "
        "raise it with ulimit -l"
    )
    return _at_least(name, limit, 2 * _LOG_FILE, reason, human)


def _at_least(
    name: str,
    value: int | float | None,
    least: int,
    advice: str,
    show: Callable[[int], str] = str,
) -> Check:
    if value is None:
        return _unknown(name)
    shown = "unlimited" if value == float("inf") else show(int(value))
    if value < least:
        return Check(name, shown, ADVICE, f"{advice} (at least {show(least)})")
    return Check(name, shown, OK, "")


def _huge_pages(machine: Machine) -> Check:
    name = "transparent huge pages"
    value = machine.chosen("sys/kernel/mm/transparent_hugepage/enabled")
    if value is None:
        return _unknown(name)
    return Check(name, value, OK, "no effect on mapped files")


def _clock(machine: Machine) -> Check:
    name = "clock source"
    value = machine.text("sys/devices/system/clocksource/clocksource0/current_clocksource")
    if not value:
        return _unknown(name)
    if value in _SLOW_CLOCKS:
        reason = "each send reads it, and each read is a system call: find out why tsc is not used"
        return Check(name, value, ADVICE, reason)
    return Check(name, value, OK, "")


def _free_space(path: str) -> int | None:
    """Return the free space, in bytes, at an existing path or at its nearest existing parent."""
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    try:
        found = os.statvfs(path)
    except (AttributeError, OSError):
        return None
    return found.f_bavail * found.f_frsize
