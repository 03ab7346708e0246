"""Tries each extra of a wheel in an environment that has nothing else.

``python tests/support/extras.py WHEEL [EXTRA...]`` makes an environment for each extra, installs
the wheel with it there, and runs a program that needs what the extra promises. `make
test-spark-extra` runs Spark's tutorial in the same way.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

#: What each extra is for. Every program finds a store ``events`` with three messages.
PROGRAMS = {
    "arrow": """
import pyarrow, pyarrow.parquet
import forebay
from forebay.cli import main
with forebay.open("events") as store:
    assert pyarrow.table(store.scan("orders")).num_rows == 3
    store.producer("orders").send_arrow(pyarrow.table({"body": [b"a", b"b"], "key": ["1", "2"]}))
main(["export", "events", "events.parquet"])
assert pyarrow.parquet.read_table("events.parquet").num_rows == 5
""",
    "cli": """
import os, pty, subprocess, sys
ours, theirs = pty.openpty()
command = [sys.executable, "-m", "forebay", "topics", "events"]
subprocess.run(command, stdout=theirs, check=True, env=os.environ | {"TERM": "xterm-256color"})
shown = os.read(ours, 1 << 16)
assert b"orders" in shown and b"\\x1b[" in shown, shown
""",
    "polars": """
import polars
import forebay, forebay.polars
with forebay.open("events", mode="r") as store:
    orders = forebay.polars.scan(store, "orders")
    assert orders.filter(polars.col("tags") == "paid").collect().height == 2
""",
    "duckdb": """
import duckdb
import forebay, forebay.duckdb
with forebay.open("events", mode="r") as store, duckdb.connect() as con:
    forebay.duckdb.attach(con, store)
    found = con.sql("select count(*), max(store_timestamp) from orders where tags = 'paid'")
    assert found.fetchall()[0][0] == 2
""",
    "metrics": """
import prometheus_client
from opentelemetry import metrics
import forebay, forebay.hooks, forebay.metrics
with forebay.open("events") as store:
    prometheus_client.REGISTRY.register(forebay.metrics.Collector(store))
    forebay.metrics.instrument(metrics.get_meter("forebay"), store)
    assert b"forebay_up" in prometheus_client.generate_latest()
    on_send, on_consume = forebay.hooks.tracing()
    forebay.hooks.producer(store.producer("orders"), on_send).send(b"traced")
""",
    "serde": """
import pydantic
import forebay, forebay.serde
class Order(pydantic.BaseModel):
    fruit: str
serde = forebay.serde
for each in (serde.json(), serde.msgpack()):
    assert each.loads(each.dumps({"fruit": "apples"})) == {"fruit": "apples"}
orders = serde.pydantic(Order)
assert orders.loads(orders.dumps(Order(fruit="apples"))).fruit == "apples"
""",
    "console": """
import json, re, signal, subprocess, sys, urllib.request
command = [sys.executable, "-m", "forebay", "console", "events", "--port", "0"]
served = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
try:
    address, token = re.search(r"(http://\\S+)#token=(\\S+)", served.stdout.readline()).groups()
    request = urllib.request.Request(address + "api/overview")
    request.add_header("Authorization", "Bearer " + token)
    with urllib.request.urlopen(address) as page, urllib.request.urlopen(request) as figures:
        assert b"<html" in page.read() and json.load(figures)
finally:
    served.send_signal(signal.SIGTERM)
    served.wait()
""",
}

_FILL = """
import forebay
with forebay.open("events", default_queues=1) as store:
    tags = ["paid", "open", "paid"]
    store.producer("orders").send_batch([b"apples", b"pears", b"plums"], tags=tags)
"""


def attempt(wheel: Path, extra: str) -> None:
    """Install a wheel with an extra in an empty environment, and run the extra's program."""
    with tempfile.TemporaryDirectory(prefix="forebay-extra-") as folder:
        # A pip of its own would take longer to install than the wheel.
        venv.create(Path(folder) / "env")
        python = Path(folder) / "env" / "bin" / "python"
        words = ["-m", "pip", "--python", python, "install", "--quiet", f"{wheel}[{extra}]"]
        subprocess.run([sys.executable, *words, "--disable-pip-version-check"], check=True)
        for program in (_FILL, PROGRAMS[extra]):
            subprocess.run([python, "-c", program], cwd=folder, check=True)
    print(f"{extra}: ok", flush=True)


def main() -> None:
    """Try the extras that are named, or all."""
    wheel, *extras = sys.argv[1:]
    for extra in extras or PROGRAMS:
        attempt(Path(wheel), extra)


if __name__ == "__main__":
    main()
