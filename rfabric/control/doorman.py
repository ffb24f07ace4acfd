"""Switches that connect before their controller can answer are let in and greeted.

Open vSwitch gives a connection up on which it hears no HELLO for a second, and tries again a second
later. A controller loads for about as long, and one with many switches to read hears the last of
them late: so HELLO is said here, as they come, and not once more by the framework.
"""

import socket
import struct

# of the system, before a framework puts its own in their place
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from os import write
from select import POLLIN, poll
from typing import Any

from . import seam

# of OpenFlow 1.3; its number is a blank, see app._number_legibly
HELLO = struct.pack("!BBHI", 4, 0, 8, ord(" "))
LOOK_MS = 20  # how long the thread goes on when it is told to end

Greeted = tuple[int, Any]  # the descriptor of a connection, and whose it is


class Doorman:
    """Greets, in a thread of its own, who connects at a listener, until `relieved`."""

    def __init__(self, listener: socket.socket):
        self.listener: Any = listener
        self._greeted: list[Greeted] = []
        self._relieved = False
        listener.setblocking(False)
        self._standing = allocate_lock()
        self._standing.acquire()
        start_new_thread(self._stand, ())

    def relieved(self) -> list[Greeted]:
        """Who was greeted; from now on somebody else does it."""
        self._relieved = True
        self._standing.acquire()
        return self._greeted

    def _stand(self) -> None:
        waiting = poll()
        waiting.register(self.listener.fileno(), POLLIN)
        while not self._relieved:
            if waiting.poll(LOOK_MS):
                self._let_in()
        self._standing.release()

    def _let_in(self) -> None:
        try:
            # accept() would make a socket of the framework's kind, which is not for this thread
            descriptor, peer = self.listener._accept()
            self._greeted.append((descriptor, peer))
            write(descriptor, HELLO)
        except OSError:  # gone again
            return


def server_at(listener: socket.socket, doorman: Doorman | None) -> Callable[..., Any]:
    """The framework's server of switches, but for its socket, which listens already; with a doorman
    all that come are greeted.
    """
    made = seam.hub_module("socket").socket

    class Server:
        def __init__(self, _: Any, handle: Callable[[Any, Any], None]):
            self.handle = handle

        def serve_forever(self) -> None:
            spawn = seam.framework().hub.spawn
            for descriptor, peer in doorman.relieved() if doorman else ():
                spawn(self.handle, made(-1, fileno=descriptor), peer)
            server = made(-1, fileno=listener.detach())
            server.setblocking(True)
            while True:
                connection, peer = server.accept()
                if doorman:
                    greet(connection)
                spawn(self.handle, connection, peer)

    return Server


def greet(connection: Any) -> None:
    """Say HELLO; who is gone is found to be so by the framework."""
    try:
        connection.send(HELLO)
    except OSError:
        return


def greet_no_more(datapath: type) -> None:
    """Let the framework's switch say no HELLO of its own."""
    send = datapath.send_msg

    def send_msg(self: Any, msg: Any, *more: Any) -> bool:
        return msg.cls_msg_type == self.ofproto.OFPT_HELLO or send(self, msg, *more)

    datapath.send_msg = send_msg
