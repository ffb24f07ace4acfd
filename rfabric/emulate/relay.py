"""Between a switch and its controller: a TCP connection that can be made to lose its voice."""

import contextlib
import select
import socket
import threading

CALL_S = 30.0  # s in which somebody must have called


class Relay:
    """One TCP connection on loopback led on to another port; while `mute` what comes back waits.

    carried: bytes that came from who called.
    """

    def __init__(self, port: int, to: int):
        self.mute, self.carried, self._to = False, 0, to
        self._server = socket.create_server(("127.0.0.1", port))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Relay":
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._ended.set()
        self._server.close()
        self._thread.join()

    def _run(self) -> None:
        self._server.settimeout(CALL_S)
        with contextlib.suppress(OSError):
            caller, _ = self._server.accept()
            with caller, socket.create_connection(("127.0.0.1", self._to)) as called:
                while not self._ended.is_set() and self._carry(caller, called):
                    pass

    def _carry(self, caller: socket.socket, called: socket.socket) -> bool:
        """Carry on what has come; False where either side has gone."""
        heard = [called] if self.mute else [called, caller]
        for sock in select.select(heard, [], [], 0.02)[0]:
            if not (data := sock.recv(1 << 16)):
                return False
            (called if sock is caller else caller).sendall(data)
            self.carried += len(data) * (sock is caller)
        return True
