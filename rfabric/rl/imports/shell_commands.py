"""The commands that a shell does itself: tests, arithmetic, `source`, `cd`, `set`, `eval` and what
only rewrites text. All others are programs: they are kept and never run.
"""

import fnmatch
import posixpath
import re
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path

import tree_sitter

from ...errors import RFabricError
from .arithmetic import whole_number
from .shell_text import Command, formatted, known_text, opaque_piece, read_names, readable, text_of
from .shell_words import FunctionEnd, LoopEnd, ScriptEnd, ShellWords
from .yaml_files import MOST_BYTES

DEPTH = 40  # functions, sourced files and `bash -c` inside one another
MOST_TURNS = 1_000  # of one while loop, or of what `seq` counts


class ShellCommands(ShellWords):
    """What a command does to the shell, or that it would be run."""

    @abstractmethod
    def text(self, text: str) -> bool | None:
        """Walk the commands of `text`."""

    def call(self, words: list[str], line: int) -> bool | None:
        """What a command does to the shell, or that it would be run."""
        name, *arguments = words
        if name in self.functions:
            return self._inside(lambda: self.statement(self.functions[name]), arguments)
        if name in _BUILTINS:
            return _BUILTINS[name](self, arguments, line)
        inner = _inner_text(words)
        if inner is not None:
            return self._inside(lambda: self.text(inner), [])
        if name in ("bash", "sh") and arguments and not arguments[0].startswith("-"):
            return self._script(arguments, line)
        if name == "sbatch" and (file := self._batch_file(arguments)):
            self.told_by_slurm(" ".join(arguments))
            return self._script([file], line)
        printed = _printed(name, arguments, self)
        if printed is not None and self.printed is not None:
            self.printed.append(printed)
            return True
        if self.printed is not None:  # asked for its output: not the job
            self.printed.append(opaque_piece(name))
            return None
        self.script.commands.append(Command(tuple(words), line))
        return None

    def _batch_file(self, words: list[str]) -> str | None:
        """The job script that sbatch is given, where it stands near this one."""
        return next((w for w in words if w[0:1] != "-" and nearby(w, self.script.path)), None)

    def _script(self, words: list[str], line: int) -> bool | None:
        """`bash FILE`: walked where it stands near the script; else what it runs is unknown."""
        if nearby(words[0], self.script.path) is None:
            self.script.notes.append(
                f"line {line}: bash {readable(words[0])}: not found near the script; what it runs "
                "is unknown"
            )
            return None
        return _BUILTINS["source"](self, words, line)

    def _inside(self, walk: Callable[[], bool | None], arguments: list[str]) -> bool | None:
        if self.depth >= DEPTH:
            raise RFabricError(
                f"{self.script.path}: its functions and sourced files call one another more "
                f"than {DEPTH} deep"
            )
        outer, self.arguments, self.depth = self.arguments, arguments, self.depth + 1
        loops, self.loops = self.loops, 0
        try:
            return walk()
        except FunctionEnd as end:
            return end.status
        finally:
            self.arguments, self.depth, self.loops = outer, self.depth - 1, loops

    def _worked(self, *nodes: tree_sitter.Node) -> bool | None:
        """An arithmetic command: (( i < 3 )), (( i++ )), (( i = 3, j = 4 ))."""
        value = self._number(*nodes)
        return None if value is None else value != 0

    def _test(self, node: tree_sitter.Node) -> bool | None:
        inner = [child for child in node.children[1:-1] if child.is_named or child.type == "!"]
        if not inner:
            return False
        if node.children[0].type == "((":
            return self._worked(*node.children[1:-1])
        return self._true(inner[-1]) if inner[0].type != "!" else _not(self._true(inner[-1]))

    def _true(self, node: tree_sitter.Node) -> bool | None:
        if node.type == "parenthesized_expression":
            return self._true(node.named_children[0])
        if node.type == "unary_expression":
            return self._unary(node)
        if node.type == "binary_expression":
            return self._binary(node)
        known = known_text(self.one(node))
        return None if known is None else known != ""

    def _unary(self, node: tree_sitter.Node) -> bool | None:
        operator = text_of(node.children[0])
        if operator == "!":
            return _not(self._true(node.children[-1]))
        if operator == "-v":
            return text_of(node.children[-1]) in self.values
        value = known_text(self.one(node.children[-1]))
        if value is None:
            return None
        if operator in ("-z", "-n"):
            return (value == "") == (operator == "-z")
        # Files of the machine the job runs on: not there, and so the script's own default is taken.
        return False if operator in ("-f", "-d", "-e", "-r", "-x", "-s", "-L", "-w") else None

    def _binary(self, node: tree_sitter.Node) -> bool | None:
        operator = text_of(node.child_by_field_name("operator"))
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if operator in ("&&", "-a"):
            return _both(self._true(left), self._true(right))
        if operator in ("||", "-o"):
            return _not(_both(_not(self._true(left)), _not(self._true(right))))
        one, other = known_text(self.one(left)), known_text(self.one(right))
        status = _compared(operator, one, other, right)
        if operator == "=~" and status and one and other:
            found = re.search(other, one)
            self.values["BASH_REMATCH"] = [found[0], *(part or "" for part in found.groups())]
        return status

    def source(self, words: list[str], line: int) -> bool | None:
        """`source FILE`: walked where it stands near the script."""
        if not words:
            return False
        file = nearby(readable(words[0]), self.script.path)
        self.script.sourced.append(readable(words[0]))
        if file is None:
            self.script.notes.append(
                f"line {line}: source {readable(words[0])}: not found beside the script; left out"
            )
            return True
        outer, self.file = self.file, file
        try:
            text = file.read_bytes()[:MOST_BYTES].decode("utf-8", "replace")
            return self._inside(lambda: self.text(text), words[1:] or self.arguments)
        finally:
            self.file = outer

    def change_folder(self, words: list[str], line: int) -> bool:
        """`cd FOLDER`."""
        target = words[-1] if words else "~"
        self.folder = posixpath.normpath(posixpath.join(self.folder, target))
        return True

    def echo(self, words: list[str], line: int) -> bool:
        """`echo WORDS`: kept where its output is asked for."""
        if self.printed is not None:
            self.printed.append(" ".join(w for w in words if w not in ("-n", "-e")))
        return True

    def set(self, words: list[str], line: int) -> bool:
        """`set -- WORDS`: the arguments from here on."""
        if "--" in words:
            self.arguments = words[words.index("--") + 1 :]
        return True

    def printf(self, words: list[str], line: int) -> bool:
        """`printf FORMAT WORDS`: kept as with echo, or put into the variable after -v."""
        if words[:1] == ["-v"] and len(words) > 2:
            self.values[words[1]] = formatted(words[2:])
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

    def getopts(self, words: list[str], line: int) -> bool:
        """`getopts LETTERS NAME`: the next option of the arguments; false where there is none."""
        letters, name, *given = words if len(words) > 1 else ("", "OPTARG")
        arguments, index = given or self.arguments, whole_number(self._value("OPTIND")) or 1
        word = arguments[index - 1] if index <= len(arguments) else ""
        if word in ("", "-", "--") or word[0] != "-":
            self.values |= {name: "?", "OPTIND": str(index + (word == "--"))}
            return False
        letter, rest = word[1], word[2:]
        self.values[name] = letter if letter in letters.replace(":", "") else "?"
        if f"{letter}:" in letters:
            index += not rest
            self.values["OPTARG"] = rest or "".join(arguments[index - 1 : index])
        elif rest:  # -ab: its next letter stands alone
            arguments[index - 1], index = f"-{rest}", index - 1
        self.values["OPTIND"] = str(index + 1)
        return True

    def read(self, words: list[str], text: str) -> bool:
        """`read NAMES` of a first line `text`, cut at blanks or IFS; with -a an array of all."""
        names = read_names(words)
        between = self.values.get("IFS", "")
        between = between if isinstance(between, str) and between.strip() else None
        if names[0] == "-a":
            self.values[names[1]] = text.split(between)
            return True
        cut = [each.strip() for each in text.split(between, len(names) - 1)]
        self.values |= dict(zip(names, [*cut, *[""] * len(names)], strict=False))
        return True

    def unset(self, words: list[str]) -> bool:
        """`unset NAMES`, and elements of arrays."""
        for word in words:
            name, _, index = word.rstrip("]").partition("[")
            held = self.values.get(name)
            if not index:
                self.values.pop(name, None)
                self.tables.pop(name, None)
            elif name in self.tables:
                self.tables[name].pop(index.strip("\"'"), None)
            elif isinstance(held, list) and index.isdigit():
                del held[int(index) : int(index) + 1]
        return True

    def end_loop(self, words: list[str], again: bool) -> bool:
        """`break N`, or with `again` `continue N`; nothing outside a loop."""
        if self.loops:
            said = int(words[0]) if words and words[0].isdigit() else 1
            raise LoopEnd(max(1, min(said, self.loops)), again)
        return True

    def exit(self, words: list[str], line: int) -> bool:
        """A script that gives up for want of something goes on here, and that is said."""
        if words[:1] not in ([], ["0"]):
            self.script.notes.append(
                f"line {line}: the script would stop here with exit {words[0]}"
            )
            return True
        raise ScriptEnd

    def leave(self, words: list[str], line: int) -> bool:
        """`return N`: success where N is 0, not known where it is not said."""
        raise FunctionEnd(words[0] == "0" if words and words[0].isdigit() else None)

    def evaluate(self, words: list[str], line: int) -> bool | None:
        """`eval WORDS`: walked as text."""
        return self._inside(lambda: self.text(" ".join(words)), self.arguments)


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
    "break": lambda walk, words, line: walk.end_loop(words, again=False),
    "continue": lambda walk, words, line: walk.end_loop(words, again=True),
    "exit": ShellCommands.exit,
    "return": ShellCommands.leave,
    "eval": ShellCommands.evaluate,
    ":": lambda walk, words, line: True,
    "true": lambda walk, words, line: True,
    "false": lambda walk, words, line: False,
}


