"""How the tests start Spark: short-lived JVMs, with Spark's classes from an archive.

A Spark session spends most of its start on loading some 10,000 classes, and on compiling code that
runs only a few times. The archive (class data sharing) holds the classes as they are in memory, and
a JVM limited to its first compiler, which it calls late, does not optimise. Together they cut the
start of a session from 15 core seconds to 4.

``python tests/support/jvm.py`` creates the archive in ``target/spark``. Without it, or if another
JVM or Spark created it, sessions start too, but more slowly.

Spark puts a zip file of PySpark before the installed package in the path of its Python workers.
Python compiles modules from a zip file each time, which takes 0.4 core seconds per worker, and a
session starts about fifteen. So the workers of the tests are started by a script that restores
their path, and then as forks of a process that has imported PySpark (`spark_workers`).

Each session loads MLlib's extension, which registers functions by Scala's reflection. That takes a
third of the start, and no test uses MLlib; so the tests run a copy of Spark, made of links, without
its jar.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
import shutil
import sys
import uuid
import zlib
from pathlib import Path

import spark_workers

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "target" / "spark"
ARCHIVE = FOLDER / "classes.jsa"
#: A directory on the class path must be empty, or the JVM makes no archive.
CONFIGURATION = FOLDER / "empty"

#: How the name of the jar that the tests do without begins.
MLLIB = "spark-mllib_"

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:CompileThresholdScaling=3", "-XX:+UseSerialGC")
#: Of a driver's heap: few sessions fill it once.
YOUNG = "-Xmn300m"
#: Silences the JVM's remarks about an archive that does not fit; tests read its output.
SILENT = ("-Xlog:disable", "-Xlog:all=error:stderr")
#: The configuration of every session, wherever it is created.
SESSION = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "768m",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def environment(*more: str) -> dict[str, str]:
    """Return the environment for PySpark to start such JVMs; `more` options go to a driver."""
    CONFIGURATION.mkdir(parents=True, exist_ok=True)
    archive = (f"-XX:SharedArchiveFile={ARCHIVE}",) if ARCHIVE.exists() and not more else ()
    quick = " ".join((*QUICK, *SILENT, *archive))
    session = SESSION | {"spark.executor.extraJavaOptions": quick}
    submit = [shlex.quote(f"--conf={name}={value}") for name, value in session.items()]
    worker = _worker()
    return _home() | {
        "PYSPARK_PYTHON": worker,
        # Spark asks for this when it finds a format by itself.
        "PYSPARK_DRIVER_PYTHON": worker,
        "PYSPARK_SUBMIT_ARGS": " ".join((*submit, "pyspark-shell")),
        "SPARK_CONF_DIR": str(CONFIGURATION),
        "SPARK_DAEMON_JAVA_OPTS": quick,
        "SPARK_LAUNCHER_OPTS": " ".join(QUICK),
        # Spark binds to the address of the host name; tests listen on the loopback address.
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": " ".join((quick, YOUNG, *more)),
        spark_workers.ADDRESS: spark_workers.start(),
    }


def _worker() -> str:
    """Return the script that starts a Spark Python worker with the path of this process."""
    path, python = (shlex.quote(it) for it in (os.environ.get("PYTHONPATH", ""), sys.executable))
    client = f"{python} -I -S {shlex.quote(spark_workers.__file__)}"
    text = (
        "#!/bin/sh\n"
        f"export PYTHONPATH={path}\n"
        f'[ "$1" = -m ] && exec {client} {python} "$@"\n'
        f'exec {python} "$@"\n'
    )
    # One script per environment, as another process may be starting workers with its own.
    script = FOLDER / f"python-{zlib.crc32(text.encode()):08x}"
    own = FOLDER / f"{script.name}-{uuid.uuid4().hex}"
    own.write_text(text)
    own.chmod(0o755)
    own.rename(script)
    return str(script)


def _home() -> dict[str, str]:
    """Return where the copy of Spark without MLlib is; nothing if PySpark is not installed."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return {}
    spark = Path(found.origin).parent
    links = {name: spark / name for name in ("bin", "python") if (spark / name).exists()}
    jars = sorted((spark / "jars").glob("*.jar"))
    links |= {f"jars/{jar.name}": jar for jar in jars if not jar.name.startswith(MLLIB)}
    # One copy per Spark; whichever process is the first to finish one makes it the copy.
    home = FOLDER / f"home-{zlib.crc32(repr(sorted(links.items())).encode()):08x}"
    if not home.exists():
        own = FOLDER / f"{home.name}-{uuid.uuid4().hex}"
        (own / "jars").mkdir(parents=True)
        for name, target in links.items():
            _link(own / name, target)
        try:
            own.rename(home)
        except OSError:
            shutil.rmtree(own)
    return {"SPARK_HOME": str(home)}


def _link(link: Path, target: Path) -> None:
    """Create a link, a hard one if possible.

    A JVM that creates an archive resolves the paths of all jars for each of its classes.
    """
    if target.is_file():
        with contextlib.suppress(OSError):
            link.hardlink_to(target)
            return
    link.symlink_to(target)


def make_archive() -> None:
    """Run a session that loads what most tests load, and have its JVM archive the classes."""
    unfinished = ARCHIVE.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    os.environ.update(environment(f"-XX:ArchiveClassesAtExit={unfinished}"))
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource, DataSourceReader

    class Reader(DataSourceReader):
        def read(self, _partition):
            yield from ((number, b"body") for number in range(1000))

    class Source(DataSource):
        def schema(self):
            return "id bigint, value binary"

        def reader(self, schema):
            return Reader()

    spark = SparkSession.builder.master("local[2]").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(Source)
    numbers = spark.read.format("Source").load().selectExpr("*", "cast(id as string) as text")
    numbers.groupBy("value").count().collect()
    numbers.write.mode("overwrite").parquet(str(FOLDER / "rows"))
    spark.read.parquet(str(FOLDER / "rows")).orderBy("text").limit(3).collect()
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    query = stream.writeStream.format("memory").queryName("rows").trigger(availableNow=True)
    query.start().awaitTermination(60)
    # The JVM writes the archive when it exits, which it does at the end of its input.
    process = SparkContext._gateway.proc
    spark.stop()
    process.stdin.close()
    process.wait()
    if unfinished.exists():
        unfinished.rename(ARCHIVE)


if __name__ == "__main__":
    make_archive()
