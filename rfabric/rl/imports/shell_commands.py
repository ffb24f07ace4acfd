"""The commands that a shell does itself: tests, arithmetic, `source`, `cd`, `set`, `eval` and what
only rewrites text. All others are programs: they are kept and never run.
"""

import posixpath
import re
import shlex
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

import tree_sitter

from ...errors import RFabricError
from .arithmetic import whole_number
from .shell_filters import FILTERS, finds, formatted, printed, with_escapes
from .shell_others import handed_over, inner_text, is_shell, shell_options
from .shell_reads import ShellReads
from .shell_text import MARK, Command, opaque_piece, readable, unknown_names, unset_piece
from .shell_variables import array_of, numbered
from .shell_words import FunctionEnd, LoopEnd, ScriptEnd
from .slurm import host_names
from .yaml_files import MOST_BYTES

DEPTH = 40  # functions, sourced files and `bash -c` inside one another


class ShellCommands(ShellReads):
    """What a command does to the shell, or that it would be run."""

    def call(self, words: list[str], node: tree_sitter.Node) -> bool | None:
        """What a command does to the shell, or that it would be run."""
        words, line = _without_runners(words), node.start_point[0] + 1
        name, *arguments = words
        if name in self.functions:
            with self.state.function():
                self.state.make_own("FUNCNAME")
                self.values["FUNCNAME"] = name
                return self._inside(lambda: self.statement(self.functions[name]), arguments)
        if name in _BUILTINS:
            status = _BUILTINS[name](self, arguments, line)
            self.said = self.said or int(status is False)
            return status
        if name == "test":
            return self.test(arguments, node)
        if name == "xargs" and (made := handed_over(arguments, self.input)):
            outer, self.input = self.input, ""
            try:
                return [self.call(each, node) for each in made][-1]
            finally:
                self.input = outer
        inner = inner_text(words)
        if inner is not None:
            return self._as_program(lambda: self.text(inner[0]), inner[1])
        if (script := self._script_of(words)) is not None:
            return self._script(script, line)
        if name == "sbatch" and (batch := self._batch(arguments, line)):
            self.told_by_slurm(" ".join(arguments))
            return batch()
        return self._program(words, line)

    def _program(self, words: list[str], line: int) -> bool | None:
        """A program: kept as what the job runs, unless only its output is asked for."""
        text = self.input
        if words[0] in FILTERS and words[1:] and text is None:
            text = self.file_text(words[-1])
            words = words if text is None else words[:-1]
        given = None if text is None or MARK.search(text) else text
        if words[0] == "tee" and text is not None:
            self.keep([word for word in words[1:] if word[:1] != "-"], text, "-a" in words)
        if (found := finds(words, given)) is not None and self.printed is None:
            return found
        known = host_names(words, self.values)
        known = printed(words, given, self.folder) if known is None else known
        if known is not None and self.printed is not None:
            self.printed.append(known)
            return found is not False
        if self.printed is not None:
            text = (text or "") if words[0] in FILTERS else ""
            names, held = unknown_names(text), MARK.search(text)  # what a filter hands on
            unknown = held[0] if held else opaque_piece(_counting(words))
            self.printed.append(unset_piece(names[0]) if names else unknown)
            self.printed.append("\n")
        if not self.asked:
            told = any(w.lstrip("-").startswith("config") or "env:" in w for w in words)
            seen = self.state.seen_by_programs().values if told else {}
            said = {name: readable(str(value)) for name, value in seen.items()}
            self.script.commands.append(Command(tuple(words), line, said))
        return None

    def keep(self, files: list[str], text: str, more: bool) -> None:
        """Put `text` into files, behind what they hold where it is `more`."""
        for file in map(self._place, files):
            self.written[file] = (self.written.get(file, "") if more else "") + text

    def _place(self, name: str) -> str:
        return posixpath.normpath(posixpath.join(self.folder, name))

    def _batch(self, words: list[str], line: int) -> Callable[[], bool | None] | None:
        """The walk of what sbatch is given: the text of --wrap, or a job script near this one."""
        wrap = next((i for i, w in enumerate(words) if re.match(r"--wrap(=|$)", w)), None)
        if wrap is not None:
            text = words[wrap].partition("=")[2] or " ".join(words[wrap + 1 : wrap + 2])
            return lambda: self._as_program(lambda: self.text(text), [])
        near = (w for w in words if w[0:1] != "-" and self.file_text(w) is not None)
        file = next(near, None)
        return None if file is None else lambda: self._script([file], line)

    def _script_of(self, words: list[str]) -> list[str] | None:
        """The script, and its arguments, that `bash FILE` runs, alone or behind srun, ray job
        submit -- and the like; or FILE.sh by itself.
        """
        if words[0].endswith(".sh") and self.file_text(words[0]) is not None:
            return words
        for i, word in enumerate(words[:-1]):
            if is_shell(word):
                _, rest = shell_options(words[i + 1 :])
                near = bool(rest) and self.file_text(rest[0]) is not None
                return rest if near or (rest and i == 0) else None
        return None

    def _script(self, words: list[str], line: int) -> bool | None:
        """`bash FILE`: walked where it stands near the script; else what it runs is unknown."""
        if self.file_text(words[0]) is None:
            self.script.notes.append(
                f"line {line}: bash {readable(words[0])}: not found near the script; what it runs "
                "is unknown"
            )
            return None
        outer, self.program = self.program, self._near(words[0]) or Path(words[0])
        try:
            return self._as_program(lambda: self.source(words, line), words[1:])
        finally:
            self.program = outer

    def _as_program(self, walk: Callable[[], bool | None], arguments: list[str]) -> bool | None:
        """Walk what another shell would do: it sees what is exported, and keeps what it sets."""
        state = self.state.seen_by_programs()
        return self.in_other_shell(lambda: self._inside(walk, arguments), state)

    def _inside(self, walk: Callable[[], bool | None], arguments: list[str]) -> bool | None:
        self._check_depth()
        outer, self.arguments, self.depth = self.arguments, arguments, self.depth + 1
        loops, self.loops = self.loops, 0
        try:
            return walk()
        except FunctionEnd as end:
            return end.status
        finally:
            self.arguments, self.depth, self.loops = outer, self.depth - 1, loops

    def _check_depth(self) -> None:
        if self.depth >= DEPTH:
            raise RFabricError(
                f"{self.script.path}: its functions and sourced files call one another more "
                f"than {DEPTH} deep"
            )

    # --- what a shell does itself -----------------------------------------------------------------

    def source(self, words: list[str], line: int) -> bool | None:
        """`source FILE`: walked where the script has made it, or it stands near."""
        if not words:
            return False
        name = readable(words[0])
        file, text = self._near(name), self.file_text(name)
        self.script.sourced.append(name)
        if text is None:
            why = "not found beside the script"
            why = "what it prints cannot be known" if name.startswith("<(") else why
            self.script.notes.append(f"line {line}: source {name}: {why}; left out")
            return True
        outer, self.file = self.file, file or Path(name)
        try:
            return self._inside(lambda: self.text(text), words[1:] or self.arguments)
        finally:
            self.file = outer

    def file_text(self, name: str) -> str | None:
        """What is in a file that the script has made, or that stands near it; None of others."""
        made = self.written.get(self._place(name))
        file = self._near(readable(name)) if made is None else None
        return file.read_bytes()[:MOST_BYTES].decode("utf-8", "replace") if file else made

    def _near(self, name: str) -> Path | None:
        """The file that `name` means where the script stands by now, else near the script."""
        here = self.inside(name)
        return here if here is not None and here.is_file() else nearby(name, self.script.path)

    def replace_names(self, words: list[str], line: int) -> bool | None:
        """`envsubst`: what it reads, with the variables that programs see put in."""
        if self.input is None or self.printed is None:
            return None
        seen = self.state.seen_by_programs().values
        self.printed.append(
            re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda m: str(seen.get(m[1] or m[2], "")), self.input)
        )
        return True

    def change_folder(self, words: list[str], line: int) -> bool:
        """`cd FOLDER`."""
        target = words[-1] if words else "~"
        self.folder = posixpath.normpath(posixpath.join(self.folder, target))
        return True

    def echo(self, words: list[str], line: int) -> bool:
        """`echo WORDS`: kept where its output is asked for."""
        if self.printed is None:
            return True
        options = list(takewhile(lambda word: re.fullmatch(r"-[neE]+", word), words))
        text = " ".join(words[len(options) :])
        text = with_escapes(text) if "e" in "".join(options) else text
        self.printed.append(text + ("" if "n" in "".join(options) else "\n"))
        return True

    def set(self, words: list[str], line: int) -> bool:
        """`set -- WORDS`: the arguments from here on."""
        if "--" in words:
            self.arguments = words[words.index("--") + 1 :]
        elif words and words[0][:1] not in ("-", "+"):
            self.arguments = words
        self.exports_all = self.exports_all or words[:1] == ["-a"] or "allexport" in words
        if words[:1] == ["+a"] or words[:2] == ["+o", "allexport"]:
            self.exports_all = False
        return True

    def printf(self, words: list[str], line: int) -> bool:
        """`printf FORMAT WORDS`: kept as with echo, or put into the variable after -v."""
        name, words = (words[1], words[2:]) if words[:1] == ["-v"] and words[1:] else ("", words)
        words = words[1:] if words[:1] == ["--"] else words
        if "[" in name:
            return bool(self.text(f"{name}={shlex.quote(formatted(words))}"))
        if name:
            self.put(name, formatted(words))
        elif self.printed is not None:
            self.printed.append(formatted(words))
        return True

    def shift(self, words: list[str], line: int) -> bool:
        """`shift N`: the first N arguments go, one where it says none."""
        self.arguments = self.arguments[int(words[0]) if words and words[0].isdigit() else 1 :]
        return True

    def let(self, words: list[str], line: int) -> bool | None:
        """`let N=3+4`: each word as an arithmetic command."""
        text = "; ".join(f"(( {word} ))" for word in words)
        return self._inside(lambda: self.text(text), self.arguments)

    def shopt(self, words: list[str], line: int) -> bool:
        """`shopt`, `ulimit`, `wait` and the like: nothing that a job's words depend on."""
        return True

    def trap(self, words: list[str], line: int) -> bool:
        """`trap COMMANDS EXIT`: walked when this shell ends; other signals never come."""
        what, *when = [word for word in words if word != "--"] or [""]
        if {"EXIT", "SIGEXIT", "0"} & set(when):
            self.traps["EXIT"] = "" if what == "-" else what
        return True

    def unset(self, words: list[str], line: int) -> bool:
        """`unset NAMES`, and elements of arrays; `unset -f NAMES`: functions."""
        if words[:1] == ["-f"]:
            for name in words[1:]:
                self.functions.pop(name, None)
            return True
        words = [word for word in words if word[:1] != "-"]
        for word in words:
            name, _, index = word.rstrip("]").partition("[")
            name = self.state.meant(name)
            held = self.values.get(name)
            if not index:
                self.state.forget(name)
            elif name in self.tables:
                self.tables[name].pop(index.strip("\"'"), None)
            elif isinstance(held, list):
                at, elements = whole_number(index, self._counts), numbered(held)
                if at is not None:
                    elements.pop(at if at >= 0 else at + max(elements, default=-1) + 1, None)
                self.values[name] = array_of(elements)
        return True

    def end_loop(self, words: list[str], again: bool) -> bool:
        """`break N`, or with `again` `continue N`; nothing outside a loop. Raises LoopEnd."""
        if self.loops:
            said = int(words[0]) if words and words[0].isdigit() else 1
            raise LoopEnd(max(1, min(said, self.loops)), again)
        return True

    def exit(self, words: list[str], line: int) -> bool:
        """A script that gives up for want of something goes on here, and that is said; what stands
        in ( ) or $( ) ends. Raises ScriptEnd.
        """
        self.said = _code(words, self.code if self.shells else 0)
        if words[:1] in ([], ["0"]) or self.shells:
            raise ScriptEnd(self.said == 0)
        self.script.notes.append(f"line {line}: the script would stop here with exit {words[0]}")
        return True

    def leave(self, words: list[str], line: int) -> bool:
        """`return N`: success where N is 0; where it is not said, as the command before it. Raises
        FunctionEnd.
        """
        self.said = _code(words, self.code)
        raise FunctionEnd(self.said == 0 if words and words[0].isdigit() else self.status)

    def evaluate(self, words: list[str], line: int) -> bool | None:
        """`eval WORDS`: walked as text; `eval set -- ...` sets the arguments of who says it."""
        self._check_depth()
        self.depth += 1
        try:
            return self.text(" ".join(map(readable, words)))
        finally:
            self.depth -= 1


