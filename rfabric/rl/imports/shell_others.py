"""Commands that are told in the words or the input of others: `bash -c`, `ssh`, `tmux`, `xargs`."""

import re
import shlex
from itertools import pairwise

from .arithmetic import whole_number
from .shell_filters import with_escapes
from .shell_reads import options_of
from .shell_text import MARK

_MOST = 1_000  # commands of one xargs
_OF_XARGS, _OF_SSH = "InLPdEsa", "bcDEeFIiJLlmOopQRSWw"  # options that take a word


def inner_text(words: list[str]) -> tuple[str, list[str]] | None:
    """The commands of `bash -c TEXT NAME WORDS` and their arguments, alone or behind srun, docker
    exec and the like, with the variables that a container is given; those that `ssh HOST WORDS` and
    tmux hand to another shell.

    >>> inner_text(["docker", "exec", "-e", "N=1", "c", "bash", "-lc", "go $N"])
    ('export N=1; go $N', [])
    """
    if words[0] in ("ssh", "tmux"):
        beyond = beyond_ssh(words) if words[0] == "ssh" else _in_tmux(words[1:])
        return (" ".join(beyond), []) if beyond else None
    for i, word in enumerate(words[:-2]):
        asked, rest = shell_options(words[i + 1 :]) if is_shell(word) else (False, [])
        if asked and rest:
            return _given_to_container(words[:i]) + rest[0], rest[2:]
    return None


def is_shell(word: str) -> bool:
    """Whether a word names a shell, by a path or without."""
    return bool(re.fullmatch(r"(?:/\S*/)?(?:ba|da|z)?sh", word))


def shell_options(words: list[str]) -> tuple[bool, list[str]]:
    """Whether -c is among the options of a shell, and the words behind them.

    >>> shell_options(["-euo", "pipefail", "-c", "go"]), shell_options(["-x", "run.sh", "-c"])
    ((True, ['go']), (False, ['run.sh', '-c']))
    """
    asked, rest = False, list(words)
    while rest and re.fullmatch(r"[-+][A-Za-z]+|--[a-z-]*", rest[0]):
        option = rest.pop(0)
        if option == "--":
            break
        if option[:2] != "--":
            asked = asked or "c" in option
        if (option[:2] != "--" and "o" in option) or option in ("--rcfile", "--init-file"):
            rest = rest[1:]
    return asked, rest


def _given_to_container(words: list[str]) -> str:
    """The variables of `docker run -e NAME=VALUE` and `--env NAME=VALUE`, as a shell sets them."""
    told = [w.removeprefix("--env=") for w in words if w.startswith("--env=")]
    told += [word for flag, word in pairwise(words) if flag in ("-e", "--env")]
    pairs = [word.split("=", 1) for word in told if re.match(r"[A-Za-z_]\w*=", word)]
    return "".join(f"export {name}={shlex.quote(value)}; " for name, value in pairs)


def beyond_ssh(words: list[str]) -> list[str]:
    """The words of `ssh` behind its options and the host.

    >>> beyond_ssh(["ssh", "-p", "22", "-tt", "root@a", "cd x;", "go"])
    ['cd x;', 'go']
    """
    return options_of(words[1:], _OF_SSH)[1][1:]


def _in_tmux(words: list[str]) -> list[str]:
    """What `tmux new-session -d WORDS` runs, or `tmux send-keys WORDS Enter` types.

    >>> _in_tmux(["send-keys", "-t", "a:0", "go 1", "C-m"])
    ['go 1']
    """
    if not re.match("new|split|send|respawn", words[0] if words else ""):
        return []
    typed = options_of(words[1:], "cEeFflNnstxy")[1]
    return typed[:-1] if typed[-1:] in (["C-m"], ["Enter"]) else typed


def handed_over(words: list[str], text: str | None) -> list[list[str]]:
    """The commands of `xargs COMMAND` that reads `text`: one with all of its words, one for each -n
    of them, or with -I or -L one for each line. Empty where either is not known.

    >>> handed_over(["-n2", "go"], "1 2 '3 4'")
    [['go', '1', '2'], ['go', '3 4']]
    """
    options, command = options_of(words, _OF_XARGS)
    if not command or command[0][:1] == "-" or text is None or MARK.search(text):
        return []
    if sign := options.get("I"):
        lines = filter(None, map(str.strip, text.splitlines()[:_MOST]))
        return [[word.replace(sign, line) for word in command] for line in lines]
    if "L" in options:
        return [command + line.split() for line in text.splitlines()[:_MOST] if line.strip()]
    given = _given(options, text)
    each = whole_number(options.get("n", "0")) or max(1, len(given))
    starts = range(0, max(1, len(given)), each)[:_MOST]
    return [command + given[at : at + each] for at in starts]


def _given(options: dict[str, str], text: str) -> list[str]:
    """The words that xargs reads: between its -d where it has one, else as a shell quotes them."""
    if "0" in options or "d" in options:
        end = with_escapes(options.get("d", ""))[:1] or "\0"
        return text.removesuffix(end).split(end)
    try:
        return shlex.split(text)
    except ValueError:  # a quote that is not closed
        return text.split()
