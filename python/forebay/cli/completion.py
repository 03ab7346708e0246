"""The verb completion: scripts that complete commands in bash, zsh and fish.

A script is drawn from the parser of the command line, so it has every verb, option and choice. It
starts no process when it completes.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from forebay.output import stdout

__all__ = ["SHELLS", "add", "script"]

#: The shells, and how to load the script for good.
SHELLS = {
    "bash": "forebay completion bash > ~/.local/share/bash-completion/completions/forebay",
    "zsh": 'forebay completion zsh > "${fpath[1]}/_forebay"',
    "fish": "forebay completion fish > ~/.config/fish/completions/forebay.fish",
}
#: Placeholders of values that are files.
_FILES = {"STORE", "FILE", "PATH", "TARGET", "OUTPUT"}


def add(verbs: Any) -> None:
    """Add the verb to the parser."""
    text = "print a script that completes commands in a shell"
    lines = "\n".join(f"  {line}" for line in SHELLS.values())
    parser = verbs.add_parser(
        "completion",
        help=text,
        description=text,
        epilog=f"To load it for good:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("shell", metavar="SHELL", choices=tuple(SHELLS), help=", ".join(SHELLS))
    parser.set_defaults(run=_completion)


def _completion(arguments: argparse.Namespace) -> int:
    stdout().write(script(arguments.parser, arguments.shell).encode())
    return 0


@dataclass(frozen=True)
class _Value:
    """A value of an option or an argument."""

    name: str
    choices: tuple[str, ...]

    @property
    def is_file(self) -> bool:
        return self.name in _FILES

    @property
    def is_many(self) -> bool:
        return self.name.endswith("...")


@dataclass(frozen=True)
class _Option:
    """An option, with its value if it takes one."""

    names: tuple[str, ...]
    help: str
    value: _Value | None
    repeats: bool


@dataclass(frozen=True)
class _Verb:
    """A parser: the words that lead to it, what it takes, and the verbs below it."""

    path: tuple[str, ...]
    options: tuple[_Option, ...]
    arguments: tuple[_Value, ...]
    verbs: tuple[tuple[str, str], ...]


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script of a shell."""
    shells = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    return shells[shell](list(_verbs(parser, ())))


def _verbs(parser: argparse.ArgumentParser, path: tuple[str, ...]) -> Iterator[_Verb]:
    """Yield a parser and those below it."""
    options, arguments, below = [], [], []
    subparsers: list[tuple[str, argparse.ArgumentParser]] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            below = [(name, texts.get(name, "")) for name in action.choices]
            subparsers = list(action.choices.items())
        elif action.option_strings:
            value = None if action.nargs == 0 else _value(action)
            repeats = isinstance(action, argparse._AppendAction)
            help_ = "" if action.help is None else action.help
            options.append(_Option(tuple(action.option_strings), help_, value, repeats))
        else:
            arguments.append(_value(action))
    yield _Verb(path, tuple(options), tuple(arguments), tuple(below))
    for name, subparser in subparsers:
        yield from _verbs(subparser, (*path, name))


def _value(action: argparse.Action) -> _Value:
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    many = "..." if action.nargs in ("*", "+") else ""
    return _Value(metavar + many, tuple(str(choice) for choice in action.choices or ()))


def _words(words: Any) -> str:
    return " ".join(words)


def _bash(verbs: list[_Verb]) -> str:
    paths = [_words(("forebay", *verb.path)) for verb in verbs]
    known = "|".join(f'"{path}"' for path in paths[1:])
    valued, values, takes = [], [], []
    for path, verb in zip(paths, verbs, strict=True):
        for option in verb.options:
            if option.value is not None:
                names = "|".join(f'"{path} {name}"' for name in option.names)
                valued.append(names)
                values.append(f"        {names}) {_bash_value(option.value)} ;;")
        options = _words(name for option in verb.options for name in option.names)
        takes.append(f'        "{path} -") words="{options}" ;;')
        if verb.verbs:
            takes.append(f'        "{path} 0") words="{_words(name for name, _ in verb.verbs)}" ;;')
        for at, value in enumerate(verb.arguments):
            place = "*" if value.is_many else str(at)
            takes.append(f'        "{path} "{place}) {_bash_value(value)} ;;')
    return _BASH.format(
        known=known,
        valued="|".join(valued),
        values="\n".join(values),
        takes="\n".join(takes),
    )


def _bash_value(value: _Value) -> str:
    if value.choices:
        return f'words="{_words(value.choices)}"'
    return "files=1" if value.is_file else ":"


