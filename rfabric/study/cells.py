"""Cells of a grid on any machine: words in, bytes out.

    task      JSON: {"code": .., "grid": .., "cells": [[fabric, policy, traffic, seed], ..],
                     "files": {path: sha256}, "sent": {path: base64}}
    answer    JSON: {"worker": .., "cells": [{"row": ..} or {"error": ..}, ..]}, or {"refused": ..}

A worker refuses where its rfabric or its core is another one, and where a file that the words name
is not there as it was when the sweep began. Files by a relative path travel with the words.
"""

import base64
import json
import os
import shlex
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from .. import plugins
from ..errors import RFabricError
from ..folders import data_dir
from ..report.summary import row_of, summary_of
from .fingerprint import DATA, Code, code_here, digest_of, files_of, sha256
from .grid import Cell, Grid, case_of, forget, inputs_of, run_settings
from .run import play

MOST_SENT = 16 * 2**20  # bytes of files that travel with each task


def task_of(grid: Grid, cells: Sequence[Cell], code: Code, files: Mapping[str, str]) -> str:
    """The words of some cells, for `answered`; `files` are those that they name, with digests."""
    return json.dumps({
        "code": asdict(code),
        "grid": grid.to_json(),
        "cells": [astuple(cell) for cell in cells],
        "files": dict(files),
        "sent": {},
    })  # fmt: skip


def with_files(task: str) -> str:
    """The task with the files by relative paths inside, for workers on other machines.

    RFabricError where they are too large to travel with every task.
    """
    said = json.loads(task)
    names = [name for name in said["files"] if _travels(name)]
    size = sum(os.path.getsize(name) for name in names)
    if size > MOST_SENT:
        raise RFabricError(
            f"{', '.join(names)}: {size:,} bytes are too much to travel with every cell "
            f"({MOST_SENT:,} at most); put them on a disk that all workers share and name them by "
            "their absolute path"
        )
    said["sent"] = {n: base64.b64encode(Path(n).read_bytes()).decode() for n in names}
    return json.dumps(said)


def _travels(name: str) -> bool:
    """Whether a file may be laid down below whatever folder a worker works in."""
    return not os.path.isabs(name) and Path(os.path.normpath(name)).parts[0] != ".."


def answered(task: str) -> bytes:
    """Run the cells of a task, in this process, and say what came of each."""
    said, worker = json.loads(task), _worker()
    try:
        with ready(said) as grid:
            cells = [_tried(grid, Cell(*words), worker) for words in said["cells"]]
    except RFabricError as error:
        return refusal(error)
    return json.dumps({"worker": worker, "cells": cells}).encode()


def refusal(error: RFabricError) -> bytes:
    """The answer of a worker that cannot run a task."""
    return json.dumps({"refused": f"worker {_worker()}: {error}"}).encode()


def _worker() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


@contextmanager
def ready(said: dict) -> Iterator[Grid]:
    """The grid of a task, with the files that its words name in place.

    A process has one working folder and one set of what it has read: of a worker's threads one
    works at a time. RFabricError where this process has another rfabric, or lacks a file.
    """
    _check_code(Code(**said["code"]))
    with _alone, _files_there(said["files"], said["sent"]):
        _forget_others(said["files"])
        yield Grid.from_json(said["grid"])


_alone = threading.Lock()
_read_with: dict[str, str] = {}


def _forget_others(files: Mapping[str, str]) -> None:
    """A process may serve one sweep after another, and files change between them."""
    if files != _read_with:
        forget_files()
        _read_with.clear()
        _read_with.update(files)


def _check_code(wanted: Code) -> None:
    if otherwise := wanted.differs(code_here()):
        raise RFabricError(
            f"has another rfabric: {otherwise}; install the same on every worker, and build its "
            "core: python -m rfabric.simulate.build"
        )


@contextmanager
def _files_there(files: Mapping[str, str], sent: Mapping[str, str]) -> Iterator[None]:
    """With what words name in place: here, or in a folder of their own that one works in."""
    lacking = [name for name, digest in files.items() if not _is_there(name, digest)]
    missing = next((name for name in lacking if name not in sent), "")
    if missing:
        raise RFabricError(
            f"{missing} has changed or gone since the sweep began; leave it as it is until the "
            "sweep has ended, and for other machines name it by a path below the folder where "
            "the sweep starts, or put it on a disk that all share"
        )
    if not lacking:
        yield
        return
    before = os.getcwd()
    with TemporaryDirectory(prefix="rfabric-cells-") as folder:
        for name, data in sent.items():
            Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
            Path(folder, name).write_bytes(base64.b64decode(data))
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def _is_there(name: str, digest: str) -> bool:
    try:
        return digest_of(name) == digest
    except OSError:
        return False


