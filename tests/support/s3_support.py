"""An object store for tests: moto's S3 server, in a separate process.

So moto's warnings fail no test, and Spark's workers can reach it like any server.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

SERVER = """
import logging, sys
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
server.start()
print("port", server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""

#: Credentials that clients must have, and the server ignores.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextmanager
def running() -> Iterator[str]:
    """Run a server, and yield the query of URIs that lead to it."""
    if importlib.util.find_spec("moto") is None:
        pytest.skip("moto is not installed: pip install 'moto[s3]' flask flask-cors")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", SERVER], text=True, **pipes) as child:
        try:
            # The server prints other lines too.
            ports = (line.split()[1] for line in child.stdout if line.startswith("port "))
            port = next(ports, None)
            assert port is not None, "the server did not start"
            yield f"scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1"
        finally:
            child.stdin.close()


def bucket(query: str) -> str:
    """Create a bucket, and return the URI of a prefix in it, without its query."""
    from pyarrow import fs

    name = f"bucket-{uuid.uuid4().hex}"
    filesystem, _ = fs.FileSystem.from_uri(f"s3://{name}?{query}&allow_bucket_creation=true")
    filesystem.create_dir(name)
    return f"s3://{name}/archives/events"
