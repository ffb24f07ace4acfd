"""The reference pages, made as MkDocs builds, from what the program itself reads: the parsers, the
sections of a recipe, the tables of names and of formats, the OpenAPI document. And marks of blocks
become titles: what needs root, what is shown and not run.
"""

import argparse
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path

from mkdocs.structure.files import File

from rfabric.cli.arguments import parser
from rfabric.cli.arguments.defaults import options
from rfabric.control.openapi import ERRORS, SAME_TO_ALL, document
from rfabric.fabric.formats import TOPOLOGIES
from rfabric.fabric.formats import read_network as read_topology
from rfabric.rl import Workload, environments, weight_sync
from rfabric.rl.recipe import Section, what_may_be
from rfabric.rl.sections import Environments, WeightSync
from rfabric.rl.setup import PIPELINES
from rfabric.rl.workload import SECTIONS
from rfabric.schedulers.weave.traffic import KEYS as OF_JOBS
from rfabric.study.known import known
from rfabric.study.step_log import LOGS
from rfabric.trace.formats import FORMATS, records

MANUALS = {WeightSync: weight_sync, Environments: environments}  # that say more of a section
PICTURES = ("page.png", "pareto.png", "crossover.png", "rfabric.png")  # of topologies/
MARK = re.compile(r"^```(bash|python) (root|fails|not run: [^\n]+)$", re.M)
TITLES = {"root": "as root", "fails": "refused"}
ROOT = Path(__file__).parents[1]


def on_files(files, config):
    """Add the pages that are made, and the pictures that the README shows too."""
    for name, make in PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content=make()))
    for name in PICTURES:
        path = str(ROOT / "topologies" / name)
        files.append(File.generated(config, f"pictures/{name}", abs_src_path=path))
    return files


def on_page_markdown(markdown: str, **_) -> str:
    """A mark behind the language of a block, as its title; pictures where the site has them; files
    of the repository, which it has not, by their names.
    """
    for name in PICTURES:
        markdown = markdown.replace(f"](../topologies/{name})", f"](pictures/{name})")
    markdown = re.sub(r"\[([^\]]+)\]\(\.\./[^)]+\)", r"\1", markdown)
    return MARK.sub(lambda m: f'```{m[1]} title="{TITLES.get(m[2], m[2])}"', markdown)


def verbs() -> str:
    """Every verb with its options and examples."""
    found = parser().verbs()
    index = [(f"[`{name}`](#{name})", verb.description) for name, verb in found.items()]
    head = ("verb", "what it does")
    text = ["# Verbs", "What `rfabric VERB --help` prints. " + MANNERS, rows(head, index)]
    for name, verb in found.items():
        text += [f"## {name}", verb.description, fence(usage(verb))]
        text += [fence(inspect.cleandoc(verb.epilog.partition("examples:\n")[2]), "bash")]
        text += [rows(("option", "what it is"), _arguments(verb))]
    return pages(text)


MANNERS = (
    "Each also takes `--json` (one document on stdout), `-q` (no progress, no notes) and `-v`; "
    "exit codes are 0 (done), 1 (a run broke or could not keep pace), 2 (bad input), 130 (Ctrl-C)."
)


def usage(verb: argparse.ArgumentParser) -> str:
    """Its usage line, of a width that does not hang on the terminal."""
    formatter = verb.formatter_class(verb.prog, width=96)
    formatter.add_usage(verb.usage, verb._actions, verb._mutually_exclusive_groups)
    return formatter.format_help().strip()


def _arguments(verb) -> Iterable[tuple[str, str]]:
    common = ("json", "quiet", "verbose")
    shown = {id(action) for name, action in options(verb).items() if name not in common}
    for action in verb._actions:
        words = [f"{word} {action.metavar or ''}".strip() for word in action.option_strings]
        if not words or id(action) in shown:
            name = ", ".join(words) or action.metavar or action.dest
            text = (action.help or "") % {**vars(action), "prog": verb.prog}
            of = f" One of {', '.join(map(str, action.choices))}." if action.choices else ""
            yield f"`{name}`", cell(text) + (of if len(of) < 400 else "")


