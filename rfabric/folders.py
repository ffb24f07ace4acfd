"""What a path is; and the folders that a user copies from: topologies, controller, traffic."""

import os
import site
import sysconfig
from pathlib import Path

from .errors import RFabricError


def as_path(name: str | os.PathLike, what: str) -> Path:
    """The path of this name; RFabricError, which begins with `what`, for what can name no file."""
    text = os.fspath(name) if isinstance(name, os.PathLike) else name
    if not isinstance(text, str):
        raise RFabricError(f"{what} {name!r}: give a path, as text or a Path")
    if "\0" in text:
        raise RFabricError(f"{what} {text!r}: a name holds no zero byte")
    return Path(text)


def data_dir(name: str) -> Path:
    """The folder `topologies`, `controller` or `traffic`.

    Beside the package in a checkout, in share/rfabric when installed, for all or for one user.
    RFabricError where it was not installed.
    """
    prefixes = sysconfig.get_path("data"), site.getuserbase()
    for base in (Path(__file__).parents[1], *(Path(p, "share/rfabric") for p in prefixes)):
        if (base / name).is_dir():
            return base / name
    raise RFabricError(
        f"the folder {name}/ was not installed; run from a checkout or reinstall rfabric"
    )