def _not(status: bool | None) -> bool | None:
    return None if status is None else not status


def _both(one: bool | None, other: bool | None) -> bool | None:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": int.__eq__,
    "-ne": int.__ne__,
    "-lt": int.__lt__,
    "-le": int.__le__,
    "-gt": int.__gt__,
    "-ge": int.__ge__,
}


def _compared(
    operator: str, one: str | None, other: str | None, right: tree_sitter.Node
) -> bool | None:
    if one is None or other is None:
        return None
    if operator in ("=", "==", "!="):
        quoted = right.type in ("string", "raw_string")
        same = one == other if quoted else fnmatch.fnmatchcase(one, other)
        return same == (operator != "!=")
    if operator == "=~":
        try:
            return bool(re.search(other, one[:1000]))
        except re.error:
            return None
    if operator in ("<", ">"):
        return one < other if operator == "<" else one > other
    a, b = whole_number(one or "0"), whole_number(other or "0")
    return None if a is None or b is None or operator not in _NUMBERS else _NUMBERS[operator](a, b)


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


def _inner_text(words: list[str]) -> str | None:
    """The commands of `bash -c TEXT`, alone or behind srun, docker exec and the like."""
    for i, word in enumerate(words[:-2]):
        if word in ("bash", "sh") and re.fullmatch(r"-\w*c", words[i + 1]):
            return words[i + 2]
    return None


def _printed(name: str, words: list[str], walk: ShellCommands) -> str | None:
    """What a command prints that only rewrites its words; None of all others."""
    words = [word for word in words if word != "--"]
    if name == "pwd":
        return walk.folder
    if name == "dirname" and words:
        return posixpath.dirname(words[-1]) or "."
    if name in ("realpath", "readlink") and words:
        return posixpath.normpath(posixpath.join(walk.folder, words[-1]))
    if name == "basename" and words:
        return posixpath.basename(words[0].rstrip("/")).removesuffix(words[1] if words[1:] else "")
    if name == "expr":
        value = whole_number(" ".join(words))
        return None if value is None else str(value)
    if name == "seq" and all(word.isdigit() for word in words) and 0 < len(words) < 4:
        first, last = (1, int(words[0])) if len(words) == 1 else (int(words[0]), int(words[-1]))
        by = max(1, int(words[1])) if len(words) == 3 else 1
        return "\n".join(map(str, range(first, min(last, first + by * MOST_TURNS) + 1, by)))
    return None
