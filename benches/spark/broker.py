"""A Kafka broker on loopback, and the jars of Spark's Kafka connector.

Maven fetches both (`pom.xml`). The caller provides the folder for the broker's log, and removes it.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator

HERE = pathlib.Path(__file__).resolve().parent
JARS = HERE.parents[1] / "target" / "bench-spark"
GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.7.1:copy-dependencies"
#: Only these jars are added to Spark, which already has the others.
CONNECTOR = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2")
START_SECONDS = 60

PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/log
num.partitions=2
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


def jars(profile: str) -> list[pathlib.Path]:
    """Return the jars of a profile of `pom.xml`; fetch them if they are missing."""
    folder = JARS / profile
    if not folder.is_dir():
        command = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), "-P", profile, GOAL]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
        subprocess.run(command, check=True)
    return sorted(folder.glob("*.jar"))


def connector_jars() -> str:
    """Return the jars of the connector in the form of `spark.jars`."""
    return ",".join(str(jar) for jar in jars("connector") if jar.name.startswith(CONNECTOR))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def broker(folder: str) -> Iterator[str]:
    """Run a broker whose log is in a folder, and yield its address."""
    port, controller = free_port(), free_port()
    path = pathlib.Path(folder) / "server.properties"
    path.write_text(PROPERTIES.format(port=port, controller=controller, folder=folder))
    classes = os.pathsep.join(str(jar) for jar in jars("broker"))
    java = ["java", "-Xmx1g", "-cp", classes]
    cluster = str(uuid.uuid4())
    formatting = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(path)]
    subprocess.run(formatting, check=True, stdout=subprocess.DEVNULL)
    running = subprocess.Popen([*java, "kafka.Kafka", str(path)], stdout=subprocess.DEVNULL)
    try:
        wait_for(port, running)
        yield f"127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait()


def wait_for(port: int, running: subprocess.Popen[bytes]) -> None:
    """Wait until the port accepts connections."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and running.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise RuntimeError(f"the broker does not answer on port {port}")
