"""docs/: every block of every lesson is run, and what stands below it is what it printed.

```bash                      run by bash, in one new folder for all blocks of a page
```bash fails                as that, and must be refused with exit code 2
```bash root                 run by the tests with root alone
```bash not run: REASON      shown
```python                    run as a script
```KIND title="NAME"         a file of this name, for the blocks that follow
```text                      what the block above printed: these lines in this order; `...` for
                             others between them, or for a part of a line
"""

import inspect
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
from commands import commands

from rfabric.cli.arguments import parser
from rfabric.control.openapi import document
from rfabric.fabric.formats import TOPOLOGIES
from rfabric.rl.sections import SYNC_STRATEGIES
from rfabric.rl.workload import SCALARS, SECTIONS
from rfabric.schedulers.weave import traffic as weave_traffic
from rfabric.study.known import known
from rfabric.study.step_log import LOGS
from rfabric.trace.formats import FORMATS
from rfabric.trace.formats.records import COLUMNS, LOOP_COLUMNS

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
FENCE = re.compile(r"^```(\S*) ?([^\n]*)\n(.*?)^```$", re.M | re.S)
KNOWN = re.compile(r'(root|fails|not run: \w.*|title="[\w.]+")?')
SECONDS = 300  # for one block, on a busy machine


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; `line` is where it begins."""

    page: str
    line: int
    language: str
    mark: str
    text: str

    @property
    def where(self):
        return f"{self.page}:{self.line}"

    @property
    def file(self):
        return self.mark.removeprefix('title="').removesuffix('"') if "title=" in self.mark else ""

    @property
    def runs(self):
        return self.language in ("bash", "python") and not self.file and "not run" not in self.mark


def blocks_of(page):
    text = page.read_text(encoding="utf-8")
    return [
        Block(page.name, text[: m.start()].count("\n") + 1, *m.groups())
        for m in FENCE.finditer(text)
    ]


def environment(folder):
    """Where `rfabric` is the one that is tested, and nothing of the user counts."""
    bin_ = folder / "bin"
    bin_.mkdir()
    for name, words in (("rfabric", "-m rfabric"), ("python", "")):
        (bin_ / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n')
        (bin_ / name).chmod(0o755)
    (folder / "here").mkdir()
    return os.environ | {
        "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder), "COLUMNS": "200",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "RFABRIC_DEFAULTS": "",
    }  # fmt: skip


def play(page, folder, root):
    """Run a page from top to bottom; `root`: also what needs it."""
    env, here, printed = environment(folder), folder / "here", None
    for block in blocks_of(page):
        if block.file:
            (here / block.file).write_text(block.text)
        elif block.runs:
            printed = run(block, env, here) if root or block.mark != "root" else None
        elif block.language == "text" and printed is not None:
            compare(block, printed)


def run(block, env, here):
    start = {"bash": ["bash", "-euo", "pipefail"], "python": [sys.executable]}[block.language]
    done = subprocess.run(
        [*start, "-c", block.text], cwd=here, env=env, text=True, timeout=SECONDS,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    wanted = 2 if block.mark == "fails" else 0
    assert done.returncode == wanted, f"{block.where}: {done.returncode}\n{done.stdout}"
    return done.stdout


def compare(block, printed):
    """Blanks between words count as one."""
    there = [" ".join(line.split()) for line in printed.splitlines()]
    for line in filter(None, (" ".join(line.split()) for line in block.text.splitlines())):
        if line != "...":
            shape = re.compile(".*".join(map(re.escape, line.split("..."))))
            at = next((i for i, said in enumerate(there) if shape.fullmatch(said)), None)
            assert at is not None, f"{block.where}: {line!r} is not, or not here, in\n{printed}"
            there = there[at + 1 :]


def test_pages_hold_lessons():
    assert len([page for page in PAGES if any(b.runs for b in blocks_of(page))]) >= 7


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_every_block_is_run_or_says_why_not(page):
    before = None
    for block in blocks_of(page):
        assert KNOWN.fullmatch(block.mark), f"{block.where}: mark {block.mark!r}"
        assert block.runs or block.file or before or "not run" in block.mark, block.where
        assert block.language != "text" or block.file or before, f"{block.where}: printed by what?"
        before = None if block.file or block.language == "text" or not block.runs else block


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda p: p.stem)
def test_links_and_pictures_are_there_without_the_site(page):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    made = {f"reference/{name}.md" for name in ("verbs", "recipe", "names", "formats", "rest")}
    assert not [link for link in links if link not in made and not (page.parent / link).exists()]


def sections_of(page):
    """What `#...` may name in a page: its headings, spelled as GitHub and MkDocs do."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for heading in re.findall(r"^#+ (.+)$", text, re.M):
        yield re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda p: p.stem)
