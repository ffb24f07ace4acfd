"""What a launch script would run, without running it: its commands in the values of its variables.

    script = read_script(Path("run.sh"), {"NNODES": "8"})
    script.commands        the words of each command reached, in order
    script.defaulted       variables left to the environment, with the script's own default
    script.notes           what could not be decided, and what was taken instead

The text is parsed by the grammar of tree-sitter-bash and walked: assignments, arrays, expansions
(defaults, prefixes, suffixes, slices, lengths), arithmetic, if, case, for, functions, `source` of
files near the script, `bash -c`. No command runs; of those that only rewrite text (echo, printf,
dirname, basename, pwd, seq, expr) the output is worked out. What stays unknown, a variable of the
environment or the output of a program, keeps its `$NAME` or `$(program)` in the text, and whoever
needs the value says so.
"""

import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import tree_sitter

from ...errors import RFabricError
from .arithmetic import whole_number
from .shell_commands import MOST_TURNS, ShellCommands
from .shell_text import (
    Script,
    Values,
    known_text,
    left_open,
    opaque_piece,
    parsed,
    readable,
    text_of,
)
from .shell_words import FunctionEnd, LoopEnd, ScriptEnd
from .slurm import batch_lines

# The grammar takes the $ of {a=$A,b} for the end of a word, that of {a=${A},b} never.
_IN_BRACES, _NAME = re.compile(r"\{[^\s'\"{}]+\}"), re.compile(r"(?<==)\$([A-Za-z_]\w*)(?=,)")
MOST_STEPS = 200_000  # statements walked, loops and functions unrolled


def read_script(path: Path, text: str, environment: Mapping[str, str] | None = None) -> Script:
    """Walk the script `text` of the file `path` under `environment`.

    RFabricError where a quote or bracket is opened and not closed, or its variables grow without
    end.
    """
    script = Script(path)
    walk = _Walk(script, dict(environment or {}))
    walk.text(text)
    return script


