"""`rfabric agent`: the outside of one machine's world, in the machine's own network."""

import os
import signal
import sys
import tempfile
from pathlib import Path

from ...errors import RFabricError
from .. import sandbox
from ..world import job_folder
from .pipe import Pipe


def serve() -> int:
    """Be the agent of this machine: `rfabric agent`. Returns the exit code."""
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda *_: sys.exit(1))
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        with job_folder(Path(tempfile.gettempdir(), "rfabric-agent")) as folder:
            words = [sys.executable, "-m", "rfabric.emulate.machines.agent", str(folder), str(home)]
            process = sandbox.launch(words, folder, pass_fds=(home,))
            try:
                return process.wait()
            finally:
                sandbox.end(process, folder)
    except RFabricError as error:
        Pipe(0, 1).say({"error": str(error), "kind": type(error).__name__})
        return 1