def test_links_lead_to_sections_that_are_there(page):
    links = re.findall(r"\]\(([^)#:]*\.md|)#([^)]+)\)", page.read_text(encoding="utf-8"))
    pages = {name: page.parent / name if name else page for name, _ in links}
    there = {name: set(sections_of(to)) for name, to in pages.items() if to.exists()}
    assert not [link for link in links if link[0] in there and link[1] not in there[link[0]]]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_links_that_the_site_cuts_say_by_themselves_where_it_stands(page):
    links = re.findall(r"\[([^\]]+)\]\(\.\./README", page.read_text(encoding="utf-8"))
    assert not [words for words in links if "README" not in words]


def test_the_page_of_fabrics_names_every_ocs_of_the_table():
    rows = (ROOT / "rfabric" / "fabric" / "ocs.csv").read_text(encoding="utf-8").splitlines()
    _, *sold = [row.split(",")[0] for row in rows if row and not row.startswith(("#", '"#'))]
    text = " ".join((ROOT / "docs" / "fabrics.md").read_text(encoding="utf-8").split())
    assert len(sold) > 5 and f"fabric/ocs.csv): {', '.join(sold)}." in text


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda p: p.stem)
def test_every_command_parses(page):
    for block in blocks_of(page):
        for words in commands(block.text) if block.language == "bash" else ():
            if block.mark != "fails" and not {"--help", "--version"} & set(words):
                parser().parse_args(words)


def test_a_block_of_commands_in_the_readme_says_that_it_is_one():
    for block in blocks_of(ROOT / "README.md"):
        shell = re.search("^rfabric ", block.text, re.M)
        assert not shell or block.language == "bash", block.where


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_a_lesson_does_and_prints_what_it_says(page, run_dir):
    if not any(block.runs for block in blocks_of(page)):
        pytest.skip("nothing in it is run")
    play(page, run_dir, root=False)


@pytest.mark.root
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_a_lesson_does_as_root_what_it_says(page, run_dir):
    if not any(block.mark == "root" for block in blocks_of(page)):
        pytest.skip("nothing in it needs root")
    play(page, run_dir, root=True)


# --- the site -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs", reason="no mkdocs: pip install rfabric[docs]")
    if not find_spec("material"):
        pytest.skip("no mkdocs-material: pip install rfabric[docs]")
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(folder)]
    env = os.environ | {
        "NO_MKDOCS_2_WARNING": "1"  # a notice of Material's, not of our pages
    }
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, env=env)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return folder


def text_of(page):
    return re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8"))


def test_the_site_is_built_without_a_warning_and_fetches_nothing(site):
    for page in site.rglob("*.html"):
        fetched = re.findall(r'(?:src|href)="(https?:[^"]+)"', page.read_text(encoding="utf-8"))
        outside = [u for u in fetched if "<link" in u or u.endswith((".js", ".css"))]
        assert not outside, page


def test_the_reference_has_every_verb_key_path_and_format(site):
    pages = {page.stem: text_of(page) for page in (site / "reference").glob("*.html")}
    for name, verb in parser().verbs().items():
        assert f"rfabric {name}" in pages["verbs"]
        for action in verb._actions:
            assert all(word in pages["verbs"] for word in action.option_strings[:1])
    keys = [key for section in SECTIONS.values() for key in section.__dataclass_fields__]
    keys += ["model", *SCALARS, *SECTIONS, *SYNC_STRATEGIES, *weave_traffic.KEYS]
    assert not set(keys) - set(pages["recipe"].split())
    assert all(path in pages["rest"] for path in document()["paths"])
    read = {**FORMATS, **TOPOLOGIES, **LOGS}
    assert all(name in pages["formats"] for name in (*read, *COLUMNS, *LOOP_COLUMNS))
    words = {name for kind, names in known().items() if kind != "formats" for name in names}
    assert all(word in pages["names"] for word in words)
    assert not any("\\" in page for page in pages.values())  # nothing escaped is left of Markdown


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_says_what_each_of_its_keys_is(name):
    said = set(re.findall(r"\w+", inspect.getdoc(SECTIONS[name])))
    assert not SECTIONS[name].__dataclass_fields__.keys() - said
