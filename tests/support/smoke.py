"""Tries a package as someone who knows nothing of the project would get it.

``python tests/support/smoke.py FILE [--stripped]`` makes an environment of the interpreter that
runs it, installs a wheel or a source archive there, and checks in an empty directory that the
package is complete, that a process sends and is killed, and that another recovers what was sent and
scans it. It needs nothing but Python with pip; a source archive also needs Rust.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

#: How many sends the parent waits for before it kills the child.
SENDS = 500

#: Sends until it is killed, and says which offsets it has.
WRITER = """
import forebay
store = forebay.open("events", default_queues=1)
orders = store.producer("orders")
while True:
    sent = orders.send(b"3 apples", key="42", tags="paid")
    print(sent.offset, flush=True)
"""

#: Recovers the store, and reads it in every way that needs no other package.
READER = """
import ctypes, sys, sysconfig
import forebay

class Array(ctypes.Structure):
    pass

class Stream(ctypes.Structure):
    pass

Release = ctypes.CFUNCTYPE(None, ctypes.POINTER(Array))
Array._fields_ = [
    *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "buffers", "children")),
    *((name, ctypes.c_void_p) for name in ("buffer", "child", "dictionary")),
    ("release", Release), ("private", ctypes.c_void_p),
]
Next = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Stream), ctypes.POINTER(Array))
Stream._fields_ = [
    ("schema", ctypes.c_void_p), ("next", Next), ("error", ctypes.c_void_p),
    ("release", ctypes.c_void_p), ("private", ctypes.c_void_p),
]

def rows(scan):
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = scan.__arrow_c_stream__()
    stream = Stream.from_address(pointer(capsule, b"arrow_array_stream"))
    count = 0
    while True:
        array = Array()
        assert stream.next(stream, array) == 0
        if not array.release:
            return count
        count += array.length
        array.release(array)

if sysconfig.get_config_var("Py_GIL_DISABLED"):
    assert not sys._is_gil_enabled(), "the package turned the interpreter's lock on"
acknowledged = int(sys.argv[1])
with forebay.open("events") as store:
    assert not store.recovery.clean, store.recovery
    assert store.damage == []
    end = store.topics["orders"].queues[0].max_offset
    assert end > acknowledged, (end, acknowledged)
    assert rows(store.scan("orders")) == end
    assert store.get("orders", 0, acknowledged).body == b"3 apples"
    assert len(store.query("orders", key="42", max_messages=1)) == 1
    assert store.send("orders", b"4 pears", flush=True).durable
    with store.consumer("orders", group="billing") as consumer:
        consumer.ack(consumer.poll(10, timeout=10))
    assert store.verify().ok
"""

#: Says which files of the package are missing.
CONTENTS = """
from importlib.metadata import files, metadata
names = {file.as_posix() for file in files("forebay") if file.locate().exists()}
about = metadata("forebay")
tail = f"forebay-{about['Version']}.dist-info/"
wanted = [
    "forebay/py.typed", "forebay/_forebay.pyi", "forebay/console/static/index.html",
    "forebay/data/rocketmq-broker.tar.gz", "pytest_forebay/__init__.py",
    "forebay_command/__init__.py",
    tail + "licenses/LICENSE", tail + "sboms/forebay.cyclonedx.json",
]
assert not set(wanted) - names, sorted(set(wanted) - names)
assert not [name for name in names if name.startswith(("tests/", "src/", "docs/"))]
assert about["Description-Content-Type"].startswith("text/markdown")
assert len(about.get_all("Project-URL")) >= 4
"""

#: Sections of an ELF file that a stripped one does not have.
SYMBOLS = (b"\0.symtab\0", b"\0.debug_info\0", b"\0.debug_line\0")


class Place:
    """An environment in which the package is installed, and an empty directory beside it."""

    def __init__(self, folder: Path, package: Path) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        venv.create(folder / "env")
        self._bin = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
        }
        index = ["--no-index"] if package.suffix == ".whl" else []
        # A pip of its own would take longer to install than the package.
        words = ["-m", "pip", "--python", self.python, "install", "--quiet"]
        words += ["--disable-pip-version-check", *index]
        self.run(sys.executable, *words, str(package.resolve()))

    @property
    def python(self) -> str:
        return str(self._bin / "python")

    @property
    def command(self) -> str:
        """The command that the package installs."""
        return str(self._bin / "forebay")

    def program(self, text: str, *arguments: str) -> list[str]:
        return [self.python, "-I", "-W", "error", "-c", text, *arguments]

    def run(self, *words: str) -> str:
        """Run a command to its end and return what it printed."""
        done = subprocess.run(
            words, cwd=self.work, env=self._environment, stdout=subprocess.PIPE, text=True
        )
        if done.returncode:
            sys.exit(f"{' '.join(words)[:200]} ended with {done.returncode}")
        return done.stdout

    def kill_while_it_sends(self) -> int:
        """Kill a process that sends; return the last offset of which it knew."""
        with subprocess.Popen(
            self.program(WRITER), cwd=self.work, env=self._environment, stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            for _ in range(SENDS):
                line = child.stdout.readline()
                if not line:
                    sys.exit(f"the sender ended with {child.wait()}")
            child.kill()
        return int(line)

    def symbols(self) -> list[str]:
        """Return the names of sections in the library that stripping removes."""
        show = "import forebay._forebay as it; print(it.__file__)"
        library = Path(self.run(*self.program(show)).strip()).read_bytes()
        return [name.strip(b"\0").decode() for name in SYMBOLS if name in library]


def smoke(package: Path, *, stripped: bool = False) -> None:
    """Install a package somewhere, and try it."""
    with tempfile.TemporaryDirectory(prefix="forebay-smoke-") as folder:
        place = Place(Path(folder).resolve(), package)
        place.run(*place.program(CONTENTS))
        acknowledged = place.kill_while_it_sends()
        place.run(*place.program(READER, str(acknowledged)))
        place.run(place.command, "verify", "events")
        assert "orders" in place.run(place.command, "topics", "events", "--json")
        place.run(place.python, "-m", "forebay", "--version")
        if stripped and (found := place.symbols()):
            sys.exit(f"the library is not stripped: it has {', '.join(found)}")


def main() -> None:
    """Try the packages that the command line names."""
    parser = argparse.ArgumentParser(description="Try a wheel or a source archive.")
    parser.add_argument("packages", metavar="FILE", nargs="+", type=Path)
    parser.add_argument("--stripped", action="store_true", help="it must have no symbols")
    given = parser.parse_args()
    for package in given.packages:
        smoke(package, stripped=given.stripped)
        print(f"{package.name}: sent, killed, recovered, scanned")


if __name__ == "__main__":
    main()
