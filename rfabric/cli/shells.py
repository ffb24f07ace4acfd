"""The verbs for who types: `completion`, `man`; both are made from the parsers.

RFabricError where a package is missing.
"""

import argparse
from pathlib import Path

from .. import __version__
from ..errors import RFabricError
from ..report.folder import write_text
from ..study.known import known
from .arguments import Parser, parser
from .arguments.parsing import ENGINES
from .terminal import print_json

# what a word may be, by what the help calls it
NAMES = {
    "FABRIC": ("fabrics",), "RECIPE": ("recipes",), "POLICY": ("policies", "schedulers"),
    "SCHEDULER": ("schedulers",), "CONFIG|NAME": ("models",),
}  # fmt: skip
WORDS = {"ENGINE[,ENGINE]": ENGINES}
FOLDERS, FILES = ("DIR", "FOLDER"), ("FILE", "LOG", "TRACE", "APP")
# where no name fits, bash offers files: of --topo, of --traffic
FILES_TOO = "complete -o bashdefault -o default -F _shtab_rfabric rfabric"


def completion(args: argparse.Namespace) -> None:
    """rfabric completion: a script that the shell reads."""
    try:
        import shtab
    except ImportError as error:
        raise RFabricError("completion needs shtab; pip install shtab") from error
    top = parser()
    for verb in top.verbs().values():
        _say_words(verb, shtab)
    script = shtab.complete(top, args.shell) + f"\n{FILES_TOO}\n" * (args.shell == "bash")
    print_json({"shell": args.shell, "script": script}) if args.json else print(script, end="")


def _say_words(verb: Parser, shtab) -> None:
    """Tell shtab what each argument may be: names that there are, files, folders."""
    for action in verb._actions:
        kind = action.metavar
        if kind in NAMES:
            action.choices = [name for names in known(NAMES[kind]).values() for name in names]
        elif kind in WORDS:
            action.choices = list(WORDS[kind])
        elif kind in FILES:
            vars(action)["complete"] = shtab.FILE
        elif kind in FOLDERS:
            vars(action)["complete"] = shtab.DIRECTORY


def man(args: argparse.Namespace) -> None:
    """rfabric man: roff, to stdout or a file."""
    try:
        from argparse_manpage.manpage import Manpage
    except ImportError as error:
        raise RFabricError("man needs argparse-manpage; pip install argparse-manpage") from error
    top = parser()
    page = Manpage(top, {"project_name": "rfabric", "version": __version__})
    page.description, page.manual = top.description.rstrip("."), "rfabric"
    if args.output:
        write_text(Path(args.output), str(page))
    if args.json:
        print_json({"page": args.output or str(page)})
    else:
        print(args.output or page, end="\n" if args.output else "")
