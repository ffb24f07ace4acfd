"""Who may ask the controller, and where it listens: loopback alone, unless it is told otherwise.

    RFABRIC_REST_HOST    where REST listens (127.0.0.1); another than loopback needs tokens
    RFABRIC_REST_TOKENS  a file of lines NAME TOKEN, mode 600; made with one token where absent
    RFABRIC_REST_NAMES   names, with commas, by which clients call this machine
    RFABRIC_REST_TLS     cert=FILE,key=FILE[,ca=FILE]: HTTPS; with `ca` clients show certificates
    RFABRIC_OFP_TLS      the same for OpenFlow, whose listener is set by `--ofp-host` (ryu-manager:
                         --ofp-listen-host) and is loopback otherwise

A token is sent as `Authorization: Bearer TOKEN`; its NAME is what the audit line says. A page in a
browser can make its user send requests to this machine, under a name that its author has pointed
here (DNS rebinding): so `Host` must be an address or name that is ours (else 421) and what comes
from a web page is refused (403).
"""

import errno
import hashlib
import hmac
import ipaddress
import logging
import os
import re
import resource
import secrets
import socket
import ssl
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any

from ..errors import RFabricError
from . import seam
from .addresses import LOOPBACK

HANDSHAKE_S = 10.0
MOST_CONNECTIONS = 4096  # to OpenFlow, at once
WITHOUT_S = 0.1  # s until a descriptor may be free
LEAST_TOKEN = 16  # characters

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Refusal:
    """Why a request is not answered: a status code and its text."""

    status: int
    text: str


@dataclass(frozen=True)
class Border:
    """What a request must show.

    tokens: name by token, empty: none is asked for. names: hosts that are ours. exposed: others
    than this machine can reach us, so that every IP address may be ours.
    """

    tokens: Mapping[str, str]
    names: frozenset[str] = frozenset({"localhost"})
    exposed: bool = False
    tls: ssl.SSLContext | None = None

    def refusal(self, headers: Message) -> Refusal | None:
        """Why these headers do not pass, or None."""
        hosts = headers.get_all("Host", [])
        if len(hosts) > 1:
            return Refusal(400, f"Host is given {len(hosts)} times; give it once")
        if hosts and not self._ours(hosts[0]):
            return Refusal(
                421, f"Host {hosts[0][:200]!r} is not this controller; ask by its address, or name "
                "the host with --name",
            )  # fmt: skip
        if headers.get("Origin") or headers.get("Sec-Fetch-Site", "none") != "none":
            return Refusal(
                403, "requests from web pages are refused; use curl or rfabric.control.client"
            )
        if self.tokens and self.who(headers) is None:
            return Refusal(
                401, "a token is needed: send the header Authorization: Bearer TOKEN, with a token "
                "of the controller's token file",
            )  # fmt: skip
        return None

    def who(self, headers: Message) -> str | None:
        """The name of the token that was shown; None: none of ours."""
        kind, _, shown = headers.get("Authorization", "").partition(" ")
        if kind.lower() != "bearer":
            return None
        given = _digest(shown.strip())
        # all of them are compared, to take the same time
        same = [n for t, n in self.tokens.items() if hmac.compare_digest(given, _digest(t))]
        return same[0] if same else None

    def _ours(self, host: str) -> bool:
        matched = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?", host)
        if not matched:
            return False
        name = matched[1].lower().strip("[]").rstrip(".")
        if name in self.names:
            return True
        address = _address(name)
        return address is not None and (self.exposed or address.is_loopback)


LOCAL = Border({})


def from_environment(environment: Mapping[str, str] = os.environ, module: Any = ssl) -> Border:
    """The border that RFABRIC_REST_* describe."""
    host = environment.get("RFABRIC_REST_HOST", LOOPBACK)
    exposed = not is_loopback(host)
    file = environment.get("RFABRIC_REST_TOKENS", "")
    tokens = read_tokens(file or default_tokens()) if file or exposed else {}
    named = environment.get("RFABRIC_REST_NAMES", "").lower()
    names = {"localhost", host.lower(), *filter(None, re.split("[, ]+", named))}
    if exposed:
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    tls = read_tls(environment.get("RFABRIC_REST_TLS", ""), "--tls", module)
    if exposed and tls is None:
        _log.warning("REST on %s without --tls: tokens cross the network readably", host)
    return Border(tokens, frozenset(names), exposed, tls)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens at `host`."""
    address = _address(host)
    return host.lower() == "localhost" or (address is not None and address.is_loopback)


# --- tokens ---------------------------------------------------------------------------------------


def default_tokens() -> str:
    """Where the tokens are when no file is named."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(home, "rfabric", "tokens")


def read_tokens(file: str) -> dict[str, str]:
    """Name by token of a file of lines NAME TOKEN; the file is made, with one token, where there
    is none.

    RFabricError where others than its owner may read it, or it holds no token.
    """
    path = Path(file)
    try:
        if not path.exists():
            _make_tokens(path)
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise RFabricError(f"token file {file} is no file; name one of lines NAME TOKEN")
        if stat.S_IMODE(mode) & 0o077:
            raise RFabricError(
                f"token file {file} has mode {stat.S_IMODE(mode):o}: others may read it; "
                f"chmod 600 {file}, and make new tokens where someone may have"
            )
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise RFabricError(f"token file {file}: {why}") from None
    lines = [line.split() for line in text.splitlines() if line.strip() and line.strip()[0] != "#"]
    for number, words in enumerate(lines, 1):
        if len(words) != 2 or len(words[1]) < LEAST_TOKEN:
            raise RFabricError(
                f"token file {file}, entry {number}: write NAME TOKEN, the token of "
                f"{LEAST_TOKEN} characters or more"
            )
    if not lines:
        raise RFabricError(f"token file {file} holds no token; remove it, and one is made")
    return {token: name for name, token in lines}