_BUILTINS: dict[str, Callable[[ShellCommands, list[str], int], bool | None]] = {
    "source": ShellCommands.source,
    ".": ShellCommands.source,
    "cd": ShellCommands.change_folder,
    "echo": ShellCommands.echo,
    "printf": ShellCommands.printf,
    "set": ShellCommands.set,
    "shift": ShellCommands.shift,
    "let": ShellCommands.let,
    "getopts": ShellCommands.getopts,
    "read": ShellCommands.read,
    "mapfile": ShellCommands.mapfile,
    "readarray": ShellCommands.mapfile,
    "unset": ShellCommands.unset,
    "envsubst": ShellCommands.replace_names,
    "trap": ShellCommands.trap,
    **dict.fromkeys(("shopt", "ulimit", "wait"), ShellCommands.shopt),
    "break": lambda walk, words, line: walk.end_loop(words, again=False),
    "continue": lambda walk, words, line: walk.end_loop(words, again=True),
    "exit": ShellCommands.exit,
    "return": ShellCommands.leave,
    "eval": ShellCommands.evaluate,
    ":": lambda walk, words, line: True,
    "true": lambda walk, words, line: True,
    "false": lambda walk, words, line: False,
}


def _counting(words: list[str]) -> str:
    """A program by its name, one that counts a machine's GPUs by what it asks."""
    text = " ".join(words)
    if "device_count" in text:
        return "device_count"
    return "ls /dev/nvidia*" if words[0] == "ls" and "/dev/nvidia" in text else words[0]


def _code(words: list[str], before: int) -> int:
    """What `exit N` or `return N` says, as of the command before it where it says nothing."""
    return int(words[0]) % 256 if words and words[0].isdigit() else before


def nearby(name: str, script: Path) -> Path | None:
    """The file that `name` means, looked for beside the script and in the folders above it, where
    a repository keeps it; None where it is not there.
    """
    parts = [part for part in re.split(r"/+", name) if part not in ("", ".", "..")]
    if not parts or not name.isprintable() or len(name) > 1_000 or max(map(len, parts)) > 255:
        return None
    folders = [script.resolve().parent, *script.resolve().parents[1:5]]
    for first in range(len(parts)):
        tail = Path(*parts[first:])
        for folder in folders:
            if (file := folder / tail).is_file():
                return file
    return None


_RUNNERS = ("nohup", "exec", "command", "builtin", "sudo", "time", "setsid", "timeout")


def _without_runners(words: list[str]) -> list[str]:
    """A command without what only starts it: nohup, exec, env A=B, timeout 3h."""
    while len(words) > 1 and words[0] in _RUNNERS and not words[1].startswith("-"):
        words = words[2:] if words[0] == "timeout" and len(words) > 2 else words[1:]
    return words
