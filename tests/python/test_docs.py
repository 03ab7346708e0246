"""Docstring examples run as written, and the docs name only tests that exist."""

import contextlib
import doctest
import io
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import get_origin

import prometheus_client
import pytest

import forebay
import forebay.aio
import forebay.duckdb
import forebay.errors
import forebay.hooks
import forebay.metrics
import forebay.options
import forebay.polars
import forebay.serde
import forebay.store
import forebay.testing

MODULES = (
    *(forebay.aio, forebay.duckdb, forebay.hooks, forebay.metrics, forebay.options),
    *(forebay.polars, forebay.serde, forebay.testing),
)

DOCS = Path(__file__).parents[2] / "docs"


def examples():
    """Return every docstring with an example, of all public names."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = finder.find(forebay.__doc__ and forebay, "forebay", globs={"forebay": forebay})
    for name in forebay.__all__:
        value = getattr(forebay, name)
        if getattr(value, "__doc__", None) and not isinstance(value, str):
            # Without a module the finder takes all members; those of compiled classes have none.
            found += finder.find(value, f"forebay.{name}", module=False, globs={"forebay": forebay})
    for module in MODULES:
        found += finder.find(module, globs={"forebay": forebay})
    return {test.name: test for test in found if test.examples}


EXAMPLES = examples()


def test_the_public_classes_and_methods_have_examples():
    assert {
        "forebay",
        "forebay.open",
        "forebay.Store",
        "forebay.Store.tail",
        "forebay.Producer.send_batch",
        "forebay.Message",
        "forebay.Scan",
    } <= set(EXAMPLES)
    assert len(EXAMPLES) >= 20


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_runs(name):
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    report = []
    results = runner.run(EXAMPLES[name], out=report.append)
    assert results.failed == 0, "".join(report)


def test_every_public_name_is_documented():
    for module in (forebay, forebay.errors, forebay.store, *MODULES):
        for name in module.__all__:
            value = getattr(module, name)
            # An alias of a type has a comment instead.
            assert value.__doc__ or get_origin(value), name


def blocks(page):
    """Return the code blocks of a page."""
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def run_block(code):
    """Run a block as a program; return what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {"__name__": "__main__"})
    return printed.getvalue()


def test_the_page_of_asyncio_runs_and_finds_a_call_that_blocks(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    first, blocking, several = blocks("asyncio.md")
    printed = run_block(first)
    assert "b'apples'" in printed and "b'pears'" in printed
    assert len(printed.splitlines()) == 4
    with caplog.at_level(logging.WARNING, logger="asyncio"):
        run_block(blocking)
    found = [record.getMessage() for record in caplog.records if record.name == "asyncio"]
    assert any(re.match(r"Executing <Task .* took [\d.]+ seconds", text) for text in found)
    run_block(several)


def test_the_page_of_testing_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tests, elsewhere = blocks("testing.md")
    (tmp_path / "test_page.py").write_text(tests)
    words = ["-m", "pytest", "-p", "pytest_forebay", "-q", "-p", "no:cacheprovider", "test_page.py"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
    assert run_block(elsewhere) == "1767229200000\n"


def test_the_page_of_engines_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    by_polars, by_duckdb = blocks("engines.md")
    assert run_block(by_polars) == "2\n"
    assert run_block(by_duckdb) == "[(2,)]\n"


def test_the_page_of_metrics_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(prometheus_client, "REGISTRY", prometheus_client.CollectorRegistry())
    by_prometheus, by_opentelemetry, traced, in_a_loop = blocks("metrics.md")
    run_block(by_prometheus)
    run_block(by_opentelemetry)
    assert run_block(traced) == "b'apples'\n"
    run_block(in_a_loop)


def test_the_page_of_serde_runs():
    (code,) = blocks("serde.md")
    assert run_block(code).split() == ["apples", "pears", "plums"]


def test_the_page_of_consumers_runs():
    (code,) = blocks("consumers.md")
    assert run_block(code) == "b'apples'\nb'pears'\n"


def test_every_test_that_the_durability_page_names_exists():
    root = DOCS.parent
    page = (DOCS / "durability.md").read_text()
    cells = page.split("## The tests behind the cells")[1].split("##")[0]
    named = set(re.findall(r"`([\w/.]+)`", cells))
    assert len(named) >= 8
    sources = {path: path.read_text() for path in (root / "src" / "sim").glob("*.rs")}
    sources |= {path: path.read_text() for path in (root / "tests").rglob("*.rs")}
    for name in named:
        if name.endswith((".py", ".rs")):
            assert list(root.glob(name)) or list((root / "tests" / "faults").glob(name)), name
        else:
            assert any(f"fn {name}(" in text for text in sources.values()), name
