"""No message shows a user or password from a path, whichever option contains them."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import forebay
import forebay.archive
from forebay.redact import redacted
from forebay.spark import audit, compact, export, rebuild, report
from forebay.spark.options import _NAMES, _STREAM_NAMES, columns_of, parse_options
from forebay.spark.pace import parse_stream_options
from forebay.spark.write import NAMES as _WRITE_NAMES
from forebay.spark.write import parse_write_options

PATHS = [
    "s3://joan:hush@bucket/events",
    "s3a://joan:hush/hush@bucket/events",
    "s3://joan:hush?hush@bucket/events",
    "s3://joan:[hush@bucket/events",
    "s3://joan:hush\N{CARE OF}@bucket/events",
    "https://joan:hush@host/events?joan=hush",
    "s3:/joan:hush@bucket/events",
    "joan:hush@bucket/events",
]


def told(call: Callable[..., Any], *arguments: Any, **options: Any) -> str | None:
    """Return the whole text of an error; `None` if there is none."""
    try:
        call(*arguments, **options)
    except forebay.ForebayError as error:
        fields = repr(error) + repr(vars(error))
        return "".join(traceback.format_exception(error)) + fields
    return None


def is_safe(text: str | None) -> bool:
    return text is None or ("hush" not in text and "joan" not in text)


@pytest.mark.parametrize("path", PATHS)
def test_no_option_shows_secrets(path: str) -> None:
    quoted = json.dumps(path)
    values = [path, f"[{quoted}", f"[{quoted},7]", f'{{{quoted}:{{"t":{{"0":"x"}}}}}}']
    values += [f"[{escaped}" for escaped in (quoted, quoted.replace("@", "\\u0040"))]
    values += [f"[{quoted.replace('@', chr(92) + 'u0040')},7]"]
    parsers = (parse_options, parse_stream_options, parse_write_options, columns_of)
    names = {*_NAMES, *_STREAM_NAMES, *_WRITE_NAMES, "kafka.sasl.jaas.config", "fs.s3a.secret.key"}
    refused = set()
    for name in names:
        for value in values:
            for parse in parsers:
                options = {"path": "/events", "subscribe": "t"} | {name: value}
                text = told(parse, options)
                assert is_safe(text), text
                refused.add((name, text is None))
    assert ("path", False) in refused and ("fs.s3a.secret.key", True) not in refused


def test_the_value_of_an_unknown_option_is_not_shown() -> None:
    for parse in (parse_options, parse_write_options):
        options = {"path": "/events", "subscribe": "t", "topic": "t", "fs.s3a.secret.key": "hush"}
        del options["topic" if parse is parse_options else "subscribe"]
        with pytest.raises(forebay.InvalidOptionError, match=r"option fs\.s3a\.secret\.key is not"):
            parse(options)
        assert is_safe(told(parse, options))


@pytest.mark.parametrize("path", PATHS[:-1])
def test_no_store_and_no_job_shows_secrets(path: str, monkeypatch: Any, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    session: Any = None
    calls: list[Callable[..., Any]] = [
        lambda: forebay.open(path),
        lambda: audit(session, path),
        lambda: rebuild(session, path),
        lambda: report(session, path),
        lambda: compact(session, path, tmp_path / "new"),
        lambda: compact(session, tmp_path / "old", path),
        lambda: export(session, path, tmp_path / "new"),
        lambda: export(session, tmp_path / "old", path),
    ]
    if not path.startswith("s3://joan:hush@"):
        # The others are refused without network access.
        calls.append(lambda: forebay.archive.open(path))
    for call in calls:
        text = told(call)
        assert text is not None and is_safe(text), text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/data/a:b@c/events?x", "/data/a:b@c/events?x"),
        ("data/joan@host", "data/joan@host"),
        ("s3://bucket/events", "s3://bucket/events"),
        ("s3://bucket/events?key=hush", "s3://bucket/events"),
        ("s3://joan:hush@bucket/events", "s3://bucket/events"),
        ("joan:hush@bucket", "bucket"),
        (":memory:", ":memory:"),
        ('["s3://joan:hush@bucket","/a@b"]', '["s3://bucket","/a@b"]'),
        ('{"orders":{"0":23}}', '{"orders":{"0":23}}'),
    ],
)
def test_paths_are_redacted(text: str, shown: str) -> None:
    assert redacted(text) == shown
