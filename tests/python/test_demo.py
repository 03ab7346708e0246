"""The demo: a small run of it, its clean-up, and its Spark part."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import forebay
from forebay import demo, demo_spark
from forebay.cli import main

ROOT = Path(__file__).parent.parent.parent
PACKED = Path("data", "rocketmq-broker.tar.gz")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Shrink the demo and give it a temporary folder of its own."""
    for name, size in (("_BATCHED", 3000), ("_SINGLE", 500), ("_FROM_ARROW", 2000)):
        monkeypatch.setattr(demo, name, size)
    monkeypatch.setattr(demo, "_DURABLE", 5)
    monkeypatch.setattr(demo, "_QUERIES", 50)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_package_contains_the_archive_of_the_examples():
    packaged = Path(forebay.__file__).parent / PACKED
    assert packaged.read_bytes() == (ROOT / "examples" / PACKED).read_bytes()


def test_the_demo_prints_its_figures_and_leaves_no_files(folder, capfd):
    assert main(["demo", "--without-spark"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert re.search(r"^fx-orders +4 +202$", out, re.MULTILINE)
    assert "'order-13'" in out
    assert "223 rows" in out
    assert "no file in the directory changed" in out
    for line in (
        r"send_batch\(1,000\): 3,000 of orders in .+, [0-9.,]+( million)? a second",
        r"producer.send, one at a time: 500 of payments in ",
        r"send_arrow of a table: 2,000 of audit in ",
        r"each flushed to disk: 5 of ledger in ",
        r"as Message objects: 3,000 of orders in ",
        r"50 queries by key: median ",
        r"bodies gathered: 5,505 of all topics in ",
        r"the mapped log itself: 5,505 of all topics in ",
        r"Polars groups 3,000 rows",
        r"DuckDB sums 5,505 bodies to 537.6 KiB",
        r"skipped Spark: --without-spark was given",
    ):
        assert re.search(line, out), line
    assert list(folder.iterdir()) == []


def test_the_demo_names_missing_packages(folder, capfd, monkeypatch):
    monkeypatch.setattr(demo, "_has", lambda package: False)
    monkeypatch.setattr(demo_spark, "missing", lambda: "java was not found")
    assert main(["demo"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert out.count("pip install 'forebay[arrow]'") == 3
    assert "skipped Spark: java was not found\n" in out
    assert list(folder.iterdir()) == []


def test_an_interrupted_demo_cleans_up_and_ends_with_130(folder, capfd, monkeypatch):
    def interrupt(_store: forebay.Store) -> None:
        assert list(folder.iterdir()) != []
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "_read", interrupt)
    assert main(["demo"]) == 130
    assert capfd.readouterr().err == ""
    assert list(folder.iterdir()) == []


def test_missing_requirements_of_spark_are_named(monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    missing = demo_spark.missing()
    assert missing is not None
    assert "java" in missing
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert demo_spark.missing() == "pyspark is not installed: pip install 'forebay[spark]'"


def test_a_failure_of_spark_is_reported_in_one_line(tmp_path, monkeypatch):
    pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    found = demo_spark.aggregate([], tmp_path / "spark")
    assert isinstance(found, str)
    assert found
    assert "\n" not in found


@pytest.mark.skipif("FOREBAY_PROOF" not in os.environ, reason="takes a minute: see make proof")
def test_the_whole_demo_runs_with_spark_over_both_stores():
    done = subprocess.run(
        [sys.executable, "-m", "forebay", "demo"], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert re.search(r"^orders +500,000 +50,000,000 +8$", done.stdout, re.MULTILINE)
    assert re.search(r"^fx-orders +202 +9,494 +4$", done.stdout, re.MULTILINE)
