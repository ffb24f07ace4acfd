"""The folders that a user copies from: topologies, controller, traffic."""

import site
import sysconfig
from pathlib import Path

from .errors import RFabricError


def data_dir(name: str) -> Path:
    """The folder `topologies`, `controller` or `traffic`.

    Beside the package in a checkout, in share/rfabric when installed, for all or for one user.
    """
    prefixes = sysconfig.get_path("data"), site.getuserbase()
    for base in (Path(__file__).parents[1], *(Path(p, "share/rfabric") for p in prefixes)):
        if (base / name).is_dir():
            return base / name
    raise RFabricError(
        f"the folder {name}/ was not installed; run from a checkout or reinstall rfabric"
    )