def recipe() -> str:
    """Every key of a recipe, with its values and its default."""
    text = ["# Recipe keys", RECIPE, "## At the top"]
    text += [rows(("key", "what it is", "default"), TOP)]
    for name, section in SECTIONS.items():
        text += [f"## {name}", prose(section)]
        keys = [(f"`{f.name}`", _may(f), _default(f)) for f in fields(section)]
        text += [rows(("key", "values", "default"), keys)]
        text += [inspect.getdoc(MANUALS[section])] if section in MANUALS else []
    of_jobs = ((f"`{name}`", *what) for name, what in OF_JOBS.items())
    text += ["## Several jobs", JOBS, rows(("key", "what it is", "default"), of_jobs)]
    return pages(text)


JOBS = (
    "A file that lists recipes describes jobs that share nodes, such as "
    "`traffic/jobs/weave-2jobs.yaml`. It has only these keys. `--set` changes all its recipes."
)
RECIPE = (
    "A recipe is YAML. `--set KEY=VALUE` overrides one of its keys, as in `--set training.tp=2`. "
    "Rates, times and sizes carry their units. A key that is unknown, or does not fit the GPUs, is "
    "an error that names the key, the value, the limit and the nearest setting that works. "
    "`traffic/` holds recipes to copy. `rfabric trace RECIPE --explain` shows what each figure "
    "amounts to."
)
TOP = (
    ("`model`", "a name in `traffic/models`, a file beside the recipe, or a mapping as in "
     "`config.json`", "required"),
    ("`steps`", "RL steps to play, a whole number", f"{Workload.steps}"),
    ("`pipeline`", f"one of {', '.join(PIPELINES)}", f"`{Workload.pipeline}`"),
    ("`staleness`", "steps that generation may be ahead, such as 0.5 or 4", "follows the pipeline"),
    ("`placement`", "`disaggregated` or `colocated`", f"`{Workload.placement}`"),
)  # fmt: skip


def _may(item) -> str:
    return what_may_be(item.metadata["parse"])


def _default(item) -> str:
    if item.default is MISSING:
        return "required"
    return "derived" if item.default is None else f"`{item.default}`"


def prose(section: type[Section]) -> str:
    """A section's own words, a list where they are one: `key: what it is; ...`."""
    text = inspect.getdoc(section) or ""
    return re.sub(r"(?m)^(\w+(?:, \w+)*): ", r"\n- \1: ", re.sub(r"\n\n", "\n", text))


def names() -> str:
    """What there is to name on the command line."""
    text = ["# What there is", "What `rfabric list` prints: the words that options take."]
    for kind, found in known().items():
        if kind != "formats":
            lines = [(f"`{name}`", cell(what)) for name, what in found.items()]
            text += [f"## {kind}", rows(("name", "what it is"), lines)]
    return pages(text)


def formats() -> str:
    """Traces and networks that are read and written, logs that are read."""
    head = ("name", "suffixes", "able to", "what it is", "settings")
    text = ["# Formats", FORMATS_TOLD, "## Traces"]
    text += [rows(head, [_format(f, settings(f.read, 1)) for f in FORMATS.values()])]
    columns = ", ".join(f"`{name}`" for name in (*records.COLUMNS, *records.LOOP_COLUMNS))
    text += ["### Columns of our own", f"{columns}.", inspect.getdoc(records).partition("\n\n")[2]]
    asked = ", ".join(f"`{name}`" for name in settings(read_topology, 1))
    text += ["## Networks", f"Settings of all that are read, as `--topo FILE,KEY=VALUE`: {asked}."]
    text += [rows(head[:-1], [_format(f)[:-1] for f in TOPOLOGIES.values()])]
    text += ["## Logs of a job's steps", "For `rfabric validate-run` and `rfabric report --yours`."]
    logs = ((f"`{name}`", cell(what)) for name, what in LOGS.items())
    return pages([*text, rows(("name", "what it is"), logs)])


FORMATS_TOLD = (
    "A file is recognised by its content, whatever its suffix, also compressed by gzip or zstd. "
    "`--format NAME` names the format where the content does not tell. A line on stderr says what "
    "was understood, left out or assumed. `--set KEY=VALUE` gives a setting of a trace format."
)


