"""Build the compiled core: ``python -m rfabric.simulate.build [--sanitize] [--output FILE]``.

C++17 files (`native.SOURCES`) make one shared library beside them (`core.so`, no Python headers: it
is called through ctypes), so any Python that sees this folder can use it. An installed rfabric
brings the files and is built by the same command. Where the folder cannot be written, `--output
FILE` puts the library elsewhere and RFABRIC_CORE=FILE finds it. CXX and CXXFLAGS are honoured.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..errors import RFabricError
from ..native import LIBRARY, SOURCES, source_digest

SOURCE, *OTHERS = SOURCES

# Products and sums are rounded one by one, as in Python: where a processor can do both at once, GCC
# would have it do so, and the last bit be another.
BASE = (
    "-std=c++17", "-fPIC", "-shared", "-fno-math-errno", "-ffp-contract=off", "-pthread",
    "-Wall", "-Wextra",
)  # fmt: skip
FAST = ("-O3", "-DNDEBUG")
MOST_SAID = 4000  # characters of what a compiler says
CHECKED = (
    "-O1",
    "-g",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-D_GLIBCXX_ASSERTIONS",
    "-D_GLIBCXX_SANITIZE_VECTOR",
)


def build(output: Path = LIBRARY, sanitize: bool = False) -> Path:
    """Compile the core into `output` and return it.

    Raises RFabricError where the folder cannot be written, with the compiler's words if that fails.
    """
    output = Path(output)
    flags = (*BASE, *(CHECKED if sanitize else FAST), *shlex.split(os.environ.get("CXXFLAGS", "")))
    if not os.access(output.parent, os.W_OK):
        raise RFabricError(
            f"cannot write {output}: build as the user who owns that folder, "
            "or with --output FILE, and say RFABRIC_CORE=FILE where rfabric runs"
        )
    compile_to(output, [*flags, f'-DRF_SOURCE="{source_digest()}"', *map(str, (SOURCE, *OTHERS))])
    return output


def compile_to(output: Path, words: Sequence[str], libraries: Sequence[str] = ()) -> None:
    """Put there what the compiler makes of these words, all at once; RFabricError with its own
    words where it fails.
    """
    with tempfile.TemporaryDirectory(prefix=".core-", dir=output.parent) as scratch:
        made = Path(scratch, output.name)
        command = [*compiler(), *words, "-o", str(made), *libraries]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RFabricError(f"{shlex.join(command)} failed:\n{done.stderr.strip()[:MOST_SAID]}")
        os.replace(made, output)


def compiler() -> list[str]:
    """The C++ compiler as argv words: CXX, or the first of c++, g++, clang++. RFabricError where
    there is none.
    """
    if "CXX" in os.environ:
        return shlex.split(os.environ["CXX"])
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            return [name]
    raise RFabricError("no C++ compiler (c++, g++, clang++): install g++, or set CXX")


def main(argv: list[str] | None = None) -> int:
    """Build as the words of the command say; exit code 2 where that fails."""
    parser = argparse.ArgumentParser(prog="python -m rfabric.simulate.build", description=__doc__)
    parser.add_argument(
        "--sanitize", action="store_true", help="address and undefined-behaviour checks, slow"
    )
    parser.add_argument("--output", type=Path, default=LIBRARY)
    options = parser.parse_args(argv)
    try:
        print(build(options.output, options.sanitize))
    except RFabricError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
