"""Start the controller: in this process (`rfabric control`), or as the command line of a child (the
emulator).
"""

import argparse
import importlib.util
import logging
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from ..errors import RFabricError
from ..fabric import parse_fabric
from ..folders import data_dir
from . import seam
from .alone import claim_port

OFP_TCP_PORT = 6653  # IANA's number for OpenFlow

# A switch is asked every second whether it is there, and given up after this many questions: a
# killed one is seen at once by its closed connection, this is for a hung one. os-ken's native hub
# notices a closed connection only by the next write, which is this one.
ECHO_INTERVAL_S = 1.0
ECHO_UNANSWERED = 15

_log = logging.getLogger(__name__)


def run(
    topo: str = "",
    host: str = "",
    port: int = 0,
    sdn: str = "",
    ofp_port: int = OFP_TCP_PORT,
    app: str = "",
) -> NoReturn:
    """Run the controller of fabric `topo` ('': read from the switches) with REST at `host`:`port`,
    until told to stop.

    `sdn` is ryu or os-ken ('': Ryu where it is installed); `app` a file of the user's own instead
    of controller/ocs.py or ecmp.py. What is not given is taken from RFABRIC_TOPO,
    RFABRIC_REST_HOST, RFABRIC_REST_PORT and RFABRIC_SDN. Where another Python has the framework,
    this process becomes that Python.
    """
    given = {
        "RFABRIC_TOPO": topo,
        "RFABRIC_REST_HOST": host,
        "RFABRIC_REST_PORT": str(port or ""),
        "RFABRIC_SDN": sdn,
    }
    os.environ.update({name: value for name, value in given.items() if value})
    chosen = app or app_file(os.environ.get("RFABRIC_TOPO", ""))
    python = seam.interpreter()
    if _environment(python) != _environment(sys.executable):
        sys.stdout.flush()
        os.execv(python, [python, "-m", "rfabric.control", chosen, "--ofp-port", str(ofp_port)])
    run_apps([chosen], port=ofp_port)


def command(
    topo: str = "",
    host: str = "",
    port: int = 0,
    sdn: str = "",
    ofp_port: int = OFP_TCP_PORT,
    app: str = "",
) -> list[str]:
    """The argument list that runs the controller as a process of its own; the same words as
    `run`.
    """
    options = {"--topo": topo, "--host": host, "--port": port, "--sdn": sdn, "--ofp-port": ofp_port}
    words = [word for key, value in options.items() if value for word in (key, str(value))]
    return [sys.executable, "-m", "rfabric.control", *([app] if app else []), *words]


def app_file(topo: str) -> str:
    """controller/ocs.py where the fabric has optical switches or is not named, else
    controller/ecmp.py.
    """
    optical = not topo or bool(parse_fabric(topo).ocses)
    return str(data_dir("controller") / ("ocs.py" if optical else "ecmp.py"))


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """`python -m rfabric.control`: what `command` calls."""
    parser = argparse.ArgumentParser(prog="python -m rfabric.control", description=__doc__)
    parser.add_argument(
        "app",
        nargs="?",
        default="",
        help=("app file; default: controller/ocs.py or ecmp.py, as the fabric needs"),
    )
    parser.add_argument(
        "--topo",
        default="",
        help=("fabric, e.g. rfabric,pods=2 or FILE.json; default: read from the switches"),
    )
    parser.add_argument("--host", default="", help="REST address, default 127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="REST port, default 8080")
    parser.add_argument(
        "--sdn",
        default="",
        choices=["", "ryu", "os-ken"],
        help="default: Ryu where it is installed",
    )
    parser.add_argument(
        "--ofp-port", type=int, default=OFP_TCP_PORT, help="OpenFlow port, on loopback"
    )
    try:
        run(**vars(parser.parse_args(arguments)))
    except RFabricError as error:
        print(f"rfabric: {error}", file=sys.stderr)
        sys.exit(2)


def run_apps(
    apps: Sequence[str | Path], host: str = "127.0.0.1", port: int = OFP_TCP_PORT
) -> NoReturn:
    """Run app files, or modules by name, until told to stop (SIGTERM, SIGINT: exit code 0).

    What `ryu-manager` does, for both frameworks, and listening on loopback alone. Once the apps are
    loading it ends the process in every case: threads of os-ken's native hub cannot be ended
    otherwise. RFabricError for an app that cannot be loaded, or a port that is taken.
    """
    names = [_checked(str(app)) for app in apps]
    _check_free(host, port)
    seam.prepare(seam.flavour()).patch()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _exit(0))
    try:
        _run(names, [f"--ofp-listen-host={host}", f"--ofp-tcp-listen-port={port}"])
    except RFabricError as error:
        print(f"rfabric: {error}", file=sys.stderr)
        _exit(2)
    except BaseException:
        traceback.print_exc()
    _exit(1)


def _run(names: list[str], options: list[str]) -> None:
    stack = seam.framework()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    manager = stack.AppManager.get_instance()
    manager.load_apps(names)
    conf = stack.cfg.CONF
    conf(args=options, project="rfabric", default_config_files=[])
    conf.set_override("echo_request_interval", ECHO_INTERVAL_S)
    conf.set_override("maximum_unreplied_echo_requests", ECHO_UNANSWERED)
    services = manager.instantiate_apps(**manager.create_contexts())
    _log.info("%s runs %s", seam.version(), ", ".join(names))
    stack.hub.joinall(services)


def _checked(app: str) -> str:
    """An app's name, found to be a module or a file; the frameworks' own errors name no fault."""
    if "," in app:
        raise RFabricError(
            f"controller app {app!r}: a path with a comma cannot be loaded; rename it"
        )
    path = Path(app)
    if path.is_file():
        try:
            compile(path.read_bytes(), app, "exec")
        except SyntaxError as error:
            raise RFabricError(f"controller app {app}, line {error.lineno}: {error.msg}") from None
    elif path.suffix == ".py" or os.sep in app or importlib.util.find_spec(app) is None:
        raise RFabricError(f"controller app {app}: no such file or module")
    return app


def _check_free(host: str, port: int) -> None:
    """A listener that cannot bind dies unseen in both frameworks, so try first."""
    if not 0 < port < 65536:
        raise RFabricError(f"OpenFlow port {port}: choose one from 1 to 65535")
    claim_port("OpenFlow address", host, port)


def _exit(code: int) -> NoReturn:
    try:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:  # a signal may have struck in the midst of a write
        os._exit(code)


def _environment(python: str) -> str:
    """The environment a Python belongs to: the links in venvs all lead to the same program, their
    folders differ.
    """
    return os.path.dirname(os.path.abspath(python))
