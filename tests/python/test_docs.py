"""Docstring examples run as written, and the docs name only tests that exist."""

import contextlib
import doctest
import functools
import http.client
import io
import logging
import re
import subprocess
import sys
import textwrap
import tomllib
from importlib.util import find_spec
from typing import get_origin

import harness
import prometheus_client
import pytest
from golden_stores import KAFKA, unpack
from pages import DOCS, curled, pages

import forebay
import forebay.aio
import forebay.archive
import forebay.cli
import forebay.console
import forebay.duckdb
import forebay.errors
import forebay.hooks
import forebay.metrics
import forebay.options
import forebay.polars
import forebay.progress
import forebay.serde
import forebay.spark
import forebay.store
import forebay.testing

MODULES = (
    *(forebay.aio, forebay.archive, forebay.console, forebay.duckdb, forebay.hooks),
    *(forebay.metrics, forebay.options, forebay.polars, forebay.progress, forebay.serde),
    forebay.testing,
)


def examples():
    """Return every docstring with an example, of all public modules and of their names."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = []
    for module in (forebay, forebay.cli, forebay.spark, *MODULES):
        globs = {"forebay": forebay}
        found += finder.find(module, module.__name__, globs=globs)
        for name in module.__all__:
            value = getattr(module, name)
            if getattr(value, "__doc__", None) and not isinstance(value, str):
                # Without a module it takes all members; those of compiled classes have none.
                found += finder.find(value, f"{module.__name__}.{name}", module=False, globs=globs)
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
        "forebay.archive",
        "forebay.console.Console",
    } <= set(EXAMPLES)
    assert len(EXAMPLES) >= 60


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if name == "forebay.convert":
        unpack_kafka(tmp_path / "kafka-logs")
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    report = []
    results = runner.run(EXAMPLES[name], out=report.append)
    assert results.failed == 0, "".join(report)


def test_only_examples_of_spark_are_skipped_here():
    """A session of Spark is needed for them; test_spark_docs.py has one."""
    skipped = [
        name
        for name, test in EXAMPLES.items()
        if any(example.options.get(doctest.SKIP) for example in test.examples)
    ]
    assert skipped and all(name.startswith("forebay.spark.") for name in skipped)


def test_every_public_name_is_documented():
    for module in (forebay, forebay.errors, forebay.store, *MODULES):
        for name in module.__all__:
            value = getattr(module, name)
            # An alias of a type has a comment instead.
            assert value.__doc__ or get_origin(value), name


def blocks(page):
    """Return the Python blocks of a page, each with the output that the page shows after it."""
    code = r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?"
    return re.findall(code, (DOCS / page).read_text(), re.DOTALL)


def unpack_kafka(folder):
    """Unpack a log directory of Kafka's with one partition."""
    unpack("none-0", folder, KAFKA).rename(folder / "orders-0")


