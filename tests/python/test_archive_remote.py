"""Archives in object stores and in other file systems."""

from __future__ import annotations

import gc
import json
import os
import traceback
from collections.abc import Iterator
from pathlib import Path

import archive_support as support
import pytest
import s3_support

import forebay
import forebay.archive
from forebay.archive.remote import RemoteFiles

pytest.importorskip("pyarrow")
from pyarrow import fs


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[forebay.Store]:
    """Return a store with two sealed log files and a third."""
    path = tmp_path_factory.mktemp("archive") / "events"
    with support.small(path) as store:
        support.fill(store, 2)
        yield store


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """Run an S3 server; the value is the query of URIs that lead to it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3_support.CREDENTIALS.items():
            patch.setenv(name, value)
        with s3_support.running() as query:
            yield query


def other(root: Path) -> fs.FileSystem:
    """Return a file system that pyarrow does not recognise as local."""
    root.mkdir()
    return fs.SubTreeFileSystem(str(root), fs.LocalFileSystem())


def check(store: forebay.Store, archive: forebay.archive.Archive) -> None:
    """Check that an archive reads the same as the store."""
    scan = archive.scan(columns=support.COLUMNS)
    assert support.rows(scan) == support.below(store, archive)
    assert scan.damage == archive.verify() == []
    found = support.rows(archive.scan("orders", key="key-1-777", columns=support.COLUMNS))
    assert len(found) == 1
    assert archive.offset_at("orders", found[0][1], found[0][4]) <= found[0][2]


def test_an_archive_is_written_to_an_object_store_and_read_by_ranges(store, s3):
    uri = s3_support.bucket(s3)
    told = []
    done = store.archive(f"{uri}?{s3}", progress=lambda *bytes: told.append(bytes))
    assert (done.target, done.files, done.skipped) == (uri, 2, 0)
    assert told[-1] == (2 * support.FILE, 2 * support.FILE)
    again = store.archive(f"{uri}?{s3}")
    assert (again.files, again.skipped, again.position) == (0, 2, done.position)
    with forebay.archive.open(f"{uri}?{s3}") as archive:
        assert archive.path == f"{uri}?{s3}"
        check(store, archive)
    filesystem, path = fs.FileSystem.from_uri(f"{uri}?{s3}")
    with forebay.archive.open(path, filesystem=filesystem) as archive:
        check(store, archive)


def test_changed_objects_are_reported_with_their_uri(store, s3):
    uri = s3_support.bucket(s3)
    store.archive(f"{uri}?{s3}")
    filesystem, path = fs.FileSystem.from_uri(f"{uri}?{s3}")
    log = f"commitlog/{support.FILE:020}"
    with filesystem.open_output_stream(f"{path}/{log}") as stream:
        stream.write(bytes(1000))
    with pytest.raises(forebay.CorruptError, match="has 1000 bytes") as raised:
        store.archive(f"{uri}?{s3}")
    assert (raised.value.path, raised.value.position) == (f"{uri}/{log}", support.FILE)
    archive = forebay.archive.open(f"{uri}?{s3}")
    scan = archive.scan(columns=support.COLUMNS)
    assert {row[3] < support.FILE for row in support.rows(scan)} == {True}
    assert {damage.path for damage in scan.damage} == {f"{uri}/{log}"}
    filesystem.delete_file(f"{path}/{log}")
    scan = forebay.archive.open(f"{uri}?{s3}").scan(columns=support.COLUMNS)
    assert {row[3] < support.FILE for row in support.rows(scan)} == {True}
    with pytest.raises(forebay.StoreNotFoundError):
        forebay.archive.open(f"{uri}/nothing?{s3}")


def half(stream) -> None:
    """Start writing, then fail as if the connection broke."""
    stream.write(b"half")
    raise ConnectionError("it is gone")


@pytest.mark.parametrize("kept", [0, 1, 1000, 3 << 19])
def test_a_truncated_object_costs_only_the_missing_messages(store, s3, kept):
    uri = s3_support.bucket(s3)
    store.archive(f"{uri}?{s3}")
    filesystem, path = fs.FileSystem.from_uri(f"{uri}?{s3}")
    archive = forebay.archive.open(f"{uri}?{s3}")
    every = support.rows(archive.scan(columns=support.COLUMNS))
    for folder in ("commitlog", "keys"):
        name = f"{path}/{folder}/{support.FILE:020}"
        with filesystem.open_input_file(name) as file:
            data = file.read(kept)
        with filesystem.open_output_stream(name) as stream:
            stream.write(data)
    archive = forebay.archive.open(f"{uri}?{s3}")
    log = f"{uri}/commitlog/{support.FILE:020}"
    damage = archive.verify()
    assert {found.path for found in damage} == {log}
    end = support.FILE + kept
    assert damage[0].position <= end < damage[0].position + damage[0].length
    assert sum(found.length for found in damage) == 2 * support.FILE - damage[0].position
    assert {found.reason for found in damage} == {"the log file ends before this block does"}
    scan = archive.scan(columns=support.COLUMNS)
    found = support.rows(scan)
    assert found == [row for row in every if row in found]
    assert {row for row in every if row[3] < support.FILE} <= set(found)
    assert all(row[3] < end for row in found)
    assert {place.path for place in scan.damage} == {log}
    last = max(row[4] for row in every)
    late = [row[2] for row in found if row[:2] == ("orders", 0) and row[4] >= last]
    late.append(archive.topics["orders"].queues[0].max_offset)
    assert archive.offset_at("orders", 0, last) == late[0]
    assert len(support.rows(archive.scan("orders", key="key-1-777"))) == 1


def test_a_copy_that_fails_at_any_step_leaves_an_archive_that_the_next_one_completes(
    store, tmp_path, monkeypatch
):
    whole = tmp_path / "whole"
    store.archive("archive", filesystem=other(whole))
    plain = RemoteFiles._fill
    failures = 0
    for count in range(1, 100):
        root = tmp_path / f"failed-{count}"
        filesystem = other(root)
        calls = 0

        def fill(self, path, fill, count=count):
            nonlocal calls
            calls += 1
            if calls == count:
                # The connection breaks in the middle of an object, which then looks complete.
                plain(self, path, half)
            plain(self, path, fill)

        monkeypatch.setattr(RemoteFiles, "_fill", fill)
        try:
            store.archive("archive", filesystem=filesystem)
        except ConnectionError:
            failures += 1
        else:
            break
        finally:
            monkeypatch.setattr(RemoteFiles, "_fill", plain)
        if count > 1:
            with forebay.archive.open("archive", filesystem=filesystem) as archive:
                scan = archive.scan(columns=support.COLUMNS)
                assert support.rows(scan) == support.below(store, archive)
        assert not list(root.rglob("*.part"))
        store.archive("archive", filesystem=filesystem)
        assert support.tree(root) == support.tree(whole)
    assert failures == 7


def test_an_interrupted_upload_does_not_change_the_existing_object(store, s3, tmp_path):
    # Arrow completes the object of a garbage-collected stream; it would replace a whole one.
    source = tmp_path / "log"
    source.write_bytes(os.urandom(20 << 20))
    filesystem, path = fs.FileSystem.from_uri(f"{s3_support.bucket(s3)}?{s3}")
    files = RemoteFiles(filesystem, path, path)

    def copy(name, on_chunk):
        with open(source, "rb", buffering=0) as file:
            return files.copy(name, file, 20 << 20, on_chunk)

    assert copy("commitlog/0", lambda some: None) == 20 << 20

    def broken(some):
        raise ConnectionError("it is gone")

    with pytest.raises(ConnectionError):
        copy("commitlog/0", broken)
    with pytest.raises(ConnectionError):
        copy("commitlog/1", broken)
    gc.collect()
    found = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
    assert [info.path for info in found if info.is_file] == [f"{path}/commitlog/0"]
    assert files.read("commitlog/0") == source.read_bytes()


def test_an_incomplete_file_does_not_get_its_name(tmp_path, monkeypatch):
    filesystem = other(tmp_path / "root")
    files = RemoteFiles(filesystem, "archive", "archive")
    plain = RemoteFiles._fill

    def short(self, path, fill):
        plain(self, path, lambda stream: stream.write(b"half"))

    monkeypatch.setattr(RemoteFiles, "_fill", short)
    with pytest.raises(OSError, match="4 of 10 bytes"):
        files.write("keys/0", bytes(10))
    assert not support.tree(tmp_path / "root")


def test_leftover_parts_are_not_counted_as_files_of_an_archive(store, tmp_path):
    store.archive("archive", filesystem=other(tmp_path / "root"))
    for folder in ("", "commitlog/", "blocks/"):
        (tmp_path / "root/archive" / f"{folder}{0:020}.abc.part").write_bytes(b"half")
    filesystem = fs.SubTreeFileSystem(str(tmp_path / "root"), fs.LocalFileSystem())
    assert store.archive("archive", filesystem=filesystem).skipped == 2
    check(store, forebay.archive.open("archive", filesystem=filesystem))


def noted(store: forebay.Store) -> dict[str, int]:
    """Return the positions recorded in a store, by target."""
    return json.loads((Path(store.path) / "forebay.archived").read_bytes())["targets"]


def test_the_record_of_archives_distinguishes_servers_and_contains_no_password(s3, tmp_path):
    with support.small(tmp_path / "events") as store:
        support.fill(store, 1)
        uri = s3_support.bucket(s3)
        user = uri.replace("s3://", "s3://test:secret@")
        for query in (s3, s3.replace("127.0.0.1", "localhost")):
            assert store.archive(f"{user}?{query}").recorded
            filesystem, path = fs.FileSystem.from_uri(f"{uri}?{query}")
            assert store.archive(path, filesystem=filesystem).recorded
        assert store.archive("root", filesystem=other(tmp_path / "a")).recorded
        assert store.archive("root", filesystem=other(tmp_path / "b")).recorded
        port = s3.partition("127.0.0.1:")[2].partition("&")[0]
        local = s3.replace("127.0.0.1", "localhost")
        assert sorted(noted(store)) == sorted(
            [
                f"{uri}?{s3}",
                f"{uri}?{local}",
                f"s3(endpoint_override=127.0.0.1:{port}):{path}",
                f"s3(endpoint_override=localhost:{port}):{path}",
                f"local:{tmp_path}/a:root",
                f"local:{tmp_path}/b:root",
            ]
        )


def test_file_systems_of_fsspec_are_distinguished_by_their_location():
    fsspec = pytest.importorskip("fsspec")
    from forebay.archive import remote

    class Remote(fsspec.AbstractFileSystem):
        protocol = "remote"

    options = {"key": "k", "secret": "s", "client_kwargs": {"endpoint_url": "http://n:p@h:9000"}}
    for given, key in (({}, ""), ({"host": "h", "port": 3}, "(host=h, port=3)")):
        handler = fs.FSSpecHandler(Remote(**given))
        assert remote._identity(fs.PyFileSystem(handler)) == f"py::fsspec+remote{key}"
    found = remote._identity(fs.PyFileSystem(fs.FSSpecHandler(Remote(**options))))
    assert found == "py::fsspec+remote(endpoint_url=h:9000)"


def test_file_systems_of_fsspec_are_accepted(store):
    fsspec = pytest.importorskip("fsspec")
    filesystem = fsspec.filesystem("memory")
    done = store.archive("/archives/events", filesystem=filesystem)
    assert done.files == 2
    with forebay.archive.open("memory://archives/events") as archive:
        check(store, archive)


@pytest.mark.parametrize(
    ("uri", "what", "shown"),
    [
        ("s3://", "bucket", "s3://"),
        ("S3:///", "bucket", "S3:///"),
        ("s3://name:s3cret@?region=x", "bucket", "s3://"),
        ("gs://", "bucket", "gs://"),
        ("abfss://", "container", "abfss://"),
    ],
)
def test_a_uri_without_a_bucket_is_refused_as_that(store, uri, what, shown):
    for refused in (forebay.archive.open, store.archive):
        with pytest.raises(forebay.InvalidOptionError) as raised:
            refused(uri)
        assert str(raised.value) == f"target must name a {what}, got {shown}"
        assert (raised.value.name, raised.value.value) == ("target", shown)


def test_user_and_password_of_a_uri_are_not_shown():
    from forebay.archive import remote

    uri = "s3://name:secret@bucket/prefix?scheme=http"
    shown = remote._public(uri), remote.without_user(uri)
    assert shown == ("s3://bucket/prefix", "s3://bucket/prefix?scheme=http")


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("nosuch://name:s3cret@bucket/prefix?key=s3cret", "nosuch://bucket/prefix"),
        ("s3://name:s3cret/s3cret@bucket/prefix", "s3://bucket/prefix"),
        ("s3://name:s3cret?s3cret@bucket/prefix", "s3://..."),
        ("s3://name:s3cret#s3cret@bucket/prefix", "s3://..."),
        ("s3://name:[s3cret@bucket/prefix", "s3://bucket/prefix"),
        ("s3://name:s3cret\u2100@bucket/prefix", "s3://bucket/prefix"),
        ("s3://name:s3cret@bucket:port/prefix", "s3://bucket:port/prefix"),
        ("s 3://name:s3cret@bucket/prefix", "s 3://bucket/prefix"),
        ("name:s3cret@s3://bucket", "s3://bucket"),
        ("file://name:[s3cret@bucket/prefix", "file://bucket/prefix"),
    ],
)
def test_no_error_of_a_uri_shows_user_and_password(uri, shown):
    with pytest.raises(forebay.InvalidOptionError) as raised:
        forebay.archive.open(uri)
    error = raised.value
    assert (error.name, error.value) == ("target", shown)
    text = "".join(traceback.format_exception(error))
    assert shown in str(error)
    for told in (text, str(error), error.reason, repr(error)):
        assert "s3cret" not in told and "name:" not in told
    assert error.__cause__ is error.__context__ is None
