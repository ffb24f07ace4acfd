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

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import tree_sitter

from ...errors import RFabricError
from .shell_filters import MOST_TURNS
from .shell_heredocs import without_documents
from .shell_patterns import matches, split_ways
from .shell_statements import ShellStatements
from .shell_text import (
    MARK,
    Script,
    known_text,
    left_open,
    parsed,
    readable,
    text_of,
    unknown_names,
)
from .shell_words import LoopEnd, ScriptEnd
from .slurm import batch_lines

# The grammar takes the $ of {a=$A,b} for the end of a word, that of {a=${A},b} never.
# It takes no quotes between the slashes of ${A//'/'/-}, but does take backslashes.
_BETWEEN_SLASHES = re.compile(r"(\$\{\w+//?)'([^'\n]*)'")
_COUNT_IN_SLICE = re.compile(r"(\$\{(?:[@*]|\w+\[[@*]\]):[^{}\s]*?)\$#")  # nor $# in ${@:1:$#-1}
_REMARK = re.compile(r"(?<=\s)`[ \t]*#[^`\n]*`(?=[ \t]*\\?\n)")  # behind an argument
_IN_BRACES, _NAME = re.compile(r"\{[^\s'\"{}]+\}"), re.compile(r"(?<==)\$([A-Za-z_]\w*)(?=,)")
_WHOLE = ("command", "variable_assignment", "declaration_command", "test_command")
_TESTS = ("[", "[[", "((")
MOST_STEPS = 200_000  # statements walked, loops and functions unrolled


def read_script(path: Path, text: str, environment: Mapping[str, str] | None = None) -> Script:
    """Walk the script `text` of the file `path` under `environment`.

    RFabricError where a quote or bracket is opened and not closed, or its variables grow without
    end.
    """
    script = Script(path)
    walk = _Walk(script, dict(environment or {}))
    walk.to_its_end(lambda: walk.text(text))
    return script


