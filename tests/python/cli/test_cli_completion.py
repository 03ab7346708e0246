"""The verb completion: scripts that complete verbs, options, choices and files in three shells."""

import argparse
import contextlib
import os
import pty
import re
import shutil
import signal
import subprocess
import sys

import harness
import pytest
from cli_support import command

from forebay.cli import make_parser
from forebay.cli.completion import SHELLS, script

#: What is typed, and what must and must not be offered.
TYPED = [
    ("ver", {"verify"}, {"info"}),
    ("", {"verify", "dlq"}, {"list"}),
    ("dlq ", {"list", "show", "redrive", "purge"}, {"verify"}),
    ("dlq show --", {"--limit", "--all", "--json"}, {"--to", "--adopt"}),
    ("cat --format ", {"jsonl", "csv", "raw"}, {"cat"}),
    ("cat store orders --fo", {"--format"}, {"--full"}),
    ("cat --format csv sto", {"store"}, {"note"}),
    ("cat --format=csv sto", {"store"}, {"note"}),
    ("cat --format=", {"jsonl", "csv", "raw"}, {"cat"}),
    ("cat --format=r", {"raw"}, {"csv"}),
    ("query store orders k1 --be", {"--begin"}, {"--end"}),
    ("info sto", {"store"}, {"note"}),
    ("completion ", {"bash", "zsh", "fish"}, {"info"}),
    ("spark audit --", {"--master", "--json"}, {"--partition-by"}),
    ("send store orders --file no", {"note"}, {"store"}),
]


def parsers(parser=None, path=()):
    parser = make_parser() if parser is None else parser
    yield path, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from parsers(below, (*path, name))


def start(*words, text=None, **named):
    return subprocess.run(
        words, input=text, capture_output=True, text=True, timeout=harness.LONG_S, **named
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "note").touch()
    return tmp_path


@pytest.mark.parametrize("shell", SHELLS)
def test_the_verb_prints_a_script_of_every_verb_and_option(run, shell):
    status, out, err = run("completion", shell)
    assert (status, err) == (0, "")
    text = out.decode()
    for path, parser in parsers():
        assert all(word in text for word in path)
        for name in parser._option_string_actions:
            assert (name.lstrip("-") if shell == "fish" else name) in text
    assert text.isascii()


def test_an_unknown_shell_is_refused(run):
    status, _, err = run("completion", "bahs")
    assert status == 2
    assert "did you mean bash?" in err


def test_an_option_is_described_by_the_first_part_of_its_help():
    text = script(make_parser(), "zsh")
    assert "--format=[the format]" in text
    assert "--begin=[stored at or after a time such as 2026-03-01T12:00Z, " in text
    assert "--as=[what happens to the batch]" in text


def needs(shell):
    """Skip the test, or fail it, where the shell is missing."""
    if shutil.which(shell) is None:
        harness.lacks(shell, f"{shell} is not installed")


