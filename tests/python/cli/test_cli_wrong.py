"""A wrong value of each option and argument: one line, status 1 or 2, no word of Python."""

import argparse
import os
import random
import shutil
import sys

import pytest
from harness import PROOF, seed
from test_cli_newcomer import PYTHON, parsers, required

import forebay
from forebay import cli

#: A valid value of each argument of the verbs.
RIGHT = {
    "store": "store", "source": "store", "target": "target", "output": "out.csv", "path": ".",
    "topic": "orders", "topics": "orders", "key": "k1", "body": "x", "group": "billing",
    "query": "q", "batch": "1", "shell": "bash",
}  # fmt: skip
#: A refused value of each option that takes text; None if the option accepts any text.
TEXT = {
    "--file": "none", "--key": "two words", "--topic": "none", "--conf": "none", "--host": "a..b",
    "--folder": "none/none", "--target": ":memory:", "--delimiter": None, "--allow-host": None,
    "--svg": None, "--html": None,
}  # fmt: skip
#: The same for options of one verb.
OF_VERB = {
    ("send", "--tags"): "", ("dlq", "redrive", "--to"): "a/b",
    ("cat", "--tags"): None, ("tail", "--tags"): None, ("export", "--tags"): None,
    # What runs is a program, with errors of its own; a URL is for Spark, which starts Java.
    ("shell", "--command"): None, ("spark", "--master"): None, ("spark", "--topic"): None,
    ("spark", "--partition-by"): None,
}  # fmt: skip
NASTY = ("no such value", "", "x\udcff", "9" * 30, "a/b")
#: Verbs that serve or measure, or start Java.
LONG = ("demo", "console", "bench", "spark")


@pytest.fixture
def stores(store, monkeypatch):
    """Return the folder of a store with a group and a dead letter, and of a partition log."""
    monkeypatch.chdir(store.parent)
    with forebay.open("store") as opened, opened.consumer("orders", group="billing") as consumer:
        first, *rest = consumer.poll(timeout=0)
        consumer.reject(first, "no such fruit")
        consumer.ack(rest)
    with forebay.open("log", engine="partitionlog") as log:
        log.send("orders", b"x", key="k1")
    return store.parent


def verbs():
    """Yield the words of each verb without verbs within it, and its parser."""
    for words, parser in parsers(cli.make_parser()):
        if not any(isinstance(it, argparse._SubParsersAction) for it in parser._actions):
            yield words, parser


def command(words, parser, name, value):
    """Return a command in which an option or an argument has a value, and the rest is right."""
    options = dict(zip(required(parser)[::2], required(parser)[1::2], strict=True))
    given = dict(RIGHT)
    if words in (("compact",), ("dlq", "redrive")):
        given["store"] = "log" if words == ("compact",) else "store"
    if name.startswith("-"):
        options[name] = value
    else:
        given[name] = value
    places = [given[it.dest] for it in parser._actions if not it.option_strings]
    return [*words, *(f"{name}={text}" for name, text in options.items()), "--", *places]


def complaint(run, words, statuses):
    status, _, err = run(*words)
    assert status in statuses, (words, status, err)
    if status:
        assert err.startswith("forebay") and err.count("\n") == 1, (words, err)
        assert PYTHON.findall(err) == [], (words, err)
    return err


def wrong(words, action):
    """Return a value that an option refuses; None if there is none."""
    option = action.option_strings[-1]
    if action.type is not None and action.type is not os.fsencode and option != "--target":
        return "no such value"
    if action.choices is not None:
        return "no such value"
    for known in ((*words, option), (words[0], option)):
        if known in OF_VERB:
            return OF_VERB[known]
    assert option in TEXT, f"{words} {option} is not tried"
    return TEXT[option]


def test_a_wrong_value_of_each_option_is_refused_in_one_line(run, stores):
    tried = 0
    for words, parser in verbs():
        for action in parser._actions:
            if not action.option_strings or action.nargs == 0:
                continue
            value = wrong(words, action)
            if value is not None:
                typed = command(words, parser, action.option_strings[-1], value)
                complaint(run, typed, (1, 2))
                tried += 1
    assert tried > 45


@pytest.mark.parametrize(
    ("missing", "words", "extra"),
    [
        ("pyspark", ("spark", "audit", "store"), "spark"),
        ("pyarrow", ("archive", "store", "s3://bucket/x"), "arrow"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(run, stores, monkeypatch, missing, words, extra):
    for name in [name for name in sys.modules if name.startswith(("forebay.spark", missing))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    said = complaint(run, words, (1,))
    assert "pip install 'forebay[" + extra in said and "unexpected" not in said


@pytest.mark.parametrize("option", ["--messages", "--body", "--topics", "--rounds"])
def test_numbers_of_a_measurement_have_bounds(run, option):
    complaint(run, ("bench", "topics", option, str(1 << 63)), (2,))
    if option != "--rounds":
        complaint(run, ("bench", "topics", option, str((1 << 63) - 1)), (2,))


def test_odd_values_of_options_and_arguments_are_taken_or_refused_in_one_line(run, stores):
    draw = random.Random(seed())
    for words, parser in verbs():
        if words[0] in LONG:
            continue
        for action in parser._actions:
            name = action.option_strings[-1] if action.option_strings else action.dest
            if action.nargs == 0 or (words[0], name) == ("shell", "--command"):
                continue
            for value in NASTY if PROOF else draw.sample(NASTY, 2):
                complaint(run, command(words, parser, name, value), (0, 1, 2))
                shutil.rmtree("target", ignore_errors=True)
                shutil.rmtree("target.converting", ignore_errors=True)


def test_an_option_is_named_as_it_is_typed(run, stores):
    words = ("compact", "log", "orders", "--segment-bytes", "5")
    assert complaint(run, words, (1,)).startswith("forebay: --segment-bytes must be between")
    words = ("convert", "store", "", "--engine", "partitionlog")
    assert "argument DST: must name a directory, got ''" in complaint(run, words, (2,))
    words = ("send", "store", "orders", "x", "--tags", "x\udcff")
    assert "--tags must be UTF-8" in complaint(run, words, (1,))
    words = ("dlq", "redrive", "store", "billing", "--to", "x\udcff")
    assert "--to must be UTF-8" in complaint(run, words, (1,))
