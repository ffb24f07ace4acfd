"""One controller a port and one a fabric: who comes second is told whose place it is.

Both marks go with the process that set them, however it ends: a lock of the kernel on a file, and a
socket in the abstract namespace, which other network namespaces do not see.
"""

import errno
import fcntl
import os
import socket
import struct
from pathlib import Path
from typing import IO

from ..errors import RFabricError
from .addresses import endpoint

WAITING = 64  # who may ask at once whose port it is, or for a switch's place
_claims: list[socket.socket] = []  # as long as the process lives


class HeldError(RFabricError):
    """Another controller, process `pid` (0: unknown), has what this one asks for."""

    def __init__(self, text: str, pid: int):
        super().__init__(text)
        self.pid = pid


def lock(path: Path, what: str) -> IO[str]:
    """The lock file, held by this process as long as it is open; HeldError names the holder."""
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        pid = file.read().strip()
        file.close()
        raise HeldError(
            f"{what} is under the control of process {pid or 'unknown'} ({path}); stop that "
            "one first, let this one stand by (--standby), or give it another journal (--journal)",
            int(pid or 0),
        ) from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


def claim_port(use: str, host: str, port: int) -> None:
    """Take a TCP port for this process, before it is listened at: a listener that shares its port
    (SO_REUSEPORT, as eventlet's do) is not told of a second one. HeldError where another has it.
    """
    mark = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    name = f"\0rfabric control {host} {port}"
    try:
        mark.bind(name)
        mark.listen(WAITING)
    except OSError:
        mark.close()
        pid = _holder(name)
        raise HeldError(
            f"{use} {host}:{port}: the controller of process {pid or 'unknown'} has it; name "
            "another port, or stop that one",
            pid,
        ) from None
    try:
        refuse_taken(use, host, port)
    except RFabricError:
        mark.close()
        raise
    _claims.append(mark)


def listen(use: str, host: str, port: int) -> socket.socket:
    """Take a TCP port and listen there: who connects waits until it is accepted, also by what this
    process becomes (exec). HeldError where another has it.
    """
    claim_port(use, host, port)
    six = ":" in host  # and `::` is all addresses, those of four bytes as well
    listener = socket.create_server(
        (host, port),
        family=socket.AF_INET6 if six else socket.AF_INET,
        backlog=WAITING,
        dualstack_ipv6=six,
    )
    for kept in (listener, _claims[-1]):
        kept.set_inheritable(True)
    return listener


_NOT_HERE = errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT


def refuse_taken(use: str, host: str, port: int) -> None:
    """RFabricError where anybody listens at a TCP port, whether it shares it or not."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        way_out = (
            "name an address of this machine"
            if isinstance(error, socket.gaierror) or error.errno in _NOT_HERE
            else "name another port"
        )
        where = f"{use} {endpoint(host, port)}"
        raise RFabricError(f"{where}: {error.strerror}; {way_out}") from None


def _holder(name: str) -> int:
    """The process that listens at an abstract name; 0 where it cannot be told."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(0.2)
        try:
            asking.connect(name)
            seen = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:
            return 0
    return struct.unpack("3i", seen)[0]