_BASH = """\
# Completes forebay in bash; drawn by `forebay completion bash`.
_forebay() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" path=forebay place=0 word words= files= option= i
    for ((i = 1; i < COMP_CWORD; i++)); do
        word="${{COMP_WORDS[i]}}"
        if [[ -n $option ]]; then
            # Of --option=value bash makes three words.
            [[ $word == = ]] || option=
            continue
        fi
        case "$path $word" in
            {known})
                if ((place == 0)); then path="$path $word"; continue; fi ;;
            {valued})
                option="$path $word"
                continue ;;
        esac
        [[ $word == -* ]] || ((place += 1))
    done
    if [[ -n $option ]]; then
        [[ $cur == = ]] && cur=
        case "$option" in
{values}
        esac
    else
        [[ $cur == -* ]] && place=-
        case "$path $place" in
{takes}
        esac
    fi
    if [[ -n $files ]]; then
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    else
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
    fi
}}
complete -F _forebay forebay
"""


def _zsh(verbs: list[_Verb]) -> str:
    functions = "\n".join(_zsh_function(verb) for verb in verbs)
    head = "#compdef forebay\n# Completes forebay in zsh; drawn by `forebay completion zsh`.\n"
    # The file is autoloaded as the function, or sourced.
    tail = '\nif [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n    _forebay "$@"\nelse\n'
    return f"{head}{functions}{tail}    compdef _forebay forebay\nfi\n"


def _zsh_function(verb: _Verb) -> str:
    name = "_".join(("_forebay", *verb.path)).replace("-", "_")
    specs = [spec for option in verb.options for spec in _zsh_option(option)]
    if not verb.verbs:
        specs += [
            f"'{'*' if value.is_many else at}{_zsh_value(value)}'"
            for at, value in enumerate(verb.arguments, 1)
        ]
        lines = " \\\n        ".join(specs)
        return f"{name}() {{\n    _arguments -s \\\n        {lines}\n}}\n"
    listed = "\n".join(
        f"            '{name}:{_zsh_text(text).replace(':', ' -')}'" for name, text in verb.verbs
    )
    calls = "\n".join(
        f"            {below}) {name}_{below.replace('-', '_')} ;;" for below, _ in verb.verbs
    )
    lines = " \\\n        ".join([*specs, "'1:verb:->verb'", "'*::argument:->argument'"])
    return f"""{name}() {{
    local line state
    local -a verbs
    _arguments -C \\
        {lines}
    case $state in
    verb)
        verbs=(
{listed}
        )
        _describe verb verbs ;;
    argument)
        case $line[1] in
{calls}
        esac ;;
    esac
}}
"""


def _zsh_option(option: _Option) -> Iterator[str]:
    value = "" if option.value is None else _zsh_value(option.value)
    others = "*" if option.repeats else f"({' '.join(option.names)})"
    for name in option.names:
        # The value of a long option may follow "=".
        long = "=" if value and name.startswith("--") else ""
        yield f"'{others}{name}{long}[{_zsh_text(option.help)}]{value}'"


def _zsh_value(value: _Value) -> str:
    action = "_files" if value.is_file else f"({_words(value.choices)})" if value.choices else " "
    return f":{value.name.removesuffix('...')}:{action}"


def _zsh_text(text: str) -> str:
    """Escape a description for a quoted specification."""
    plain = _first(text).replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
    return plain.replace("'", "'\\''")


def _fish(verbs: list[_Verb]) -> str:
    known = " ".join(f"'{_words(verb.path)}'" for verb in verbs[1:])
    lines = [_FISH.format(known=known)]
    for verb in verbs:
        at = f"complete -c forebay -n '__forebay_at \"{_words(verb.path)}\"'"
        for name, text in verb.verbs:
            lines.append(f"{at} -f -a {name} -d '{_fish_text(text)}'")
        for option in verb.options:
            names = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                for name in option.names
            )
            value = "" if option.value is None else f" {_fish_value(option.value)}"
            lines.append(f"{at} {names}{value} -d '{_fish_text(option.help)}'")
        if any(value.is_file for value in verb.arguments):
            lines.append(f"{at} -F")
        for argument in verb.arguments:
            if argument.choices:
                lines.append(f"{at} -f -a '{_words(argument.choices)}'")
    return "\n".join(lines) + "\n"


def _fish_value(value: _Value) -> str:
    if value.choices:
        return f"-x -a '{_words(value.choices)}'"
    return "-r -F" if value.is_file else "-x"


def _fish_text(text: str) -> str:
    return _first(text).replace("\\", "\\\\").replace("'", "\\'")


_FISH = """\
# Completes forebay in fish; drawn by `forebay completion fish`.
function __forebay_at
    set -l path
    for word in (commandline -opc)[2..-1]
        if contains -- (string join -- ' ' $path $word) {known}
            set -a path $word
        end
    end
    test "$path" = "$argv[1]"
end
complete -c forebay -f"""


def _first(text: str) -> str:
    """Return a help text up to a colon or semicolon before a space, so not one within a time."""
    return re.split("[:;] ", text, maxsplit=1)[0]
