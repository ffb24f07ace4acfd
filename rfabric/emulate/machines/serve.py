"""`rfabric agent`: the outside of one machine's world, in the machine's own network."""

import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ...errors import RFabricError, told
from .. import sandbox
from ..world import job_folder
from .pipe import Pipe


def serve() -> int:
    """Be the agent of this machine: `rfabric agent`. Returns the exit code."""
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda *_: sys.exit(1))
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        with _own_folder() as own, job_folder(own) as folder:
            words = [sys.executable, "-m", "rfabric.emulate.machines.agent", str(folder), str(home)]
            process = sandbox.launch(words, folder, pass_fds=(home,))
            try:
                return process.wait()
            finally:
                sandbox.end(process, folder)
    except RFabricError as error:
        Pipe(0, 1).say(told(error))
        return 1


@contextlib.contextmanager
def _own_folder() -> Iterator[Path]:
    """Where agents on this machine have their folders: nobody else's, as others may write beside
    it.
    """
    own = Path(tempfile.gettempdir(), "rfabric-agent")
    own.mkdir(mode=0o700, exist_ok=True)
    if own.is_symlink() or own.stat().st_uid != os.geteuid():
        raise RFabricError(f"{own} belongs to somebody else; remove it, or set TMPDIR")
    try:
        yield own
    finally:
        with contextlib.suppress(OSError):
            own.rmdir()
