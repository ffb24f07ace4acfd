"""The process that serves a live page: `python -m rfabric.report.page.server`, started by a run.

    run ---- stdin: one line, then a last one ----> this process <---- HTTP, loopback ---- browsers
     \\---- live.jsonl, a line some times a second ------^ read by each stream on its own

It has the run's records to read and nothing else: a run is never held up by who watches, nor by
nobody. It ends with the run, or when the run is gone without a word: then stdin ends. Pages that
are open get the finished report first, for which it stays STAYS seconds at most.

    GET /TOKEN/          the page; the finished report once there is one
    GET /TOKEN/events    server-sent events: the lines so far, then each as it comes; `id` is the
                         byte after the line, so who comes back goes on where it was

The token stands in the address. A page of another origin, and a name of this host that is not
ours (DNS rebinding), are refused.
"""

import contextlib
import hmac
import json
import os
import socket
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

STAYS = 10.0  # s after the run's end that pages have to fetch the report
POLL = 0.2  # s between two looks for new records, while somebody watches
ALIVE = 10.0  # s between two signs of life on a stream: a browser that is gone is noticed
SLOW = 30.0  # s that a browser may take to ask, or to read what is sent
CHUNK = 1 << 18  # bytes of records that are sent at once
MOST_STREAMS = 32
GONE = "the run ended without a word: it was killed, or its host went down"
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Records:
    """The lines of a file that grows, by the byte at which they begin."""

    def __init__(self, file: int):
        self.file = file

    def begins(self, text: str | None) -> int:
        """Where a line begins that `text` asks for; 0 where none does."""
        at = int(text) if text and text.isascii() and text.isdigit() and len(text) < 16 else 0
        return self.place(at)

    def place(self, at: int) -> int:
        """`at`, or 0 where no line begins there: the file was begun anew."""
        return at if at and os.pread(self.file, 1, at - 1) == b"\n" else 0

    def lines(self, at: int) -> list[bytes]:
        """The whole lines from byte `at` on, about CHUNK bytes of them at most."""
        most = CHUNK
        while len(chunk := os.pread(self.file, most, at)) == most and b"\n" not in chunk:
            most *= 2
        return chunk[: chunk.rfind(b"\n") + 1].splitlines(keepends=True)


def events(lines: list[bytes], at: int) -> tuple[bytes, int]:
    """Lines that begin at byte `at` as server-sent events, and the byte after them."""
    messages = []
    for line in lines:
        at += len(line)
        messages.append(b"id: %d\ndata: %s\n\n" % (at, line.rstrip(b"\n")))
    return b"".join(messages), at