def run_block(code, names):
    """Run a block; return what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "<page>", "exec"), names)
    return printed.getvalue()


#: Pages whose blocks other tests run: they need Spark, a loop in debug mode, pytest, or a server.
ELSEWHERE = {
    "../README.md",
    "asyncio.md",
    "spark-jobs.md",
    "spark-kafka.md",
    "spark-tutorial.md",
    "spark.md",
    "testing.md",
    "web-workers.md",
}


#: Pages that archive a log file, which has 1 GiB by default.
ARCHIVING = {"archive.md", "operations.md"}


def open_smaller(opens, *path, **options):
    """Open a store for writing, with smaller log files than by default."""
    if not {"engine", "mode"} & options.keys():
        options["commitlog_file_size"] = 16 << 20
    return opens(*path, **options)


@pytest.mark.parametrize(
    "page", [page for page in pages() if page not in ELSEWHERE and blocks(page)]
)
def test_the_blocks_of_a_page_run_one_after_another(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(prometheus_client, "REGISTRY", prometheus_client.CollectorRegistry())
    unpack("broker", tmp_path)
    unpack_kafka(tmp_path / "kafka-logs")
    if page in ARCHIVING:
        monkeypatch.setattr(forebay, "open", functools.partial(open_smaller, forebay.open))
    names = {"__name__": "__main__"}
    for code, expected in blocks(page):
        printed = run_block(code, names)
        if expected:
            assert printed.strip() == expected.strip(), code


def test_the_page_of_asyncio_runs_and_finds_a_call_that_blocks(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    for code, expected in blocks("asyncio.md"):
        is_blocking = "slow_callback_duration" in code
        with caplog.at_level(logging.WARNING if is_blocking else logging.ERROR, logger="asyncio"):
            printed = run_block(code, {"__name__": "__main__"})
        assert printed.strip() == expected.strip(), code
    found = [record.getMessage() for record in caplog.records if record.name == "asyncio"]
    assert any(re.match(r"Executing <Task .* took [\d.]+ seconds", text) for text in found)


def test_the_page_of_testing_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tests, _), (elsewhere, _) = blocks("testing.md")
    (tmp_path / "test_page.py").write_text(tests)
    words = ["-m", "pytest", "-p", "pytest_forebay", "-q", "-p", "no:cacheprovider", "test_page.py"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
    assert run_block(elsewhere, {"__name__": "__main__"}) == "1767229200000\n"


def posted(port, body):
    """Send a request, on a connection of its own; return the status of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=harness.LONG_S)
    connection.request("POST", "/", body=body, headers={"X-User": "42"})
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.parametrize("preload", [[], ["--preload"]], ids=["import", "preload"])
def test_the_page_of_web_workers_runs_under_gunicorn(preload, tmp_path, monkeypatch):
    if find_spec("gunicorn") is None:
        harness.lacks("gunicorn", "gunicorn is not installed")
    monkeypatch.chdir(tmp_path)
    (service, _), (read, _) = blocks("web-workers.md")
    (tmp_path / "service.py").write_text(service)
    words = ["-m", "gunicorn", "--workers", "2", "--bind", "127.0.0.1:0", *preload, "service:app"]
    with subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, text=True) as server:
        try:
            (port,) = next(
                filter(None, (re.findall(r"127\.0\.0\.1:(\d+)", it) for it in server.stderr))
            )
            bodies = [f"click {number}" for number in range(20)]
            statuses = [posted(port, body) for body in bodies]
            curled("web-workers.md", f"http://127.0.0.1:{port}")
        finally:
            server.terminate()
            server.communicate(timeout=harness.LONG_S)
    assert statuses == [204] * 20
    printed = run_block(read, {})
    assert sorted(printed.splitlines()) == (
        sorted(f"42 {body.encode()!r}" for body in [*bodies, "look"])
    )


def test_the_readme_runs(tmp_path, monkeypatch):
    """All but its block of Spark, which test_spark_docs.py runs."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for code, _ in blocks("../README.md"):
        if "async with" in code:
            body = textwrap.indent(code, "    ")
            code = f"import asyncio\nasync def main():\n{body}\nasyncio.run(main())"
        if "spark" not in code:
            run_block(code, names)


def test_every_test_that_the_durability_page_names_exists():
    root = DOCS.parent
    page = (DOCS / "durability.md").read_text()
    cells = page.split("## The tests behind the cells")[1].split("##")[0]
    named = set(re.findall(r"`([\w/.]+)`", cells))
    assert len(named) >= 8
    sources = {path: path.read_text() for path in (root / "src" / "sim").rglob("*.rs")}
    sources |= {path: path.read_text() for path in (root / "tests").rglob("*.rs")}
    for name in named:
        if name.endswith((".py", ".rs")):
            assert list(root.glob(name)) or list((root / "tests" / "faults").glob(name)), name
        else:
            assert any(f"fn {name}(" in text for text in sources.values()), name


def test_the_links_of_the_readme_are_absolute_and_lead_to_pages():
    """The README is also the page of the package, where a relative link leads nowhere."""
    root = DOCS.parent
    urls = tomllib.loads((root / "pyproject.toml").read_text())["project"]["urls"]
    links = re.findall(r"\]\(([^)]+)\)", (root / "README.md").read_text())
    assert len(links) > 10
    for link in links:
        if link.startswith(urls["Repository"]):
            assert (root / link.partition("/blob/main/")[2]).is_file(), link
            continue
        assert link.startswith(urls["Homepage"]) and link.endswith("/"), link
        name = link.removeprefix(urls["Homepage"]).strip("/")
        assert (DOCS / f"{name}.md").is_file() or (DOCS / name / "index.md").is_file(), link


def test_each_image_is_small_and_on_a_page():
    text = "".join((DOCS / page).read_text() for page in pages())
    for image in (DOCS / "images").iterdir():
        assert f"images/{image.name}" in text, image.name
        assert image.stat().st_size < 150_000, image.name
