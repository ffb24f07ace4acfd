"""Assignments, declarations, commands and what they read and write, as a script's tree has them."""

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import tree_sitter

from .arithmetic import whole_number
from .shell_commands import ShellCommands
from .shell_heredocs import document_at
from .shell_others import beyond_ssh, is_shell, shell_options
from .shell_text import Values, readable, text_of
from .shell_variables import GappedArray, array_of, numbered

_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_REDIRECTS = ("file_redirect", "herestring_redirect")
_ASKING = ("test", "command", "which", "type", "hash", "grep", "egrep", "pgrep")


class ShellStatements(ShellCommands):
    """The statements of a script that hold no others, and the pipes and files around them."""

    @abstractmethod
    def _each(self, node: tree_sitter.Node) -> bool | None: ...

    @abstractmethod
    def beside(self, node: tree_sitter.Node, walk: Callable[[], bool | None]) -> None:
        """Walk once what a condition that does not hold would do, and leave all as it was."""

    # --- assignments ------------------------------------------------------------------------------

    def _declared(self, node: tree_sitter.Node) -> bool:
        """`declare`, `local`, `typeset`, `readonly` and `export`: names, with values or without."""
        kind, parts = node.children[0].type, node.children[1:]
        flags = "".join(text_of(part) for part in parts if _is_option(part))
        kept = kind in ("local", "declare", "typeset") and "g" not in flags
        # all values are worked out before the first is set, or is this function's own: local n=$n
        values = [self._made(part.child_by_field_name("value")) for part in parts]
        for part, made in zip(parts, values, strict=True):
            if part.type == "variable_name":
                self._declare(text_of(part), kind, flags, kept)
            elif part.type == "variable_assignment":
                self._declared_with_value(part, made, kind, flags, kept)
            elif part.is_named and not _is_option(part):
                self._declared_by_text(part, kind, flags, kept)
        return True

    def _declare(self, name: str, kind: str, flags: str, kept: bool) -> None:
        if kept:
            self.state.make_own(name)
        if "A" in flags:
            self.tables.setdefault(name, {})
        if "i" in flags:
            self.state.whole.add(name)
        if (kind == "export" and "n" not in flags) or "x" in flags:
            self.state.exported.add(name)
        elif kind == "export":
            self.state.exported.discard(name)

    def _declared_with_value(
        self, node: tree_sitter.Node, made: Values, kind: str, flags: str, kept: bool
    ) -> None:
        target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        name = text_of(target)
        if kind != "export" and "n" in flags and "A" not in flags:  # another name
            self.state.others[name] = self.one(value)
            return
        more = any(child.type == "+=" for child in node.children)
        before = self.values.get(name)
        self._declare(name, kind, flags, kept)
        if name in self.tables and value is not None and value.type == "array":
            self.tables[name] |= self._table(value)
        else:
            self.put(name, self._more(name, before, made) if more else made)

    def _declared_by_text(self, node: tree_sitter.Node, kind: str, flags: str, kept: bool) -> None:
        """declare "NAME=value", export $NAME."""
        for word in self.words(node):
            said = _ASSIGNED.fullmatch(word)
            self._declare(said[1] if said else word, kind, flags, kept)
            if said:
                self.put(said[1], said[3])
            elif not re.fullmatch(r"[A-Za-z_]\w*", word):
                self._note(node, f"{kind} {word}: what it sets is not known")

    def _assignment(self, node: tree_sitter.Node) -> bool | None:
        """NAME=value; it succeeds as the $(...) in the value does."""
        self.substituted = True
        self._assign(node)
        return self.substituted

    def _assign(self, node: tree_sitter.Node) -> None:
        target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if target is None:
            return
        more = any(child.type == "+=" for child in node.children)
        if target.type == "subscript":
            name, key = self._key(target)
            before = self._element(name, key) if more else None
            self._put_element(name, key, (before or "") + self.one(value), node)
            return
        name = self.state.meant(text_of(target))
        if name in self.tables and value is not None and value.type == "array":
            self.tables[name] = (self.tables[name] if more else {}) | self._table(value)
            return
        if name not in self.values and _adds_to(name, text_of(value)):
            self.script.defaulted.setdefault(name, "")
            self.values[name] = ""
        made = self._made(value)
        self.put(name, self._more(name, self.values.get(name), made) if more else made)
        if self.exports_all:
            self.state.exported.add(name)

    def _made(self, value: tree_sitter.Node | None) -> Values:
        if value is None or value.type != "array":
            return self.one(value)
        children = [child for child in value.named_children if child.type != "comment"]
        placed = children and all(re.match(r"\[[^]]+\]=", text_of(child)) for child in children)
        return self._placed(value) if placed else self._array(value)

    def _placed(self, node: tree_sitter.Node) -> Values:
        """The elements of ([0]=a [1]=b)."""
        table = self._table(node)
        numbers = {key: whole_number(key, self._counts) for key in table}
        if None in numbers.values():
            return self._array(node)
        return array_of({n: table[key] for key, n in numbers.items() if n is not None})

    def _more(self, name: str, held: Values | None, new: Values) -> Values:
        """What `+=` makes: a longer text or array, or a sum."""
        if name in self.state.whole and isinstance(held, str) and isinstance(new, str):
            return f"({held}) + ({new})"
        if isinstance(held, list):
            elements = numbered(held)
            if isinstance(new, str):
                return array_of(elements | {0: elements.get(0, "") + new})
            if isinstance(new, GappedArray):
                return array_of(elements | numbered(new))
            end = max(elements, default=-1) + 1
            return array_of(elements | dict(enumerate(new, end)))
        if isinstance(new, list):
            return ([held] if held else []) + new
        return (held or "") + new

    def _table(self, node: tree_sitter.Node) -> dict[str, str]:
        """The entries of ([key]=value ...)."""
        entries = [self.one(child) for child in node.named_children if child.type != "comment"]
        pairs = (re.fullmatch(r"\[(.*?)\]=(.*)", entry, re.DOTALL) for entry in entries)
        return {pair[1]: pair[2] for pair in pairs if pair}

    def _unset(self, node: tree_sitter.Node) -> bool:
        words, end = list[str](), -1
        for child in node.named_children:
            made = self.words(child)
            if child.start_byte == end and words and made:  # A[1], a name and a word to the grammar
                made = [words.pop() + made[0], *made[1:]]
            words, end = words + made, child.end_byte
        return self.unset(words, node.start_point[0] + 1)

    # --- commands ---------------------------------------------------------------------------------

    def _words_of(self, node: tree_sitter.Node) -> list[str]:
        """The words of a command, its name first."""
        name = node.child_by_field_name("name")
        parts = [name.named_children[0] if name and name.named_children else name]
        parts += node.children_by_field_name("argument")
        return [word for part in parts if part is not None for word in self.words(part)]

    def _command(self, node: tree_sitter.Node) -> bool | None:
        if node.child_by_field_name("name") is None:
            return self._each(node)
        words, told = self._words_of(node), self._told(node)
        if not words:
            return True
        here = next((c for c in node.children if c.type == "herestring_redirect"), None)
        text = self.one(here.named_children[0]) + "\n" if here is not None else None
        with self._for_this_command(told), self._reading(text):
            if handed := self._handed(words, told):
                self.told_by_slurm(" ".join(words))
                state = self.state.copy()
                state.exported.discard("COMMAND")
                return self.in_other_shell(lambda: self.text(handed), state)
            if self.input is not None and _is_shell(words):
                given = self.input
                return self._as_program(lambda: self.text(given), [])
            if words[0] == "env" and (at := _first_program(words)):
                said = dict(word.split("=", 1) for word in words[1:at])
                with self._for_this_command(said):
                    return self.call(words[at:], node)
            return self.call(words, node)

    def _handed(self, words: list[str], told: dict[str, str]) -> str:
        """What a job script is given to run: COMMAND="..." sbatch ray.sub, or exported before."""
        if words[0] not in ("sbatch", "srun"):
            return ""
        batch = self.state.seen_by_programs().values if words[0] == "sbatch" else told
        return str(batch.get("COMMAND", ""))

    def _told(self, node: tree_sitter.Node) -> dict[str, str]:
        """The variables set for one command alone: A=1 B=2 command."""
        pairs = (
            (child.child_by_field_name("name"), child.child_by_field_name("value"))
            for child in node.named_children
            if child.type == "variable_assignment"
        )
        return {text_of(name): self.one(value) for name, value in pairs}

    @contextmanager
    def _for_this_command(self, told: dict[str, str]) -> Iterator[None]:
        """Variables that one command sees, and those after it do not."""
        before = {name: self.values.get(name) for name in told}
        new = set(told) - self.state.exported
        self.state.values |= told
        self.state.exported |= new
        try:
            yield
        finally:
            self.state.exported -= new
            for name, value in before.items():
                if value is None:
                    self.values.pop(name, None)
                else:
                    self.values[name] = value

    # --- pipes and files --------------------------------------------------------------------------

    @contextmanager
    def _reading(self, text: str | None) -> Iterator[None]:
        """What commands read while this lasts; None: what they read already."""
        outer = self.input
        self.input = outer if text is None else text
        try:
            yield
        finally:
            self.input = outer if text is not None else self.input

    def _pipeline(self, node: tree_sitter.Node) -> bool | None:
        """Each part is reached, and reads what the one before it prints."""
        *parts, last = node.named_children
        text: str | None = None
        for part in parts:
            with self._reading(text):
                text = self.output(lambda part=part: self.apart_of(part))  # type: ignore[misc]
        with self._reading(text):
            return self.apart_of(last)

    def apart_of(self, node: tree_sitter.Node) -> bool | None:
        """One command of a pipe: what it sets is gone when it ends."""
        return self.in_other_shell(lambda: self.statement(node), self.state.copy())

    def _redirected(self, node: tree_sitter.Node) -> bool | None:
        body = node.child_by_field_name("body")
        redirects = [child for child in node.named_children if child.type in _REDIRECTS]
        redirects = [each for each in redirects if each.named_children]  # not 3>&-
        given = [text for each in redirects if (text := self._given(each)) is not None]
        files = [file for each in redirects if (file := self._written_to(each)) is not None]
        if body is None:
            return True
        with self._reading(given[-1] if given else None):
            if not files:
                return self.statement(body)
            status: list[bool | None] = []
            made = self.output(lambda: status.append(self.statement(body)))
        for name, more in files:
            self.keep([name], made, more)
        return status[0]

    def _given(self, redirect: tree_sitter.Node) -> str | None:
        """What a redirect gives to read: <<EOF, <<<, < <(commands), < FILE."""
        source = redirect.named_children[-1]
        if redirect.type == "herestring_redirect":
            return self.one(source) + "\n"
        if redirect.children[-2].type != "<":
            return None
        if (document := document_at(text_of(source), self.documents)) is not None:
            return self.here_text(document)
        if source.type == "process_substitution":
            return self.output(lambda: self.apart(source))
        return self.file_text(self.one(source))

    def _written_to(self, redirect: tree_sitter.Node) -> tuple[str, bool] | None:
        """The file that a redirect sends what is printed to, and whether behind what it holds."""
        sign = re.match(r"(?:1?|&)(>>?\|?)(?!\()(&2)?", text_of(redirect))
        if sign is None or redirect.type != "file_redirect":
            return None
        file = "/dev/stderr" if sign[2] else self.one(redirect.named_children[-1])
        return file, sign[1] == ">>"

    # --- what cannot be known ---------------------------------------------------------------------

    def _and_or(self, node: tree_sitter.Node) -> bool | None:
        left, right = node.named_children[0], node.named_children[-1]
        operator = next((c.type for c in node.children if c.type in ("&&", "||")), ";")
        before = len(self.printed or ())
        status = self.statement(left)
        if status is None and operator != ";":
            if self.asked:  # `$(probe && echo a || echo b)`
                del (self.printed or [])[before:]
            status = self._taken_as(left)
        if operator == ";" or status == (operator == "&&"):
            return self.statement(right)
        if _asks(left) and not self.asked:
            self.beside(right, lambda: self.statement(right))
        return status

    def _taken_as(self, node: tree_sitter.Node) -> bool:
        """A job's programs run and succeed; one that only asks is taken to find nothing."""
        asks = _asks(node)
        if asks:
            self._note(node, f"whether {readable(text_of(node)[:80])} holds cannot be known; "
                       "taken as no")  # fmt: skip
        return not asks and not self.asked


