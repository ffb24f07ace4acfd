"""Start the controller: in this process (`rfabric control`), or as the command line of a child (the
emulator).
"""

import argparse
import importlib.util
import logging
import os
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from ..errors import RFabricError
from ..fabric import parse_fabric
from ..folders import data_dir
from . import seam
from .addresses import LOOPBACK, OFP_PORT, REST_PORT
from .alone import listen
from .border import default_tokens
from .doorman import Doorman, greet_once, server_at
from .journal import NONE, folder_of
from .logs import FORMATS, TEXT, write_json_lines

# A switch is asked every second whether it is there, and given up after this many questions: a
# killed one is seen at once by its closed connection, this is for a hung one. os-ken's native hub
# notices a closed connection only by the next write, which is this one.
ECHO_INTERVAL_S = 1.0
ECHO_UNANSWERED = 15

LAST_WORDS_S = 1.0  # s for what is still to be written when the process is told to stop

_log = logging.getLogger(__name__)


ENVIRONMENT = {  # where the apps read what is said here
    "topo": "RFABRIC_TOPO",
    "host": "RFABRIC_REST_HOST",
    "port": "RFABRIC_REST_PORT",
    "sdn": "RFABRIC_SDN",
    "tokens": "RFABRIC_REST_TOKENS",
    "name": "RFABRIC_REST_NAMES",
    "tls": "RFABRIC_REST_TLS",
    "ofp_tls": "RFABRIC_OFP_TLS",
    "log": "RFABRIC_LOG",
    "journal": "RFABRIC_JOURNAL",
    "standby": "RFABRIC_STANDBY",
    "live": "RFABRIC_LIVE",
}
LISTENER = "RFABRIC_OFP_LISTENER"  # the descriptor at which it listens for what it becomes


def run(
    app: str = "", ofp_port: int = OFP_PORT, ofp_host: str = LOOPBACK, **settings: str | int
) -> NoReturn:
    """Run the controller until told to stop; `settings` are the keys of ENVIRONMENT.

    `topo` is the fabric ('': read from the switches), `host`:`port` where REST listens, `sdn` ryu
    or os-ken ('': Ryu where it is installed), `app` a file of the user's own instead of
    controller/ocs.py or ecmp.py; border.py says who may ask. What is not given is taken from the
    environment. Where another Python has the framework, this process becomes that Python. It
    listens for switches from the first: Open vSwitch asks once a second, and waits where it is let
    in.
    """
    given = {ENVIRONMENT[key]: str(value) for key, value in settings.items() if value}
    chosen = app or app_file(given.get("RFABRIC_TOPO") or os.environ.get("RFABRIC_TOPO", ""))
    os.environ.update(given)
    # addresses here are numbers; the resolver that eventlet would load is a fifth of the start
    os.environ.setdefault("EVENTLET_NO_GREENDNS", "yes")
    python = seam.interpreter()
    if _environment(python) != _environment(sys.executable):
        sys.stdout.flush()
        listener = _listener(ofp_host, ofp_port)
        os.environ[LISTENER] = str(listener.fileno())
        words = [chosen, "--ofp-port", str(ofp_port), "--ofp-host", ofp_host]
        # Ctrl-C waits until the new Python can end in peace: see run_apps
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        os.execv(python, [python, "-m", "rfabric.control", *words])
    run_apps([chosen], ofp_host, ofp_port)


def command(
    topo: str = "",
    host: str = "",
    port: int = 0,
    sdn: str = "",
    ofp_port: int = OFP_PORT,
    app: str = "",
    journal: str = "",
) -> list[str]:
    """The argument list that runs the controller as a process of its own, on loopback."""
    options = {"--topo": topo, "--host": host, "--port": port, "--sdn": sdn, "--ofp-port": ofp_port}
    options["--journal"] = journal
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
    control_options(parser)
    try:
        run(**vars(parser.parse_args(arguments)))
    except RFabricError as error:
        print(f"rfabric: {error}", file=sys.stderr)
        sys.exit(2)