class _Walk(ShellCommands):
    """The statements of a script, in order: each gives whether it succeeded, None where that cannot
    be known.
    """

    def __init__(self, script: Script, environment: dict[str, str]) -> None:
        super().__init__(script, environment)
        self.kinds: dict[str, Callable[[tree_sitter.Node], bool | None]] = {
            "variable_assignment": self._assignment,
            "variable_assignments": self._each,
            "declaration_command": self._each_assignment,
            "command": self._command,
            "list": self._and_or,
            "pipeline": self._pipeline,
            "negated_command": self._negated,
            "test_command": self._test,
            "if_statement": self._if,
            "case_statement": self._case,
            "for_statement": self._for,
            "c_style_for_statement": self._counted,
            "while_statement": self._while,
            "function_definition": self._define,
            "redirected_statement": self._redirected,
            "compound_statement": self._compound,
            "subshell": self.apart,
            "unset_command": self._unset,
            "program": self._each,
            "do_group": self._each,
        }

    def text(self, text: str) -> bool | None:
        """Walk the commands of `text`."""
        self.told_by_slurm(batch_lines(text))
        text = text.replace("\0", "").replace("\r\n", "\n")
        root = parsed(_IN_BRACES.sub(lambda m: _NAME.sub(r"${\1}", m[0]), text))
        if (line := left_open(root)) and not self.depth:
            raise RFabricError(
                f"{self.script.path}: line {line}: a quote or bracket is opened and not closed"
            )
        try:
            return self.statement(root)
        except (ScriptEnd, FunctionEnd):
            return None

    def statement(self, node: tree_sitter.Node) -> bool | None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise RFabricError(
                f"{self.script.path}: its loops and functions make more than {MOST_STEPS:,} "
                "commands; give the job's own launch script"
            )
        walk = self.kinds.get(node.type)
        if walk is None:
            return self._each(node) if node.type == "ERROR" else None
        return walk(node)

    def _each(self, node: tree_sitter.Node) -> bool | None:
        status: bool | None = True
        for child in node.named_children:
            if child.type != "comment":
                status = self.statement(child)
        return status

    def _each_assignment(self, node: tree_sitter.Node) -> bool:
        options = [text_of(child) for child in node.named_children if child.type == "word"]
        for child in node.named_children:
            if any(re.match(r"-\w*A", option) for option in options):
                name = child.child_by_field_name("name") or child
                self.tables.setdefault(text_of(name), {})
            if child.type == "variable_assignment":
                self._assignment(child)
        return True

    def _assignment(self, node: tree_sitter.Node) -> bool:
        target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if target is None:
            return True
        more = any(child.type == "+=" for child in node.children)
        if target.type == "subscript":
            self._element(target, self.one(value) if value else "", more)
            return True
        name = text_of(target)
        if name in self.tables and value is not None and value.type == "array":
            self.tables[name] |= self._table(value)
            return True
        new: Values = self._array(value) if value and value.type == "array" else self.one(value)
        self.values[name] = _joined_values(self.values.get(name), new) if more else new
        return True

    def _element(self, target: tree_sitter.Node, value: str, more: bool) -> None:
        name, index = text_of(target.named_children[0]), self.one(target.named_children[1])
        value = self._head(target) + value if more and self._is_set(target) else value
        if name in self.tables:
            self.tables[name][index] = value
            return
        held, at = self.values.setdefault(name, []), whole_number(self._plain(index))
        if isinstance(held, list) and at is not None and 0 <= at <= len(held) < MOST_STEPS:
            held[at : at + 1] = [value]

    def _unset(self, node: tree_sitter.Node) -> bool:
        words = text_of(node).split()[1:]
        return self.unset([word.strip("\"'") for word in words if word[0] != "-"])

    def _table(self, node: tree_sitter.Node) -> dict[str, str]:
        """The entries of ([key]=value ...)."""
        entries = map(self.one, node.named_children)
        pairs = (re.fullmatch(r"\[(.*?)\]=(.*)", entry, re.DOTALL) for entry in entries)
        return {pair[1]: pair[2] for pair in pairs if pair}

    def _words_of(self, node: tree_sitter.Node) -> list[str]:
        """The words of a command, its name first."""
        name = node.child_by_field_name("name")
        parts = [name.named_children[0] if name and name.named_children else name]
        parts += node.children_by_field_name("argument")
        return [word for part in parts if part is not None for word in self.words(part)]

    def _command(self, node: tree_sitter.Node) -> bool | None:
        if node.child_by_field_name("name") is None:
            return self._each_assignment(node)
        words, told = self._words_of(node), self._told(node)
        if not words:
            return True
        here = next((c for c in node.children if c.type == "herestring_redirect"), None)
        outer = self.values
        self.values = outer | told
        try:
            if here is not None:
                return self._fed(words, self.one(here.named_children[0]), node)
            handed = told.get("COMMAND") if words[0] in ("sbatch", "srun") else None
            if handed:  # COMMAND="..." sbatch run.sub
                self.told_by_slurm(" ".join(words))
                return self._inside(lambda: self.text(handed), [])
            return self.call(words, node.start_point[0] + 1)
        finally:
            if told:
                self.values = {k: v for k, v in self.values.items() if k not in told} | {
                    k: outer[k] for k in told if k in outer
                }

    def _told(self, node: tree_sitter.Node) -> dict[str, str]:
        """The variables set for one command alone: A=1 B=2 command."""
        pairs = (
            (child.child_by_field_name("name"), child.child_by_field_name("value"))
            for child in node.named_children
            if child.type == "variable_assignment"
        )
        return {text_of(name): self.one(value) for name, value in pairs}

    def _and_or(self, node: tree_sitter.Node) -> bool | None:
        left, right = node.named_children[0], node.named_children[-1]
        operator = next((c.type for c in node.children if c.type in ("&&", "||")), ";")
        before = len(self.printed or ())
        status = self.statement(left)
        if status is None and operator != ";":
            # A job's programs run and succeed; one that only asks (`$(probe && echo a || echo b)`)
            # is taken to find nothing.
            status = self.printed is None
            del (self.printed or [])[before:]
        if operator == ";" or status == (operator == "&&"):
            return self.statement(right)
        return status

    def _pipeline(self, node: tree_sitter.Node) -> None:
        """Each part is reached; what the last prints depends on programs."""
        outer, self.printed = self.printed, [] if self.printed is not None else None
        for child in node.named_children:
            self.statement(child)
        self.printed = outer
        if outer is not None:
            outer.append(opaque_piece(text_of(node).split()[0]))

    def _negated(self, node: tree_sitter.Node) -> bool | None:
        status = self.statement(node.named_children[-1])
        return None if status is None else not status

    def _redirected(self, node: tree_sitter.Node) -> bool | None:
        body = node.child_by_field_name("body")
        redirects = node.children_by_field_name("redirect")
        quiet = any(re.match(r"(1?>|&>)", text_of(redirect)) for redirect in redirects)
        outer, self.printed = (
            self.printed,
            [] if quiet and self.printed is not None else self.printed,
        )
        fed = next((r for r in redirects if r.type == "heredoc_redirect"), None)
        try:
            if fed is not None and body is not None and body.type == "command":
                return self._fed(self._words_of(body) or [""], self.here_text(fed), body)
            return self.statement(body) if body else None
        finally:
            self.printed = outer

    def _fed(self, words: list[str], text: str, node: tree_sitter.Node) -> bool | None:
        """A command that reads `text` (<<EOF or <<<): `cat` hands it on, `read` and `mapfile` keep
        it, a shell walks it.
        """
        if words[0] == "read":
            return self.read(words[1:], text.strip() if "-d" in words else text.partition("\n")[0])
        if words[0] in ("mapfile", "readarray"):
            self.values[words[-1]] = text.splitlines()
            return True
        if words[0] == "cat" and self.printed is not None:
            self.printed.append(text.rstrip("\n"))
            return True
        if words[0] == "sbatch" or words[-1] in ("bash", "sh") or words[-2:] == ["bash", "-s"]:
            return self._inside(lambda: self.text(text), [])
        return self.call(words, node.start_point[0] + 1)

    def _compound(self, node: tree_sitter.Node) -> bool | None:
        if node.children and node.children[0].type == "((":
            return self._worked(*node.children[1:-1])
        return self._each(node)

    def _counted(self, node: tree_sitter.Node) -> bool:
        """for ((i=0; i<N; i++))."""
        first, condition, update = (
            node.children_by_field_name(part) for part in ("initializer", "condition", "update")
        )
        self._worked(*first)
        for _ in range(MOST_TURNS):
            if not condition or not self._worked(*condition):
                return True
            if not self._turn(node.child_by_field_name("body")):
                return True
            self._worked(*update)
        self._note(node, f"a loop was left after {MOST_TURNS} turns")
        return True

    def _if(self, node: tree_sitter.Node) -> bool | None:
        status = self._condition(node)
        if status:
            return self._bodies(node)
        for child in node.named_children:
            if child.type == "elif_clause" and self._condition(child):
                return self._bodies(child)
            if child.type == "else_clause":
                return self._each(child)
        return True

    def _condition(self, node: tree_sitter.Node) -> bool:
        """Whether the condition of an if or elif holds; one that cannot be known does not."""
        status: bool | None = True
        for child in node.children_by_field_name("condition") or _before_then(node):
            if child.is_named:
                status = self.statement(child)
        if status is None:
            text = " ".join(text_of(n) for n in _before_then(node))
            self._note(node, f"whether {text[:80]} holds cannot be known; taken as no")
        return bool(status)

    def _bodies(self, node: tree_sitter.Node) -> bool | None:
        status: bool | None = True
        after = False
        for child in node.children:
            after = after or child.type == "then"
            if after and child.is_named and child.type not in ("elif_clause", "else_clause"):
                status = self.statement(child) if child.type != "comment" else status
        return status

    def _case(self, node: tree_sitter.Node) -> bool | None:
        value = node.child_by_field_name("value")
        subject = self.one(value) if value else ""
        known = known_text(subject)
        if known is None:
            self._note(node, f"case {readable(subject)} cannot be known; its default was taken")
        falls = False  # `;&` goes on with what the next item says, `;;&` with those that match
        for item in node.named_children:
            if item.type == "case_item" and (falls or self._matches(item, known)):
                patterns = item.children_by_field_name("value")
                for child in item.named_children:
                    if child not in patterns and child.type != "comment":
                        self.statement(child)
                end = item.children[-1].type
                falls = end == ";&"
                if end not in (";&", ";;&"):
                    return True
        return True

    def _matches(self, item: tree_sitter.Node, subject: str | None) -> bool:
        patterns = [
            self.one(node) if node.type != "extglob_pattern" else text_of(node)
            for node in item.children_by_field_name("value")
        ]
        if subject is None:
            return "*" in patterns
        return any(fnmatch.fnmatchcase(subject, pattern) for pattern in patterns)

    def _for(self, node: tree_sitter.Node) -> bool:
        variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        turns = [w for child in node.children_by_field_name("value") for w in self.words(child)]
        if all(child.type != "in" for child in node.children):
            turns = list(self.arguments)
        for turn in turns:
            self.values[text_of(variable)] = turn
            if not self._turn(body):
                return True
        return True

    def _turn(self, body: tree_sitter.Node) -> bool:
        """One turn of a loop; whether the loop goes on."""
        self.loops += 1
        try:
            self.statement(body)
            return True
        except LoopEnd as end:
            if end.left > 1:
                raise LoopEnd(end.left - 1, end.again) from None
            return end.again
        finally:
            self.loops -= 1

    def _while(self, node: tree_sitter.Node) -> bool:
        condition = node.children_by_field_name("condition")
        until = node.children[0].type == "until"
        for _ in range(MOST_TURNS):
            status: bool | None = True
            for child in condition:
                status = self.statement(child) if child.is_named else status
            if status is None or status == until:
                return True
            if not self._turn(node.child_by_field_name("body")):
                return True
        self._note(node, f"a loop was left after {MOST_TURNS} turns")
        return True

    def _define(self, node: tree_sitter.Node) -> bool:
        self.functions[text_of(node.child_by_field_name("name"))] = node.child_by_field_name("body")
        return True


def _before_then(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    for child in node.children[1:]:
        if child.type in ("then", ";"):
            return
        yield child


def _joined_values(held: Values | None, new: Values) -> Values:
    if isinstance(held, list):
        return held + (new if isinstance(new, list) else [new])
    if isinstance(new, list):
        return ([held] if held else []) + new
    return (held or "") + new
