"""Errors, pipes, and verbs that must not change a store."""

import importlib.metadata
import os
import subprocess
import sys
import textwrap

import pytest
from cli_support import command, rows, state_of
from harness import LONG_S

import forebay


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "VERB"),
        (["--versio"], "unrecognized argument --versio, did you mean --version?"),
        (["--verbose"], "forebay: unrecognized arguments: --verbose (see"),
        (["--h"], "unrecognized arguments: --h (see"),
        (["-V"], "unrecognized arguments: -V"),
        (["--json", "info", "s"], "--json is an option of a verb, and must come after it"),
        (["demo", "--speed", "-1"], "forebay demo: unrecognized arguments: --speed -1 (see"),
        (["tail", "s", "t", "--timeout", "3"], "unrecognized arguments: --timeout 3 (see"),
        (["--version=3"], "--version takes no value, got '3'"),
        (["dlq", "--json"], "forebay dlq: --json is an option of a verb"),
        (["dance"], "invalid choice: 'dance'"),
        (["info"], "STORE"),
        (["cat", "s", "t", "--format", "xml"], "invalid choice: 'xml'"),
        (["cat", "s", "t", "--start", "3"], "3 may be an offset or a time"),
        (["cat", "s", "t", "--queue", "0", "--queue", "1", "--end", "3"], "give one --queue"),
        (
            ["cat", "s", "t", "--delimiter", ";"],
            "--delimiter needs --format raw, got --format jsonl",
        ),
        (["query", "s", "t", "k", "--format", "csv", "--delimiter", ""], "got --format csv"),
        (["tail", "s", "t", "--delimiter", ";"], "--delimiter needs --format raw"),
        (["exprot"], "'exprot', did you mean export?"),
        (["spark", "audti", "s"], "did you mean audit?"),
        (["cat", "s", "t", "--tag", "paid"], "--tag, did you mean --tags?"),
        (["spark", "audit", "s", "--jsno=1"], "--jsno, did you mean --json?"),
        (["info", "s", "--nothing-like-it"], "unrecognized arguments: --nothing-like-it"),
        (["cat", "s", "t", "--start", "-2y"], "--start: invalid time '-2y'"),
        (["topics", "s", "extra"], "forebay topics: unrecognized arguments: extra"),
        (["cat", "s", "t", "--start"], "--start needs a value"),
        (["send", "s", "t", "x", "--key", "--sync"], "--key needs a value"),
        (["info", "s", "--json=1"], "--json takes no value, got '1'"),
        (["console", "s", "--port", "x"], "must be an integer from 0 to 65535, got 'x'"),
        (["console", "s", "--port", "65536"], "must be an integer from 0 to 65535, got '65536'"),
        (["cat", "s", "t", "--limit", "9" * 5000], "must be an integer from 0 to 2^63 - 1"),
        (
            ["convert", "s", "d", "--engine", "commitlog", "--name", "a"],
            "form OLD=NEW, got 'a'",
        ),
        (["cat", "s", "t", "--start", "-999999999w"], "invalid time"),
        (["cat", "s", "t", "--start", "2026-02-30"], "invalid time"),
        (["export", "s", "-"], "needs --format"),
        (["cat", "s", "t", "--start", "yesterday"], "invalid time 'yesterday'"),
        (["cat", "s", "t", "--start", "0=x"], "must be an integer from 0 to 2^63 - 1, got 'x'"),
        (["cat", "s", "t", "--queue", "-1"], "queue"),
        (["cat", "s", "t", "--limit", "0"], "must be at least 1, got 0"),
        (
            ["send", "s", "t", "x", "--property", "novalue"],
            "form NAME=VALUE, got 'novalue'",
        ),
        (["send", "s", "t", "x", "--file", "y"], "not both"),
        (["export", "s", "orders.txt"], "cannot tell the format"),
        (["verify", ""], "argument STORE: must name a directory, got ''"),
        (["doctor", ""], "argument PATH: must name a directory, got ''"),
        (["spark", "audit", ""], "argument STORE: must name a directory, got ''"),
    ],
)
def test_wrong_arguments_are_one_line_and_status_2(run, tmp_path, monkeypatch, arguments, part):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(*arguments)
    assert (status, out) == (2, b"")
    assert err.startswith("forebay")
    assert err.count("\n") == 1
    assert part in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["info", "nowhere"], "there is no store at "),
        (["cat", "s3://bucket/x", "t"], "forebay.archive"),
        (["send", "s3://bucket/x", "t", "x"], "local file system"),
        (["cat", "nowhere", "t"], "/nowhere"),
        (["verify", "file"], "not a store"),
        (["cat", "store", "nope"], 'no topic "nope"'),
        (["tail", "store", "nope", "-f"], 'no topic "nope"'),
        (["cat", "store", "orders", "--queue", "8"], "no queue 8; its queues are 0 to 7"),
        (["export", "store", "x.csv", "--topic", "one", "--queue", "5"], "its only queue is 0"),
        (["cat", "store", "orders", "--start", "0=99"], "the queue has messages 0 to 3"),
        (["cat", "store", "orders", "--start", "99=1"], "no queue 99"),
        (["cat", "store", "orders", "--end", "99=3"], "no queue 99"),
        (["export", "store", "x.csv", "--topic", "orders", "--end", "99=3"], "no queue 99"),
        (["export", "store", "x.parquet", "--topic", "orders", "--end", "99=3"], "no queue 99"),
        (["query", "store", "ordres", "k"], 'no topic "ordres", did you mean "orders"?'),
        (["cat", "store", "order"], 'no topic "order", did you mean "orders"?'),
        (["spark", "audit", "nowhere"], "there is no store at "),
        (["send", "store", "a/b", "x"], "a/b"),
        (["send", "store", "t", "x", "--key", "a b"], "spaces"),
        (["send", "store", "t", "x", "--queue", "99"], "99"),
        (["export", "store", "no/such/folder/x.csv"], "no/such/folder/x.csv: No such file"),
        (["compact", "log", "nope"], 'no topic "nope"'),
        (["convert", "store", "log", "--engine", "partitionlog"], "there is a store at "),
    ],
)
def test_errors_are_one_line_and_status_1(run, store, monkeypatch, arguments, part):
    monkeypatch.chdir(store.parent)
    (store.parent / "file").write_bytes(b"no store")
    forebay.open("log", engine="partitionlog").close()
    with forebay.open("store") as opened:
        opened.create_topic("one", queues=1)
    status, out, err = run(*arguments)
    assert (status, out) == (1, b"")
    assert err.startswith("forebay: ")
    assert err.count("\n") == 1
    assert part in err