def control_options(parser: argparse.ArgumentParser) -> None:
    """The words of `rfabric control`, and of `python -m rfabric.control`."""

    def option(name: str, text: str, default: str = "", **settings: Any) -> None:
        parser.add_argument(name, default=default, help=text, **settings)

    option(
        "app", "an app file such as controller/ocs.py (default: what the fabric needs)", nargs="?"
    )
    option("--topo", "fabric: rfabric,pods=2 or FILE.json (default: read from the switches)")
    option("--host", f"REST address (default {LOOPBACK}); other than loopback it needs --tokens")
    parser.add_argument("--port", type=int, default=0, help=f"REST port (default {REST_PORT})")
    option(
        "--tokens", f"lines NAME TOKEN, mode 600; created if absent (default {default_tokens()})"
    )
    option("--name", "names by which clients may address this host, with commas between")
    option("--tls", "cert=FILE,key=FILE[,ca=FILE]: HTTPS; ca: clients must show certificates")
    option("--ofp-host", "OpenFlow address (default %(default)s)", LOOPBACK)
    option("--ofp-tls", "the same as --tls, for OpenFlow")
    option(
        "--sdn", "the framework (default: Ryu where it is installed)", choices=["", "ryu", "os-ken"]
    )
    option("--log", "how log lines are written (default text)", choices=["", *FORMATS])
    option("--journal", f"folder for what the next start must know (default {folder_of({})})")
    flags = parser.add_argument
    flags("--no-journal", help="keep nothing", dest="journal", action="store_const", const=NONE)
    flags(
        "--standby",
        help="wait while another controller is alive, then take over",
        action="store_const",
        const="1",
        default="",
    )
    parser.add_argument(
        "--ofp-port", type=int, default=OFP_PORT, help="OpenFlow port (default %(default)s)"
    )


def run_apps(apps: Sequence[str | Path], host: str = LOOPBACK, port: int = OFP_PORT) -> NoReturn:
    """Run app files, or modules by name, until told to stop (SIGTERM, SIGINT: exit code 0).

    What `ryu-manager` does, for both frameworks, and listening on loopback alone if not told
    otherwise. Once the apps are loading it ends the process in every case: threads of os-ken's
    native hub cannot be ended otherwise. RFabricError for an app that cannot be loaded, or a port
    that is taken.
    """
    names = [_checked(str(app)) for app in apps]
    listener = _listener(host, port)
    doorman = Doorman(listener) if _speaks_plainly(names) else None
    seam.prepare(seam.flavour()).patch()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _exit(0))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        options = [f"--ofp-listen-host={host}", f"--ofp-tcp-listen-port={port}"]
        _run(names, options, listener, doorman)
    except RFabricError as error:
        print(f"rfabric: {error}", file=sys.stderr)
        _exit(2)
    except BaseException:
        traceback.print_exc()
    _exit(1)


def _speaks_plainly(names: Sequence[str]) -> bool:
    """Whether HELLO can be said before the apps are there: OpenFlow 1.3 without TLS, as ours do."""
    ours = data_dir("controller").resolve()
    tls = os.environ.get("RFABRIC_OFP_TLS", "")
    return not tls and all(Path(name).resolve().parent == ours for name in names)


def _run(
    names: list[str], options: list[str], listener: socket.socket, doorman: Doorman | None
) -> None:
    stack = seam.framework()
    stack.controller.StreamServer = server_at(listener, doorman)
    if doorman:
        greet_once(stack.controller.Datapath, doorman)
    logging.basicConfig(level=logging.INFO, format=TEXT)
    write_json_lines(lambda: None)
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
    """The name of an app that is a module or a file; the frameworks' own errors name no fault."""
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


def _listener(host: str, port: int) -> socket.socket:
    """Where switches connect. A listener that cannot bind dies unseen in both frameworks, so it is
    ours; what this process was before may have it already.
    """
    if kept := os.environ.pop(LISTENER, ""):
        return socket.socket(fileno=int(kept))
    if not 0 < port < 65536:
        raise RFabricError(f"OpenFlow port {port}: choose one from 1 to 65535")
    return listen("OpenFlow address", host, port)


def _exit(code: int) -> NoReturn:
    # nothing that is written out, to a reader who reads no more, may keep the process
    signal.signal(signal.SIGALRM, lambda *_: os._exit(code))
    signal.setitimer(signal.ITIMER_REAL, LAST_WORDS_S)
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
