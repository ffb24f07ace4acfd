"""Run folders that need not be made twice: the same words, code and files give the same folder.

    $XDG_CACHE_HOME/rfabric/folders/5f1c.../    a run folder, under the digest of what it came from

Kept is what nothing but words, rfabric's own code and files of data decides: no emulation, no
controller's answer, no Python of the user's, which may read anything. RFABRIC_CACHE=none, and
`--no-cache`, leave it alone; a cache that cannot be read or written is as none.
"""

import json
import logging
import os
import secrets
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import RFabricError
from ..report import parquet
from ..schedulers.table import asked_network, parse_policies
from .cells import files_of_cell, key_of
from .fingerprint import code_here, sha256
from .grid import Cell, Grid

MOST_BYTES = 16 * 2**20  # of one folder: a larger one is copied and kept for too much
MOST_FOLDERS = 200  # who was not asked for longest goes
WHOLE = ".whole"  # in a kept folder: the digest of all else in it
log = logging.getLogger(__name__)


def cache_home() -> Path:
    """Where cells are kept when nothing is said: $XDG_CACHE_HOME/rfabric, or ~/.cache/rfabric.

    RFabricError for a user who has no home.
    """
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rfabric"
    except RuntimeError:
        raise RFabricError(
            "this user has no home folder to keep results in; set XDG_CACHE_HOME to a folder"
        ) from None


def usual_folders() -> "Folders | None":
    """The folders that are kept on this machine; None where the environment says so, or where no
    place is known.
    """
    if os.environ.get("RFABRIC_CACHE") == "none":
        return None
    with suppress(RFabricError):
        return Folders(cache_home() / "folders")
    return None


@dataclass(frozen=True)
class Folders:
    """Run folders under `home`, by key ('': one that is not to be kept)."""

    home: Path

    def fetch(self, key: str, place: Path) -> bool:
        """Copy what is kept under `key` to `place`, which must not be there; whether it was there,
        whole.
        """
        if not key or not os.path.isdir(self.home / key):
            return False
        beside = place.with_name(f".{place.name}.{os.getpid()}.part")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(self.home / key, beside, dirs_exist_ok=True)
            if not _is_whole(beside):
                shutil.rmtree(self.home / key)
                raise OSError("it was damaged")
            os.rename(beside, place)
            os.utime(self.home / key)  # asked for just now
        except (OSError, shutil.Error) as error:
            shutil.rmtree(beside, ignore_errors=True)
            log.info("the run folder kept as %s is made again: %s", key, error)
            return False
        return True

    def keep(self, key: str, place: Path) -> None:
        """Keep a copy of the run folder `place` under `key`."""
        if not key or _bytes_in(place) > MOST_BYTES:
            return
        beside = self.home / f".{key}.{secrets.token_hex(4)}.part"
        try:
            self.home.mkdir(parents=True, exist_ok=True)
            shutil.copytree(place, beside)
            (beside / WHOLE).write_text(_digest_of(beside))
            os.rename(beside, self.home / key)
            self._let_go()
        except (OSError, shutil.Error) as error:
            shutil.rmtree(beside, ignore_errors=True)
            log.info("%s is not kept for another time: %s", place, error)

    def _let_go(self) -> None:
        """Remove the folders that were not asked for longest, beyond MOST_FOLDERS."""
        oldest_first = sorted(os.scandir(self.home), key=lambda entry: entry.stat().st_mtime)
        for entry in oldest_first[:-MOST_FOLDERS]:
            shutil.rmtree(entry.path, ignore_errors=True)


def _is_whole(folder: Path) -> bool:
    """Whether all is in a copy as it was kept; the file that tells it is taken away."""
    try:
        said = (folder / WHOLE).read_text()
    except FileNotFoundError:
        return False
    (folder / WHOLE).unlink()
    return said == _digest_of(folder)


def _digest_of(folder: Path) -> str:
    """One name for all files in a folder."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return sha256(
        json.dumps([(str(f.relative_to(folder)), sha256(f.read_bytes())) for f in files]).encode()
    )


def _bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def folder_key(grid: Grid, cells: Sequence[Cell], *more: str) -> str:
    """The key of the run folder of these cells, of whose form `more` says the rest; '' where words
    alone do not decide it, or where something about them is wrong, which running them will tell.
    """
    if grid.engine != "simulate":
        return ""
    keys: list[str] = []
    with suppress(RFabricError, OSError):
        code = code_here()
        for cell in cells:
            files = files_of_cell(grid, cell)
            if _runs_more(cell, files):
                return ""
            keys.append(key_of(grid, cell, code, files))
        return sha256(json.dumps([keys, parquet.is_there(), more]).encode())
    return ""


def _runs_more(cell: Cell, files: dict[str, str]) -> bool:
    """Whether code that is not rfabric's has a say."""
    asked = asked_network(parse_policies(cell.policy).scheduler)
    return asked not in ("", "fabric") or any(name.endswith(".py") for name in files)
