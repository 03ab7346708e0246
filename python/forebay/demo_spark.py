"""The Spark part of the demo, run in a child process.

Spark writes freely to standard error, and its JVM survives an interrupted call. In a child process
neither affects the demo's terminal. `aggregate` starts the child; run as a module, this file is the
child.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["aggregate", "missing"]

#: Far longer than the job takes; a machine that exceeds it has another problem.
_TIMEOUT_SECONDS = 300


def missing() -> str | None:
    """Return which requirement of Spark is missing, or `None`."""
    for package in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed: pip install 'forebay[spark]'"
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and Path(home, "bin", "java").exists()):
        return "java was not found; Spark needs JDK 17 or later"
    return None


def aggregate(stores: list[Path], folder: Path) -> dict[str, Any] | str:
    """Count the messages of stores by topic; return the result, or the reason for a failure.

    Parameters
    ----------
    stores
        Directories of the stores.
    folder
        Directory for Spark's files; it is created.
    """
    folder.mkdir()
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder),
    }
    command = [sys.executable, "-m", "forebay.demo_spark", *(str(path) for path in stores)]
    with open(folder / "log", "wb") as log:
        # The JVM ignores Ctrl-C. In a session of their own, child and JVM can be killed together.
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        try:
            out, _ = child.communicate(timeout=_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            return f"it took longer than {_TIMEOUT_SECONDS} seconds"
        finally:
            _end(child)
    if child.returncode:
        return _last_line(folder / "log")
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill the child and the JVM that it may have left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").split("\n")
    said = [line.strip() for line in lines if line.strip()]
    return said[-1] if said else "it printed no error"


def _main(stores: list[str]) -> None:
    from pyspark.sql import SparkSession, functions

    import forebay.spark

    begin = time.perf_counter()
    builder = SparkSession.builder.master("local[*]").appName("forebay demo")
    for name, value in (
        ("spark.ui.enabled", "false"),
        ("spark.driver.host", "127.0.0.1"),
        ("spark.driver.bindAddress", "127.0.0.1"),
        ("spark.sql.shuffle.partitions", "2"),
    ):
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    forebay.spark.register(spark)
    started = time.perf_counter()
    frames = [
        spark.read.format("forebay").option("subscribePattern", ".*").load(path) for path in stores
    ]
    messages = frames[0]
    for frame in frames[1:]:
        messages = messages.union(frame)
    counted = messages.groupBy("topic").agg(
        functions.count("*"),
        functions.sum(functions.octet_length("value")),
        functions.countDistinct("partition"),
    )
    rows = [list(row) for row in counted.orderBy("topic").collect()]
    found = {
        "version": spark.version,
        "cores": spark.sparkContext.defaultParallelism,
        "partitions": messages.rdd.getNumPartitions(),
        "start": started - begin,
        "took": time.perf_counter() - started,
        "rows": rows,
    }
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    _main(sys.argv[1:])