def _asks(node: tree_sitter.Node) -> bool:
    """Whether a command is a question."""
    while node.type in ("negated_command", "list", "redirected_statement", "pipeline"):
        children = node.named_children
        node = children[0] if node.type == "redirected_statement" else children[-1]
    if node.type == "command":
        return text_of(node.child_by_field_name("name")) in _ASKING
    return node.type == "test_command" or (
        node.type == "compound_statement" and node.children[0].type == "(("
    )


def _adds_to(name: str, said: str) -> bool:
    """Whether a value begins with, or holds, what the variable held before: A="$A --more"."""
    held = rf"\$(?:{name}\b|\{{{name}\}})"
    return bool(re.search(held, said)) and not re.fullmatch(f'"?{held}"?', said)


def _first_program(words: list[str]) -> int:
    """Where the command of `env A=1 B=2 command` begins; 0 where it has options, or none."""
    at = next((i for i, word in enumerate(words) if i and "=" not in word), 0)
    return 0 if words[at].startswith("-") else at


def _is_option(node: tree_sitter.Node) -> bool:
    return node.type in ("word", "number") and text_of(node)[:1] in ("-", "+")


def _is_shell(words: list[str]) -> bool:
    """Whether a command walks what it reads."""
    if words[0] == "ssh":
        return words[1:] != [] and not beyond_ssh(words)
    at = next((i for i, word in enumerate(words) if is_shell(word)), None)
    return words[0] == "sbatch" or (at is not None and shell_options(words[at + 1 :]) == _NONE)


_NONE = (False, [])  # neither -c nor a script