def in_bash(folder, typed):
    """Return what bash offers."""
    # Bash divides words at "=", too.
    parts = (re.findall("=|[^=]+", word) or [""] for word in typed.split(" "))
    words = ["forebay", *(word for part in parts for word in part)]
    quoted = " ".join(f"'{word}'" for word in words)
    code = f"""{script(make_parser(), "bash")}
COMP_WORDS=({quoted}) COMP_CWORD={len(words) - 1}
_forebay
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = start("bash", "--norc", text=code, cwd=folder)
    assert done.stderr == ""
    return set(done.stdout.split())


def in_fish(folder, typed):
    """Return what fish offers."""
    code = f"{script(make_parser(), 'fish')}\ncomplete -C 'forebay {typed}'\n"
    done = start("fish", "--no-config", text=code, cwd=folder)
    assert done.stderr == ""
    found = {line.split("\t")[0].rstrip("/") for line in done.stdout.splitlines()}
    # Fish offers the whole word.
    return {word.removeprefix("--format=") for word in found}


#: The shell's start: it completes one line, writes down what is offered for it, and ends.
ZSHRC = """
fpath=($ZDOTDIR $fpath)
# The first start lists all functions, and the next ones read the list.
autoload -U compinit; compinit -u -C -d $ZDOTDIR/../../zcompdump
compadd() {
    # With these options it only compares.
    if [[ "${(@)argv[1,(i)(-|--)]}" != *-(O|A|D)* ]]; then
        local -a offered
        builtin compadd -O offered "$@"
        print -rl -- $offered >> $ZDOTDIR/offered
    fi
    builtin compadd "$@"
}
zle -C complete complete-word _main_complete
zle-line-init() { BUFFER=$TYPED CURSOR=$#TYPED; zle complete; exit }
zle -N zle-line-init
"""


def in_zsh(folder, typed):
    """Return what zsh offers; it completes on a terminal alone, so it gets one."""
    home = folder / "home"
    home.mkdir()
    # Where the page says that it belongs.
    (home / "_forebay").write_text(script(make_parser(), "zsh"))
    (home / ".zshrc").write_text(ZSHRC)
    named = {"TERM": "dumb", "ZDOTDIR": str(home), "TYPED": f"forebay {typed}"}
    ours, its = pty.openpty()
    try:
        subprocess.run(
            ["zsh", "-d", "-i"], stdin=its, stdout=its, stderr=its, start_new_session=True,
            cwd=folder, env=os.environ | named, timeout=harness.LONG_S,
        )  # fmt: skip
    finally:
        os.close(its)
        os.close(ours)
    return set((home / "offered").read_text().split())


@pytest.mark.parametrize(("typed", "offered", "withheld"), TYPED)
@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_offers_what_fits(folder, shell, typed, offered, withheld):
    needs(shell)
    found = {"bash": in_bash, "zsh": in_zsh, "fish": in_fish}[shell](folder, typed)
    assert offered <= found
    assert not withheld & found


def test_zsh_reads_the_script(folder):
    needs("zsh")
    (folder / "_script").write_text(script(make_parser(), "zsh"))
    code = "autoload -U compinit; compinit -u -D; source ./_script; whence -w _forebay_dlq_show"
    done = start("zsh", "-f", "-c", code, cwd=folder)
    assert (done.stdout, done.stderr) == ("_forebay_dlq_show: function\n", "")


def test_every_verb_that_prints_takes_json():
    """Those without print one line or none, write files, or run a program."""
    without = {"demo", "export", "commits resolve", "commits withdraw"}
    without |= {"console", "shell", "completion"}
    found = {
        " ".join(path)
        for path, parser in parsers()
        if parser._subparsers is None and "--json" not in parser._option_string_actions
    }
    assert found == without


def test_shell_has_the_store(run, store):
    status, out, err = run("shell", store, "-c", "print(sorted(store.topics), store.mode)")
    assert (status, out, err) == (0, b"['bills', 'orders'] r\n", "")


def test_shell_runs_a_program_of_standard_input(store):
    program = "for queue in store.topics['orders'].queues[:2]:\n    print(queue.max_offset)\n"
    done = start(*command("shell", store), text=program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "4\n1\n", "")


def test_shell_writes_only_if_told(run, store):
    code = "print(store.send('orders', b'more', queue=0).offset)"
    status, _, err = run("shell", store, "-c", code)
    assert status == 1
    assert "ReadOnlyError" in err and "<command>" in err
    assert run("shell", store, "-c", code, "--write")[:2] == (0, b"4\n")


def test_shell_shows_where_a_program_failed(run, store):
    assert run("shell", store, "-c", "1 +")[0] == 1
    status, _, err = run("shell", store, "-c", "\n1 / 0")
    assert status == 1
    assert 'File "<command>", line 2' in err


def test_an_error_on_a_terminal_is_shown_alone_and_ctrl_c_ends_a_statement(store):
    """Each error was shown with the ImportError of IPython as its context."""
    code = "import importlib.util, signal, sys; importlib.util.find_spec = lambda name: None\n"
    # A shell that runs in the background has SIGINT ignored.
    code += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += f"from forebay.cli import main; sys.exit(main(['shell', {str(store)!r}]))"
    terminal, its = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=its, stdout=its, stderr=its, start_new_session=True
    )
    os.close(its)
    shown = b""

    def until(words):
        nonlocal shown
        begin = len(shown)
        while words not in shown[begin:]:
            shown += os.read(terminal, 4096)

    until(b">>> ")
    os.write(terminal, b"1/0\n")
    until(b">>> ")
    os.write(terminal, b"print('be' + 'gun'); list(store.tail('orders'))\n")
    until(b"begun")
    child.send_signal(signal.SIGINT)
    until(b">>> ")
    os.write(terminal, b"exit()\n")
    with contextlib.suppress(OSError):
        until(b"never")
    assert child.wait() == 0
    os.close(terminal)
    assert b"division by zero" in shown and b"KeyboardInterrupt" in shown
    assert b"IPython" not in shown and b"handling" not in shown


def test_ctrl_c_ends_a_program_of_the_shell_with_130(store):
    done = start(*command("shell", store, "-c", "raise KeyboardInterrupt"))
    assert (done.returncode, done.stdout) == (130, "")
    assert "Traceback" not in done.stderr


def test_shell_creates_no_store(run, tmp_path):
    status, _, err = run("shell", tmp_path / "none", "--write", "-c", "1")
    assert status == 1
    assert "there is no store" in err or "none" in err
    assert not (tmp_path / "none").exists()
