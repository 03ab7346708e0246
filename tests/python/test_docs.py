"""Docstring examples run as written, and the docs name only tests that exist."""

import doctest
import re
from pathlib import Path

import pytest

import forebay
import forebay.errors
import forebay.store


def examples():
    """Return every docstring with an example, of all public names."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = finder.find(forebay.__doc__ and forebay, "forebay", globs={"forebay": forebay})
    for name in forebay.__all__:
        value = getattr(forebay, name)
        if getattr(value, "__doc__", None) and not isinstance(value, str):
            # Without a module the finder takes all members; those of compiled classes have none.
            found += finder.find(value, f"forebay.{name}", module=False, globs={"forebay": forebay})
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
    for module in (forebay, forebay.errors, forebay.store):
        for name in module.__all__:
            assert getattr(module, name).__doc__, name


def test_every_test_that_the_durability_page_names_exists():
    root = Path(__file__).parents[2]
    page = (root / "docs" / "durability.md").read_text()
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