class _Walk(ShellStatements):
    """The statements of a script, in order: each gives whether it succeeded, None where that cannot
    be known.
    """

    def __init__(self, script: Script, environment: dict[str, str]) -> None:
        super().__init__(script, environment)
        self.passed: set[int] = set()  # what was walked beside though its condition does not hold
        self.steps_beside = 0
        self.kinds: dict[str, Callable[[tree_sitter.Node], bool | None]] = {
            "variable_assignment": self._assignment,
            "variable_assignments": self._each,
            "declaration_command": self._declared,
            "command": self._command,
            "list": self._and_or,
            "pipeline": self._pipeline,
            "negated_command": self._negated,
            "test_command": self._tested,
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
        text = text.replace("\0", "").replace("\r\n", "\n")
        text = _REMARK.sub("", without_documents(text, self.documents))
        self.told_by_slurm(batch_lines(text))
        text = _BETWEEN_SLASHES.sub(lambda m: m[1] + re.sub(r"(\W)", r"\\\1", m[2]), text)
        text = _COUNT_IN_SLICE.sub(r"\1${#}", text)
        root = parsed(_IN_BRACES.sub(lambda m: _NAME.sub(r"${\1}", m[0]), text))
        if (line := left_open(root)) and not self.depth:
            raise RFabricError(
                f"{self.script.path}: line {line}: a quote or bracket is opened and not closed"
            )
        return self.statement(root)

    def statement(self, node: tree_sitter.Node) -> bool | None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise RFabricError(
                f"{self.script.path}: its loops and functions make more than {MOST_STEPS:,} "
                "commands; give the job's own launch script"
            )
        if node.type == "ERROR" or (node.type in _WHOLE and _stumbled(node)):
            self._note(node, f"not understood in full: {_first_line(node)}")
        walk = self.kinds.get(node.type, self._each if node.type == "ERROR" else None)
        if walk is None:
            return None
        self.status = walk(node)
        asks = node.children and node.children[0].type in _TESTS
        said, self.said = self.said or int(bool(asks)), 0
        self.code = (said or self.code or 1) if self.status is False else 0
        return self.status

    def _each(self, node: tree_sitter.Node) -> bool | None:
        status: bool | None = True
        for child in node.named_children:
            if child.type != "comment":
                status = self.statement(child)
        return status

    def _tested(self, node: tree_sitter.Node) -> bool | None:
        if node.children[0].type == "((":
            return self._worked(*node.children[1:-1])
        return self.tested(node)

    def _worked(self, *nodes: tree_sitter.Node) -> bool | None:
        """An arithmetic command: (( i < 3 )), (( i++ )), (( i = 3, j = 4 ))."""
        value = self._number(*nodes)
        return None if value is None else value != 0

    def _negated(self, node: tree_sitter.Node) -> bool | None:
        status = self.statement(node.named_children[-1])
        return None if status is None else not status

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
            if condition and not self._worked(*condition):
                return True
            if not self._turn(node.child_by_field_name("body")):
                return True
            self._worked(*update)
        self._note(node, f"a loop was left after {MOST_TURNS} turns")
        return True

    def _if(self, node: tree_sitter.Node) -> bool | None:
        for way in (node, *(c for c in node.named_children if c.type == "elif_clause")):
            if self._condition(way):
                return self._bodies(way)
            self.beside(way, lambda way=way: self._bodies(way))  # type: ignore[misc]
        other = next((c for c in node.named_children if c.type == "else_clause"), None)
        return True if other is None else self._each(other)

    def beside(self, node: tree_sitter.Node, walk: Callable[[], bool | None]) -> None:
        """Walk once what an if or a test that does not hold would do, and leave all as it was: a
        job may stand there alone, such as on the first node of a cluster.
        """
        if node.id in self.passed or self.steps_beside > MOST_STEPS:
            return
        self.passed.add(node.id)
        kept, script = dict(vars(self)), self.script
        self.script = Script(script.path, written=dict(script.written))
        self.written, self.functions = self.script.written, dict(self.functions)
        state = self.state.copy()
        with suppress(ScriptEnd, LoopEnd, RFabricError):
            self.output(lambda: self.in_other_shell(walk, state))
        script.beside += self.script.commands + self.script.beside
        beside = self.steps_beside + self.steps - kept["steps"]
        vars(self).update(kept, steps_beside=beside)

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
        for name in unknown_names(subject):
            self.script.defaulted.setdefault(name, "")
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
        """Whether one of the patterns of a case fits."""
        said = text_of(item)
        *_, last = item.children_by_field_name("value")
        patterns = split_ways(said[: last.end_byte - item.start_byte].lstrip("(").strip())
        if subject is None:
            return "*" in patterns
        return any(matches(subject, known_text(self.pattern(p)) or "") for p in patterns)

    def _for(self, node: tree_sitter.Node) -> bool:
        variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        turns = [w for child in node.children_by_field_name("value") for w in self.words(child)]
        if all(child.type != "in" for child in node.children):
            turns = list(self.arguments)
        unknown = next((turn for turn in turns if MARK.fullmatch(turn)), "")
        if unknown:
            self._note(node, f"what {readable(unknown)} holds cannot be known; one turn is taken")
        for turn in turns:
            self.put(text_of(variable), turn)
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
            if status is None:
                self._note(node, f"when {_first_line(node)} ends cannot be known; left out")
            if status is None or status == until:
                return True
            if not self._turn(node.child_by_field_name("body")):
                return True
        self._note(node, f"a loop was left after {MOST_TURNS} turns")
        return True

    def _define(self, node: tree_sitter.Node) -> bool:
        self.functions[text_of(node.child_by_field_name("name"))] = node.child_by_field_name("body")
        return True


def _stumbled(node: tree_sitter.Node) -> bool:
    """Whether the grammar did not read all of a node; ${A:-$((1 + 2))}, over which it stumbles, is
    read all the same.
    """
    if not node.has_error or (node.type == "expansion" and "-$((" in text_of(node)):
        return False
    return node.type == "ERROR" or node.is_missing or any(map(_stumbled, node.children))


def _first_line(node: tree_sitter.Node) -> str:
    return text_of(node).strip().partition("\n")[0][:80]


def _before_then(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    for child in node.children[1:]:
        if child.type in ("then", ";"):
            return
        yield child