def test_a_store_that_another_process_writes_is_not_sent_to(run, store):
    with forebay.open(store):
        status, _, err = run("send", store, "orders", "x")
        assert status == 1
        assert err.count("\n") == 1
        assert run("cat", store, "bills")[0] == 0


def test_a_directory_of_a_broker_is_written_only_when_adopted(run, broker):
    before = state_of(broker)
    for arguments in (("send", broker, "fx-orders", "x"), ("repair", broker)):
        status, _, err = run(*arguments)
        assert status == 1
        assert "adopt" in err
    assert state_of(broker) == before
    assert run("send", broker, "fx-orders", "x", "--adopt", "--queue", "0")[0] == 0
    # The store also delivers the broker's delayed message, which is overdue.
    newest = rows(run("tail", broker, "fx-orders", "-n", "2")[1])
    assert "x" in [row["body"] for row in newest]


def test_reading_verbs_change_nothing(run, broker, tmp_path):
    before = state_of(broker)
    for arguments in (
        ("info", broker),
        ("info", broker, "--json"),
        ("topics", broker, "--queues"),
        ("cat", broker, "fx-orders"),
        ("tail", broker, "fx-orders"),
        ("query", broker, "fx-orders", "order-13"),
        ("verify", broker),
        ("export", broker, tmp_path / "all.arrow"),
    ):
        assert run(*arguments)[0] == 0
        assert state_of(broker) == before, arguments


def test_names_from_a_disk_cannot_control_the_terminal(run, tmp_path):
    status, _, err = run("info", tmp_path / "\x1b[31m\nred")
    assert status == 1
    assert "\x1b" not in err
    assert err.count("\n") == 1


