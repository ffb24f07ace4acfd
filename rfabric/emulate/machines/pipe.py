"""Frames of JSON between the leader of a run and the agent of a machine, over the one pipe that
joins them; and connections to the controller, which the same pipe carries.

    | length, 4 bytes | {"ask": 7, "do": "look"}                     |
    | length, 4 bytes | {"call": 3, "data": "BGgACA..."}             |   OpenFlow of one switch
"""

import base64
import json
import os
import socket
import struct
import threading
from collections.abc import Iterator

from ...errors import RunError

HEAD = struct.Struct("!I")
MOST = 1 << 28  # bytes of one frame: more is no frame
PIECE = 1 << 16


class Pipe:
    """Both directions of one pipe, by file descriptors that stay who made them's to close; whoever
    says something says it whole.
    """

    def __init__(self, read: int, write: int):
        self._read, self._write = os.fdopen(read, "rb", closefd=False), write
        self._saying = threading.Lock()

    def say(self, message: dict) -> None:
        """One frame; BrokenPipeError where nobody hears."""
        text = json.dumps(message).encode()
        left = memoryview(HEAD.pack(len(text)) + text)
        with self._saying:
            while left:
                left = left[os.write(self._write, left) :]

    def frames(self) -> Iterator[dict]:
        """What the other end says, until it has gone; RunError for what is no frame."""
        while len(head := self._read.read(HEAD.size)) == HEAD.size:
            (length,) = HEAD.unpack(head)
            if length > MOST:
                said = (head + self._read.read1(200)).decode(errors="replace").strip()
                raise RunError(f"what answers is no agent: {said!r}")
            text = self._read.read(length)
            if len(text) < length:
                return
            yield json.loads(text)


class Calls:
    """TCP connections to a port of 127.0.0.1 at the agent's end, led on to the same port at the
    leader's.
    """

    def __init__(self, pipe: Pipe, port: int):
        self._pipe, self._port = pipe, port
        self._open: dict[int, socket.socket] = {}

    def listen(self) -> None:
        """From now on take calls: the agent's end."""
        server = socket.create_server(("127.0.0.1", self._port))
        threading.Thread(target=self._accept, args=(server,), daemon=True).start()

    def hear(self, number: int, data: str | None) -> None:
        """What the other end got on connection `number`; None: it was closed there."""
        if data is None:
            if sock := self._open.pop(number, None):
                sock.close()
            return
        if number not in self._open:
            self._add(number, socket.create_connection(("127.0.0.1", self._port)))
        self._open[number].sendall(base64.b64decode(data))

    def _accept(self, server: socket.socket) -> None:
        number = 0
        while True:
            sock, _ = server.accept()
            number += 1
            self._add(number, sock)

    def _add(self, number: int, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._open[number] = sock
        threading.Thread(target=self._carry, args=(number, sock), daemon=True).start()

    def _carry(self, number: int, sock: socket.socket) -> None:
        try:
            while data := sock.recv(PIECE):
                self._pipe.say({"call": number, "data": base64.b64encode(data).decode()})
            self._pipe.say({"call": number, "data": None})
        except OSError:
            return  # closed, here or at the other end of the pipe