def _make_tokens(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(f"operator {secrets.token_urlsafe(32)}\n")
    _log.info("made the token file %s", path)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogateescape")).digest()


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


# --- TLS ------------------------------------------------------------------------------------------


def read_tls(words: str, option: str, module: Any = ssl) -> ssl.SSLContext | None:
    """The server side of TLS from `cert=FILE,key=FILE[,ca=FILE]`; None where nothing is said.
    RFabricError where a file cannot be read or holds none of that.
    """
    if not words:
        return None
    given = tls_files(words, option)
    try:
        context = module.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # TLS 1.2 and above
        context.load_cert_chain(given["cert"], given["key"])
        if "ca" in given:
            context.load_verify_locations(given["ca"])
            context.verify_mode = ssl.CERT_REQUIRED
    except (ssl.SSLError, OSError) as error:
        raise RFabricError(f"{option} {words}: {error.strerror or error}") from None
    return context


def tls_files(words: str, option: str) -> dict[str, str]:
    """The files of `cert=FILE,key=FILE[,ca=FILE]`, by name; RFabricError for other words, and for
    files that cannot be read.
    """
    given = dict(word.partition("=")[::2] for word in words.split(","))
    if not {"cert", "key"} <= set(given) <= {"cert", "key", "ca"}:
        raise RFabricError(f"{option} {words}: write cert=FILE,key=FILE or cert=,key=,ca=FILE")
    for name, file in given.items():
        if not os.access(file, os.R_OK):
            raise RFabricError(f"{option} {name}={file}: no such file, or it cannot be read")
    return given


def wrapped(tls: ssl.SSLContext, connection: Any, address: Any) -> Any | None:
    """A connection inside TLS; None, closed, for a client that does not speak it."""
    inside = None
    try:
        before = connection.gettimeout()
        # not all at once: of a handshake that fails inside it the descriptor would stay open
        inside = tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        inside.settimeout(HANDSHAKE_S)
        inside.do_handshake()
        inside.settimeout(before)
        return inside
    except OSError as error:  # SSLError, TimeoutError, ConnectionError
        _log.warning("no TLS with %s: %s", address, error)
        (inside or connection).close()
        return None


# --- OpenFlow -------------------------------------------------------------------------------------


def keep_openflow_home(environment: Mapping[str, str] = os.environ) -> None:
    """Let OpenFlow listen on loopback unless the command line says where, in TLS if told, and to no
    more connections than fit.

    Both frameworks listen on all addresses by themselves, and end where descriptors do.
    """
    conf, module = seam.framework().cfg.CONF, seam.framework().controller
    conf.set_default("ofp_listen_host", LOOPBACK)
    module.StreamServer = _limited(module.StreamServer)
    tls = read_tls(environment.get("RFABRIC_OFP_TLS", ""), "--ofp-tls", seam.hub_module("ssl"))
    if tls is not None:
        module.StreamServer = _server_in_tls(module.StreamServer, tls)
    elif not is_loopback(conf.ofp_listen_host):
        _log.warning(
            "OpenFlow on %s without --ofp-tls: whoever reaches it can pose as a switch",
            conf.ofp_listen_host or "all addresses",
        )


def most_connections() -> int:
    """Connections to OpenFlow at once: half of what may be open, for the journal, REST and pipes
    need descriptors as well, and MOST_CONNECTIONS at most.
    """
    may = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST_CONNECTIONS if may == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, may // 2)


def _limited(server: Callable[..., Any]) -> Callable[..., Any]:
    """The framework's server, which closes connections beyond `most_connections` at once, and goes
    on where it can have no more.
    """
    most, served, full = most_connections(), set[Any](), False

    def made(address: Any, handle: Callable[[Any, Any], None], **more: Any) -> Any:
        def serve(connection: Any, peer: Any) -> None:
            nonlocal full
            was_full, full = full, len(served) >= most
            if full:
                if not was_full:  # said once, until there is room again
                    _log.warning("%d connections to OpenFlow: further ones are closed", most)
                connection.close()
                return
            served.add(connection)
            try:
                handle(connection, peer)
            finally:
                served.discard(connection)

        one = server(address, serve, **more)
        one.server = Patient(one.server)
        return one

    return made


class Patient:
    """A listener that accepts when whoever came before is being served, and waits for descriptors
    where there are none.
    """

    def __init__(self, listener: Any):
        self.listener = listener

    def accept(self) -> tuple[Any, Any]:
        """As a socket's."""
        sleep = seam.framework().hub.sleep
        sleep(0)
        while True:
            try:
                return self.listener.accept()
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE):
                    raise
                sleep(WITHOUT_S)


def _server_in_tls(server: type, tls: ssl.SSLContext) -> Callable[..., Any]:
    """The framework's server, each connection inside TLS.

    Ryu's own takes its settings apart with the first switch, and has none for the second.
    """

    def made(address: Any, handle: Callable[[Any, Any], None], **_: Any) -> Any:
        def inside(connection: Any, peer: Any) -> None:
            if (wire := wrapped(tls, connection, peer)) is not None:
                handle(wire, peer)

        return server(address, inside)

    return made