def _tried(grid: Grid, cell: Cell, worker: str) -> dict:
    """What a cell came to; a mistake of ours in one is no reason to lose the others."""
    try:
        return {"row": row_of_cell(grid, cell) | {"worker": worker}}
    except RFabricError as error:
        return {"error": str(error)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def row_of_cell(grid: Grid, cell: Cell) -> dict:
    """Run a cell; its figures in plain values, its words, and when and how long it ran."""
    began, wall = time.process_time(), time.perf_counter()
    case, traffic = case_of(grid, cell)
    runs = play([case], traffic, run_settings(grid, cell))
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    entry = summary_of(runs, grid.command, finished)["runs"][0]
    return row_of(entry) | asked_as(grid, cell) | {
        "notes": entry["notes"],
        "finished": finished,
        "cell_s": time.perf_counter() - wall,
        "cell_cpu_s": time.process_time() - began,
    }  # fmt: skip


def words_of(grid: Grid, cell: Cell) -> dict:
    """What a cell was asked as, in the words of the command line."""
    return {
        "asked_fabric": cell.fabric,
        "asked_policy": cell.policy,
        "asked_traffic": cell.traffic,
        "routing": grid.routing,
        "settings": shlex.join(grid.settings),
        "in_flight": grid.in_flight,
        "repetitions": grid.repetitions,
        "transport": grid.transport,
        "matched": f"{grid.match} of {grid.fabrics[0]}" if grid.match else "",
    }


def asked_as(grid: Grid, cell: Cell) -> dict:
    """The words of a cell, and of what stood in the files that they name: two cells that differ
    in none of it are one job, or one network, of two seeds.
    """
    return words_of(grid, cell) | {
        "job_files": _one_digest(job_files(grid, cell)),
        "network_files": _one_digest(network_files(grid, cell)),
    }


def _one_digest(files: Mapping[str, str]) -> str:
    """One short name for the contents of some files; '' for none."""
    return sha256(json.dumps(sorted(files.values())).encode())[:12] if files else ""


def job_files(grid: Grid, cell: Cell) -> dict[str, str]:
    """The files that the job of a cell is read from, with their digests; those that are shipped
    are in that of the code, unless a path from here names them, which may lead nowhere elsewhere.
    """
    return _digests(inputs_of(cell.traffic, grid.settings))


def network_files(grid: Grid, cell: Cell) -> dict[str, str]:
    """The files that fabric, policy and routing of a cell name, as `job_files`."""
    reference = (grid.fabrics[0],) if grid.match else ()
    words = (cell.fabric, cell.policy, grid.routing, *reference)
    return _digests(path for one in words for path in _named(one))


def _digests(paths: Iterable[Path]) -> dict[str, str]:
    return {str(path): digest_of(path) for path in paths if not _is_shipped(path)}


@lru_cache(4096)
def _named(words: str) -> list[Path]:
    return files_of(words)


def forget_files() -> None:
    """Forget which files words name and what was read from them: some may have come, or changed."""
    forget()
    plugins.forget()
    _named.cache_clear()


@lru_cache(4096)
def _is_shipped(path: Path) -> bool:
    return path.is_absolute() and any(
        path.resolve().is_relative_to(data_dir(name).resolve()) for name in DATA
    )


def key_of(grid: Grid, cell: Cell, code: Code, files: Mapping[str, str]) -> str:
    """The name of what a cell must come to: of its words, the code, and the files it names, in hex.

    Two cells of one key come to the same, wherever they run.
    """
    asked = words_of(grid, cell) | {"seed": cell.seed}
    return sha256(json.dumps([code.digest, asked, sorted(files.items())]).encode())


def files_of_cell(grid: Grid, cell: Cell) -> dict[str, str]:
    """The files that a cell's words name, with their digests; ours are in that of the code."""
    return job_files(grid, cell) | network_files(grid, cell)
