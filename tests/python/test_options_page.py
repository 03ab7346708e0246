"""The defaults on the page of options are those of the code."""

import math
import re
from pathlib import Path

import pytest

import forebay
from forebay.options import OpenOptions

ROOT = Path(__file__).parents[2]
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "day": 86_400_000, "days": 86_400_000}
#: Defaults that are words: of the machine, of what is on disk, or of RocketMQ.
WORDS = {"engine", "store_host", "delay_levels"}


def documented():
    """Return the text of the default of each option."""
    page = (ROOT / "docs/options.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    return {re.findall("`([a-z_]+)`", row[1])[0]: row[2].strip() for row in rows}


def value_of(text):
    """Return what the text of a default means, in Python."""
    found = re.fullmatch(r"(-?[\d,.]+)(?: (KiB|MiB|GiB|days?))?", text)
    if found is not None:
        number = found[1].replace(",", "")
        number = float(number) if "." in number else int(number)
        return number * UNITS.get(found[2], 1)
    quoted = re.fullmatch(r"`(True|False|None|\"[^\"]*\")`", text)
    if quoted is not None:
        return {"True": True, "False": False, "None": None}.get(quoted[1], quoted[1].strip('"'))
    return None if text == "no limit" else text


def built():
    """Return the defaults that the core has for a handle, in Python; None where a store decides."""
    source = (ROOT / "src/options.rs").read_text()
    body = re.search(r"impl Default for Options \{.*?\n\}\n", source, re.DOTALL)[0]
    found = dict(re.findall(r"^            (\w+): (.+),$", body, re.MULTILINE))

    def python(text):
        if text in ("None", "true", "false"):
            return {"None": None, "true": True, "false": False}[text]
        if text == "Duration::ZERO":
            return 0
        length = re.fullmatch(r"Duration::from_(secs|millis)\((\d+)\)", text)
        if length is not None:
            return int(length[2]) / {"secs": 1, "millis": 1000}[length[1]]
        kind = re.fullmatch(r"\w+::(\w+)", text)
        return kind[1].lower() if kind is not None else int(text.replace("_", ""))

    return {name: python(text) for name, text in found.items() if name not in ("compaction",)}


def used():
    """Return the values that the core uses where neither a handle nor a store gives one, in Python.

    They are where an option is used: ``options.name.unwrap_or(value)``.
    """
    files = ("src/options.rs", "src/options/values.rs")
    options = "".join((ROOT / file).read_text() for file in files)
    source = options + (ROOT / "src/engine/partition_log/write/rules.rs").read_text()
    kinds = dict(re.findall(r"^    pub (\w+): Option<(\w+)>,$", options, re.MULTILINE))
    found = {}
    for name, text in re.findall(r"\b(?:self|options)\s*\.(\w+)\.unwrap_or\((.+)\)", source):
        if text in ("true", "false"):
            found[name] = text == "true"
            continue
        factors = [factor.split("<<") for factor in text.replace("_", "").split("*")]
        shifted = [[int(part) for part in factor] for factor in factors]
        found[name] = math.prod(first << sum(rest) for first, *rest in shifted)
    for name in re.findall(r"\b(?:self|options)\s*\.(\w+)\.unwrap_or_default\(\)", source):
        kind = kinds[name]
        body = re.search(rf"pub enum {kind} \{{(.*?)\n\}}\n", options, re.DOTALL)
        if body is not None:
            variant = re.search(r"#\[default\]\s+(\w+)", body[1])[1]
            found[name] = re.search(rf"\b\w+::{variant}(?:,| =>) \"(\w+)\"", options)[1]
    return found


def test_every_option_has_a_default_that_can_be_read():
    page = documented()
    assert set(page) == {"mode", *OpenOptions.__annotations__}
    unread = {name for name, text in page.items() if isinstance(value_of(text), str)}
    texts = {"mode", "flush", "append_lock", "compression", "message_timestamp_type"}
    assert unread == WORDS | texts | {"cleanup_policy"}


def test_the_defaults_of_a_handle_are_those_of_the_page():
    page, found = documented(), built()
    wrong = {
        name: (page[name], value)
        for name, value in found.items()
        if value is not None and name != "mode" and value_of(page[name]) != value
    }
    assert wrong == {}
    assert len([value for value in found.values() if value is not None]) > 20


def test_the_defaults_of_kept_options_are_those_of_the_page():
    """A store keeps what is given, so opening one with a wrong default shows nothing."""
    page, found = documented(), used()
    assert {
        name: page[name] for name, value in found.items() if value_of(page[name]) != value
    } == {}
    text = (ROOT / "docs/options.md").read_text()
    kept = set(re.findall("^\\| `([a-z_]+)` \\(kept\\)", text, re.MULTILINE))
    assert kept - set(found) <= WORDS


def given(engine):
    """Return the options of an engine with their documented defaults."""
    values = {name: value_of(text) for name, text in documented().items()}
    names = set(values) - WORDS - {"mode", "lock_timeout", "adopt"}
    page = (ROOT / "docs/options.md").read_text()
    own = page.split("## Partition logs")[1].split("\n## ")[0]
    of_logs = set(re.findall("^\\| `([a-z_]+)`", own, re.MULTILINE)) | {"isolation"}
    if engine == "commitlog":
        names -= of_logs
    else:
        fixed = set(re.findall("^\\| `([a-z_]+)` \\(fixed\\)", page, re.MULTILINE))
        refused = {"keep_unarchived", "index", "warm_up", "warm_up_flush_pages", "lock_memory"}
        names -= fixed | refused | {"read_ahead", "disk_warning_ratio", "disk_reserve"}
        # Without linger it is refused.
        names -= {"batch_bytes"}
    return {name: values[name] for name in names}


@pytest.mark.parametrize("engine", ["commitlog", "partitionlog"])
def test_a_store_of_the_documented_defaults_is_one_of_none(engine, tmp_path):
    values = given(engine)
    for name, value in values.items():
        # Each by itself: a size of files that is not that of the store is refused.
        with forebay.open(tmp_path / "store", engine=engine, **{name: value}):
            pass
    with forebay.open(tmp_path / "other", engine=engine) as store:
        store.send("orders", b"x")
    with forebay.open(tmp_path / "other", **values) as store:
        assert len(store.topics["orders"].queues) == values["default_queues"]
        with pytest.raises(forebay.MessageTooLargeError, match=str(values["max_message_size"])):
            store.send("orders", bytes(values["max_message_size"] + 1))
