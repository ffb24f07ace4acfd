"""The folders that a user copies from: topologies, controller, traffic."""

import sysconfig
from pathlib import Path

from .errors import RFabricError


def data_dir(name: str) -> Path:
    """The folder `topologies`, `controller` or `traffic`: beside the package in a checkout, in share/rfabric when installed."""
    for base in (Path(__file__).parents[1], Path(sysconfig.get_path("data")) / "share" / "rfabric"):
        if (base / name).is_dir():
            return base / name
    raise RFabricError(f"the folder {name}/ was not installed; run from a checkout or reinstall rfabric")
