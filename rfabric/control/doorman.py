"""Switches that connect before their controller can answer are let in and greeted.

Open vSwitch gives a connection up on which it hears no HELLO for a second, and tries again a second
later. A controller loads for about as long: so until it is there HELLO is said here, and not once
more by the framework. Who comes later has to wait where it is busy, which shares its time out.
"""

import socket
import struct

# of the system, before a framework puts its own in their place
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from os import close, write
from select import POLLIN, poll
from typing import Any

from . import seam
from .border import most_connections

# of OpenFlow 1.3; its number is a blank, see app._number_legibly
HELLO = struct.pack("!BBHI", 4, 0, 8, ord(" "))
LOOK_MS = 20  # how long the thread goes on when it is told to end


class Doorman:
    """Greets, in a thread of its own, who connects at a listener, until `relieve`d."""

    def __init__(self, listener: socket.socket):
        self.listener: Any = listener
        self.greeted: dict[Any, int] = {}  # descriptors of connections, by whose they are
        self._most, self._relieved = most_connections(), False
        listener.setblocking(False)
        self._standing = allocate_lock()
        self._standing.acquire()
        start_new_thread(self._stand, ())

    def relieve(self) -> None:
        """From now on somebody else does it."""
        self._relieved = True
        self._standing.acquire()

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
            if len(self.greeted) >= self._most:
                close(descriptor)
                return
            self.greeted[peer] = descriptor
            write(descriptor, HELLO)
        except OSError:  # gone again
            return


def server_at(listener: socket.socket, doorman: Doorman | None) -> Callable[..., Any]:
    """The framework's server of switches, but for its socket, which listens already, and those that
    a doorman has let in.
    """

    class Server:
        def __init__(self, _: Any, handle: Callable[[Any, Any], None]):
            made = seam.hub_module("socket").socket
            if doorman:
                doorman.relieve()
            self.handle = handle
            self.early = [
                (made(-1, fileno=descriptor), peer)
                for peer, descriptor in (doorman.greeted if doorman else {}).items()
            ]
            self.server = made(-1, fileno=listener.detach())
            self.server.setblocking(True)

        def serve_forever(self) -> None:
            spawn = seam.framework().hub.spawn
            for connection, peer in self.early:
                spawn(self.handle, connection, peer)
            while True:
                spawn(self.handle, *self.server.accept())

    return Server


def greet_once(datapath: type, doorman: Doorman) -> None:
    """Let the framework's switch say HELLO to none whom the doorman has greeted."""
    send = datapath.send_msg

    def send_msg(self: Any, msg: Any, *more: Any) -> bool:
        if msg.cls_msg_type == self.ofproto.OFPT_HELLO and self.address in doorman.greeted:
            return doorman.greeted.pop(self.address) >= 0
        return send(self, msg, *more)

    datapath.send_msg = send_msg