def test_a_closed_pipe_is_not_an_error(store):
    with forebay.open(store) as opened:
        opened.producer("many").send_batch([b"x" * 100] * 2000)
    with subprocess.Popen(
        command("cat", store, "many"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as cat:
        assert cat.stdout is not None
        assert cat.stderr is not None
        assert cat.stdout.readline().startswith(b"{")
        cat.stdout.close()
        assert cat.stderr.read() == b""
        assert cat.wait(LONG_S) == 141


def test_a_full_disk_behind_standard_output_is_one_line(store):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command("cat", store, "orders"), stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert done.stderr == b"forebay: No space left on device\n"


def test_output_is_utf_8_without_colour_whatever_the_locale_is(store):
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment |= {"FORCE_COLOR": "1"}
    for arguments in (("cat", store, "bills"), ("topics", store), ("info", store)):
        done = subprocess.run(
            command(*arguments), capture_output=True, env=environment, check=False
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"\x1b" not in done.stdout
        if arguments[0] == "cat":
            assert "caf\u00e9".encode() in done.stdout


def test_help_names_every_verb_and_the_console_script_is_the_module():
    done = subprocess.run(command("--help"), capture_output=True, text=True, check=True)
    verbs = "demo info topics send cat tail query verify export repair doctor"
    for verb in verbs.split():
        assert f"\n    {verb} " in done.stdout
    helped = subprocess.run(command("send", "--help"), capture_output=True, text=True, check=True)
    assert helped.stdout.startswith("usage: forebay send ")
    version = subprocess.run(command("--version"), capture_output=True, text=True, check=True)
    assert version.stdout == f"forebay {forebay.__version__}\n"


def test_ctrl_c_while_the_verbs_are_imported_ends_with_130():
    press = "import sys\nclass Press:\n def find_spec(self, name, path=None, target=None):\n"
    press += "  if name == 'forebay.cli.send': raise KeyboardInterrupt\n"
    press += "sys.meta_path.insert(0, Press())\n"
    code = "from forebay.cli import main\nsys.exit(main(['topics', 'none']))"
    done = subprocess.run(
        [sys.executable, "-c", press + code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


#: Presses Ctrl-C when a module is imported.
PRESS = """
import _signal, sys
_signal.signal(_signal.SIGINT, _signal.default_int_handler)
class Press:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            _signal.raise_signal(_signal.SIGINT)
sys.meta_path.insert(0, Press())
"""


#: A module of the standard library that `signal` imports, and those of the command.
COMMAND = ["enum", "signal", "forebay", "forebay.store", "forebay.cli", "forebay.cli.send"]


@pytest.mark.parametrize("name", COMMAND)
def test_ctrl_c_while_the_command_is_imported_ends_with_130(name):
    """It printed a traceback unless the package was imported already."""
    program = importlib.metadata.entry_points(group="console_scripts", name="forebay")
    module, function = next(iter(program)).value.split(":")
    start = textwrap.dedent(f"""
        sys.argv = ["forebay", "topics", "none"]
        from {module} import {function}
        sys.exit({function}())
    """)
    done = subprocess.run(
        [sys.executable, "-c", PRESS.format(name=name) + start],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("name", ["signal", "forebay._forebay", "forebay.store", "forebay_command"])
def test_ctrl_c_while_the_module_is_imported_ends_with_130(tmp_path, name):
    """Python imports the package itself before anything of the program runs."""
    # Python imports this module first of all.
    (tmp_path / "sitecustomize.py").write_text(PRESS.format(name=name))
    done = subprocess.run(
        command("topics", "none"), env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_program_that_imports_the_package_keeps_its_handler_of_ctrl_c(tmp_path):
    (tmp_path / "other.py").write_text(
        "import signal\nbefore = signal.getsignal(signal.SIGINT)\nimport forebay\n"
        "assert signal.getsignal(signal.SIGINT) is before\n"
    )
    (tmp_path / "forebay_user").mkdir()
    (tmp_path / "forebay_user" / "__init__.py").write_text("import other\n")
    (tmp_path / "forebay_user" / "__main__.py").touch()
    for words in (["other.py"], ["-m", "other"], ["-m", "forebay_user", "forebay"]):
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), words