class LiveServer(ThreadingHTTPServer):
    """Serves one run on a socket that listens already."""

    daemon_threads = True

    def __init__(self, listening: socket.socket, token: str, page: bytes, records: Records):
        super().__init__(listening.getsockname(), _PageRequest, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.token, self.page, self.records = token, page, records
        port = listening.getsockname()[1]
        self.hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}
        if port == 80:  # browsers leave it out
            self.hosts |= {"127.0.0.1", "localhost"}
        self.changed = threading.Condition()
        self.streams = 0  # open
        self.told = self.fetched = 0  # streams told that there is a report; pages sent since then
        self.last: dict | None = None  # the run's last word

    @property
    def finished(self) -> bytes | None:
        """The finished report, once there is one."""
        path = self.last and self.last.get("report")
        with contextlib.suppress(OSError):
            return Path(path).read_bytes() if path else None
        return None

    def end(self, last: dict) -> None:
        """The run has ended: tell all who watch, and wait until they have the report."""
        with self.changed:
            self.last = last
            self.changed.notify_all()
            self.changed.wait_for(lambda: not self.streams and self.fetched >= self.told, STAYS)

    def handle_error(self, request, client_address) -> None:
        """A browser that is gone is no fault; all else is told."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _PageRequest(BaseHTTPRequestHandler):
    server: LiveServer
    timeout = SLOW

    def do_GET(self) -> None:  # noqa: N802  as http.server calls it
        if refusal := self._refusal():
            self._answer(*refusal)
        elif self.path.partition("?")[0].endswith("/events"):
            self._events()
        else:
            ended = self.server.last is not None
            self._answer(HTTPStatus.OK, self.server.finished or self.server.page, "text/html")
            with self.server.changed:
                self.server.fetched += ended
                self.server.changed.notify_all()

    def _refusal(self) -> tuple[HTTPStatus, bytes] | None:
        hosts, origin = self.headers.get_all("Host", []), self.headers.get("Origin")
        if len(hosts) != 1 or hosts[0].lower() not in self.server.hosts:
            return HTTPStatus.MISDIRECTED_REQUEST, b"ask by the address that the run has printed\n"
        site = self.headers.get("Sec-Fetch-Site", "none")
        ours = origin is None or origin.removeprefix("http://") in self.server.hosts
        if not ours or site not in ("none", "same-origin"):
            return HTTPStatus.FORBIDDEN, b"not for pages of another origin\n"
        path = self.path.partition("?")[0].encode()
        known = (f"/{self.server.token}/{name}".encode() for name in ("", "events"))
        if not sum(hmac.compare_digest(path, one) for one in known):  # all of them: the same time
            return HTTPStatus.NOT_FOUND, b"nothing here: the run has printed the whole address\n"
        return None

    def _begin(self, status: HTTPStatus, kind: str, **more: str) -> None:
        self.send_response(status)
        headers = {"Content-Type": f"{kind}; charset=utf-8", "Connection": "close"} | HEADERS | more
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _answer(self, status: HTTPStatus, body: bytes, kind: str = "text/plain") -> None:
        self._begin(status, kind, **{"Content-Length": str(len(body))})
        self.wfile.write(body)

    def _events(self) -> None:
        with self.server.changed:
            if self.server.streams >= MOST_STREAMS:
                busy = f"{MOST_STREAMS} pages watch this run already; close one\n"
                return self._answer(HTTPStatus.SERVICE_UNAVAILABLE, busy.encode())
            self.server.streams += 1
        try:
            self._begin(HTTPStatus.OK, "text/event-stream")
            self._stream(self.server.records.begins(self.headers.get("Last-Event-ID")))
        finally:
            with self.server.changed:
                self.server.streams -= 1
                self.server.changed.notify_all()

    def _stream(self, at: int) -> None:
        heard = time.monotonic()
        while True:
            last = self.server.last  # before the look: what comes later is no record
            at = self.server.records.place(at)
            text, at = events(self.server.records.lines(at), at)
            if not text and last is not None:
                said = json.dumps({"error": last.get("error"), "report": bool(last.get("report"))})
                with self.server.changed:
                    self.server.told += bool(last.get("report"))
                self.wfile.write(f"event: end\ndata: {said}\n\n".encode())
                return
            if not text and time.monotonic() - heard > ALIVE:
                text = b": still here\n\n"
            if text:
                heard = time.monotonic()
                self.wfile.write(text)
            else:
                self._wait()

    def _wait(self) -> None:
        with self.server.changed:
            self.server.changed.wait_for(lambda: self.server.last is not None, POLL)

    def log_message(self, format: str, *args) -> None:  # noqa: A002  as http.server calls it
        """Nobody reads it."""


def main() -> None:
    """Serve until the run that started this has ended."""
    if not (first := sys.stdin.readline()):
        return  # the run is gone before it has said anything
    told = json.loads(first)
    listening = socket.socket(fileno=told["socket"])
    records = Records(told["records"])
    server = LiveServer(listening, told["token"], told["page"].encode(), records)
    threading.Thread(target=server.serve_forever, args=(POLL,), daemon=True).start()
    last = sys.stdin.readline()
    server.end(json.loads(last) if last else {"error": GONE})


if __name__ == "__main__":
    main()