def settings(read: Callable | None, skipped: int) -> list[str]:
    """The parameters of a reader behind the first ones."""
    return list(inspect.signature(read).parameters)[skipped:] if read else []


def _format(form, asked: Sequence[str] = ()) -> tuple[str, ...]:
    does = [word for word, able in (("reads", form.read), ("writes", form.write)) if able]
    does += ["folders too"] * form.folders
    suffixes = " ".join(f"`{one}`" for one in form.suffixes)
    said = ", ".join(f"`{one}`" for one in asked)
    return f"`{form.name}`", suffixes, ", ".join(does), cell(form.about), said


def rest() -> str:
    """Every path of the controller."""
    found = document()
    usual = [f"{code} {cell(ERRORS[code])}" for code in SAME_TO_ALL]
    text = ["# REST", REST, f"Every path may answer {', '.join(usual)}."]
    for path, methods in found["paths"].items():
        text += [f"## {path}"]
        for method, asked in methods.items():
            if method != "parameters":
                text += [f"`{method.upper()}` {asked['summary']}", *_body(asked)]
                answers = sorted(asked["responses"].items())
                own = [(c, r) for c, r in answers if int(c) not in SAME_TO_ALL]
                text += ["; ".join(f"{code} {cell(r['description'])}" for code, r in own)]
    for name, schema in found["components"]["schemas"].items():
        text += [f"## {name}", rows(("key", "what it may be"), _properties(schema))]
    return pages(text)


REST = (
    "`rfabric control` answers on `http://127.0.0.1:8080`; `GET /openapi.json` has all of this for "
    "machines, with every limit. On loopback no token is needed, elsewhere `Authorization: Bearer "
    "TOKEN`."
)


def _body(asked: Mapping) -> list[str]:
    schema = asked.get("requestBody", {}).get("content", {}).get("application/json", {})
    if not schema:
        return []
    found = schema["schema"]
    if found.get("type") == "object" and not found.get("properties"):
        return ["Body: none, or an empty object."]
    return [f"Body: {_kind(found)}.", *([rows(("key", "what it may be"), _properties(found))]
            if "properties" in found else [])]  # fmt: skip


def _properties(schema: Mapping) -> Iterable[tuple[str, str]]:
    for name, kind in schema.get("properties", {}).items():
        yield f"`{name}`", _kind(kind)


def _kind(schema: Mapping) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for word, join in (("oneOf", " or "), ("anyOf", " or "), ("allOf", " and ")):
        if word in schema:
            return join.join(map(_kind, schema[word]))
    limits = {
        key: value for key, value in schema.items()
        if key not in ("type", "items", "properties", "description", "additionalProperties")
    }  # fmt: skip
    said = "".join(
        f", {key} `{value:,g}`" if isinstance(value, float) else f", {key} `{value}`"
        for key, value in limits.items() if not callable(value)
    )  # fmt: skip
    of = f" of {_kind(schema['items'])}" if schema.get("items") else ""
    kind = schema.get("type", "anything")
    return cell(f"{' or '.join(kind) if isinstance(kind, list) else kind}{of}{said}")


# --- Markdown -------------------------------------------------------------------------------------


def rows(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table."""
    bar = "|".join("---" for _ in head)
    body = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"| {' | '.join(head)} |\n|{bar}|\n{body}" if body else ""


def fence(text: str, language: str = "text") -> str:
    """A block of code."""
    return f"```{language}\n{text.rstrip()}\n```"


def cell(text: str) -> str:
    """Text as a cell shows it: no bar ends it, no tag begins in it; what is code stays as it is."""
    words = {"|": r"\|", "<": "&lt;", "*": r"\*", "_": r"\_"}
    spans = re.split(r"(`[^`]*`)", text)
    spans[::2] = (re.sub(r"[|<*_]", lambda m: words[m[0]], span) for span in spans[::2])
    return "".join(span.replace("|", r"\|") if span[:1] == "`" else span for span in spans)


def pages(parts: Iterable[str]) -> str:
    """Paragraphs."""
    return "\n\n".join(filter(None, parts)) + "\n"


PAGES = {"verbs": verbs, "recipe": recipe, "names": names, "formats": formats, "rest": rest}
