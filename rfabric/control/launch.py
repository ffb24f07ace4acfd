"""Start the controller: in this process (`rfabric control`), or as the command line of a child (the emulator)."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from ..errors import RFabricError
from ..fabric import parse_fabric
from ..folders import data_dir
from . import seam


def run(
    topo: str = "", host: str = "", port: int = 0, sdn: str = "", ofp_port: int = seam.OFP_TCP_PORT, app: str = ""
) -> NoReturn:
    """Run the controller of fabric `topo` ('': read from the switches) with REST at `host`:`port`, until told to stop.

    `sdn` is ryu or os-ken ('': Ryu where it is installed); `app` a file of the user's own instead of
    controller/ocs.py or ecmp.py. What is not given is taken from RFABRIC_TOPO, RFABRIC_REST_HOST, RFABRIC_REST_PORT
    and RFABRIC_SDN. Where another Python has the framework, this process becomes that Python.
    """
    given = {"RFABRIC_TOPO": topo, "RFABRIC_REST_HOST": host, "RFABRIC_REST_PORT": str(port or ""), "RFABRIC_SDN": sdn}
    os.environ.update({name: value for name, value in given.items() if value})
    chosen = app or app_file(os.environ.get("RFABRIC_TOPO", ""))
    python = seam.interpreter()
    if _environment(python) != _environment(sys.executable):
        sys.stdout.flush()
        os.execv(python, [python, "-m", "rfabric.control", chosen, "--ofp-port", str(ofp_port)])
    seam.run_apps([chosen], port=ofp_port)


def command(
    topo: str = "", host: str = "", port: int = 0, sdn: str = "", ofp_port: int = seam.OFP_TCP_PORT, app: str = ""
) -> list[str]:
    """The argument list that runs the controller as a process of its own; the same words as `run`."""
    options = {"--topo": topo, "--host": host, "--port": port, "--sdn": sdn, "--ofp-port": ofp_port}
    words = [word for key, value in options.items() if value for word in (key, str(value))]
    return [sys.executable, "-m", "rfabric.control", *([app] if app else []), *words]


def app_file(topo: str) -> str:
    """controller/ocs.py where the fabric has optical switches or is not named, else controller/ecmp.py."""
    optical = not topo or bool(parse_fabric(topo).ocses)
    return str(data_dir("controller") / ("ocs.py" if optical else "ecmp.py"))


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """`python -m rfabric.control`: what `command` calls."""
    parser = argparse.ArgumentParser(prog="python -m rfabric.control", description=__doc__)
    parser.add_argument(
        "app", nargs="?", default="", help="app file; default: controller/ocs.py or ecmp.py, as the fabric needs"
    )
    parser.add_argument(
        "--topo", default="", help="fabric, e.g. rfabric,pods=2 or FILE.json; default: read from the switches"
    )
    parser.add_argument("--host", default="", help="REST address, default 127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="REST port, default 8080")
    parser.add_argument("--sdn", default="", choices=["", "ryu", "os-ken"], help="default: Ryu where it is installed")
    parser.add_argument("--ofp-port", type=int, default=seam.OFP_TCP_PORT, help="OpenFlow port, on loopback")
    try:
        run(**vars(parser.parse_args(arguments)))
    except RFabricError as error:
        print(f"rfabric: {error}", file=sys.stderr)
        sys.exit(2)


def _environment(python: str) -> str:
    """The environment a Python belongs to: the links in venvs all lead to the same program, their folders differ."""
    return os.path.dirname(os.path.abspath(python))
