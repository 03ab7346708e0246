"""The examples in the docstrings run as they are written."""

import doctest

import pytest

import forebay
import forebay.errors
import forebay.store


def examples():
    """Every docstring of a public name that has an example."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = finder.find(forebay.__doc__ and forebay, "forebay", globs={"forebay": forebay})
    for name in forebay.__all__:
        value = getattr(forebay, name)
        if getattr(value, "__doc__", None) and not isinstance(value, str):
            # Without a module the finder takes all members; those of compiled classes name none.
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
