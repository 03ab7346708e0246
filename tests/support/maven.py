"""Build the Java programs of the compatibility tests with Maven, which may fetch jars."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

#: Maven ends before an optimising compiler pays off.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def unavailable() -> str | None:
    """Return why Java programs cannot be built and run here; None if they can."""
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


def classpath(project: Path, target: Path, *options: str) -> str:
    """Build the program of a project if necessary, and return its class path.

    `target` is the folder that the project's pom.xml builds in. Maven is first run offline, which
    suffices once the jars have been downloaded.
    """
    stored = target / "classpath.txt"
    target.mkdir(parents=True, exist_ok=True)
    with open(target.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_current(project, stored):
            command = ["mvn", "-q", "-B", *options, "process-classes"]
            given = os.environ.get("MAVEN_OPTS", "")
            place = {"cwd": project, "env": os.environ | {"MAVEN_OPTS": f"{QUICK} {given}"}}
            offline = subprocess.run([*command, "-o"], capture_output=True, **place)
            if offline.returncode != 0:
                online = subprocess.run(command, capture_output=True, text=True, **place)
                if online.returncode != 0:
                    raise RuntimeError(f"maven fails:\n{online.stdout}{online.stderr}")
            os.utime(stored)
    return f"{target / 'classes'}{os.pathsep}{stored.read_text().strip()}"


def _is_current(project: Path, stored: Path) -> bool:
    if not stored.exists():
        return False
    sources = [project / "pom.xml", *(project / "src").rglob("*")]
    newest = max(source.stat().st_mtime for source in sources)
    jars = stored.read_text().strip().split(os.pathsep)
    return stored.stat().st_mtime >= newest and all(os.path.exists(jar) for jar in jars)
