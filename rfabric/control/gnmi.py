"""gNMI for a running controller's OCSes: what collectors and pygnmi speak, put into its REST.

    client --gRPC--> this process --REST--> controller

The target (of a prefix or a path) names the OCS. Paths are those of the RFC 7951 documents, with
or without the names of their modules:

    /sonic-ocs:sonic-ocs/OCS_CROSS_CONNECT/OCS_CROSS_CONNECT_LIST[cross_connect_id=1A-2B]
    /sonic-ocs-states:sonic-ocs-states/OCS_PORT
    /rfabric-ocs:optical-circuit-switch/connections

One Set is one plan and one commit: all of it or nothing. Subscribe looks at the controller every
POLL_S, so a change is told at most so much later. Needs rfabric[gnmi].
Source: gNMI specification 0.8.0 (openconfig/reference); messages and stubs are pygnmi's.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
from pygnmi.spec.v080 import gnmi_pb2 as gnmi
from pygnmi.spec.v080 import gnmi_pb2_grpc as stubs

from ..errors import RFabricError, RunError
from .border import is_loopback, read_tls, tls_files
from .client import Client, RefusedError
from .gnmi_tree import ENCODINGS, MODELS, Look, Refused, invalid, order

VERSION = "0.8.0"
POLL_S = 0.2
MAX_CALLS = 32  # at once; a subscription is one for as long as it lasts
CODES = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


def serve(client: Client, listen: str = "127.0.0.1:9339", tls: str = "") -> tuple[grpc.Server, int]:
    """A started server for the controller of `client`, and its port (one that is free for 0).

    `tls`: cert=FILE,key=FILE[,ca=FILE]. RFabricError where the address is none or taken, or others
    than this machine reach it without TLS: there every caller shows a token of its own.
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise RFabricError(f"--listen {listen!r}: write HOST:PORT, for example 127.0.0.1:9339")
    if not is_loopback(host.strip("[]")):
        client = replace(client, token="")
        _check_exposed(client, listen, tls)
    server = grpc.server(
        ThreadPoolExecutor(MAX_CALLS, "gnmi"),
        maximum_concurrent_rpcs=MAX_CALLS,
        options=[("grpc.so_reuseport", 0)],
    )
    stubs.add_gNMIServicer_to_server(Service(client), server)
    try:
        bound = (
            server.add_secure_port(listen, _credentials(tls)) if tls
            else server.add_insecure_port(listen)
        )  # fmt: skip
    except RuntimeError:
        raise RFabricError(f"--listen {listen}: the address is taken, or not ours") from None
    server.start()
    return server, bound


def _check_exposed(client: Client, listen: str, tls: str) -> None:
    """Others than this machine reach it: what they show must be secret, and must be asked for."""
    if not tls:
        raise RFabricError(
            f"--listen {listen}: others than this machine reach it, and tokens would cross the "
            "network readably; add --tls cert=FILE,key=FILE, or listen on 127.0.0.1"
        )
    try:
        client.health()
    except RefusedError as error:
        if error.status == 401:
            return
        raise
    raise RFabricError(
        f"--listen {listen}: others than this machine reach it, and the controller at "
        f"{client.url} asks nobody for a token; start it with --tokens FILE"
    )


def _credentials(tls: str) -> grpc.ServerCredentials:
    read_tls(tls, "--tls")
    files = {name: Path(file).read_bytes() for name, file in tls_files(tls, "--tls").items()}
    ca = files.get("ca")
    return grpc.ssl_server_credentials([(files["key"], files["cert"])], ca, ca is not None)


class Service(stubs.gNMIServicer):
    """The four calls. A token in the call's metadata (`authorization: Bearer TOKEN`, or the
    `password` of gNMI's own) goes before the client's.
    """

    def __init__(self, client: Client):
        self._client = client

    def Capabilities(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Models, encodings and the version of gNMI."""
        models = [
            gnmi.ModelData(name=name, organization="", version=version)
            for name, version in MODELS.items()
        ]
        encodings = [gnmi.Encoding.Value(name) for name in ENCODINGS]
        return gnmi.CapabilityResponse(
            supported_models=models, supported_encodings=encodings, gNMI_version=VERSION
        )

    def Get(self, request: Any, context: grpc.ServicerContext) -> Any:
        """What is there now, a notification for each path."""

        def answer(client: Client) -> Any:
            kind = gnmi.GetRequest.DataType.Name(request.type)
            return gnmi.GetResponse(
                notification=[
                    Look(client, request.prefix, path, request.encoding, kind).notification()
                    for path in request.path or [gnmi.Path()]
                ]
            )

        return self._answered(context, answer)

    def Set(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Have these cross-connects: one commit for all that is asked."""

        def answer(client: Client) -> Any:
            order(client, request)
            done = [
                gnmi.UpdateResult(path=path, op=op)
                for op, paths in (
                    ("DELETE", request.delete),
                    ("REPLACE", [update.path for update in request.replace]),
                    ("UPDATE", [update.path for update in request.update]),
                )
                for path in paths
            ]
            return gnmi.SetResponse(prefix=request.prefix, response=done, timestamp=time.time_ns())

        return self._answered(context, answer)

    def Subscribe(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        """ONCE, POLL, or STREAM: on change, or every so many ns."""
        asked = next(requests, None)
        if asked is None or not asked.HasField("subscribe"):
            context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "the first message of Subscribe says to what"
            )
        told = self._answered(context, lambda client: _Subscription(client, asked.subscribe))
        mode = gnmi.SubscriptionList.Mode.Name(asked.subscribe.mode)
        yield from self._answered(context, lambda _: told.all(first=True))
        if mode == "POLL":
            for request in requests:
                if not request.HasField("poll"):
                    context.abort(grpc.StatusCode.INVALID_ARGUMENT, "expected a poll")
                yield from self._answered(context, lambda _: told.all())
        while mode == "STREAM" and context.is_active():
            time.sleep(POLL_S)
            yield from self._answered(context, lambda _: told.due(time.monotonic()))

    def _answered(self, context: grpc.ServicerContext, answer: Callable[[Client], Any]) -> Any:
        """`answer` of the caller's client, errors said as gRPC says them."""
        try:
            return answer(replace(self._client, token=_token(context) or self._client.token))
        except Refused as error:
            context.abort(error.code, str(error))
        except RefusedError as error:
            code = CODES.get(error.status, grpc.StatusCode.INVALID_ARGUMENT)
            context.abort(code, str(error))
        except RunError as error:
            context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except RFabricError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))


def _token(context: grpc.ServicerContext) -> str:
    shown = dict(context.invocation_metadata())
    kind, _, bearer = str(shown.get("authorization", "")).partition(" ")
    return bearer.strip() if kind.lower() == "bearer" else str(shown.get("password", ""))


class _Subscription:
    """What one caller is told, and when again."""

    def __init__(self, client: Client, asked: Any):
        self.looks = [
            Look(client, asked.prefix, one.path, asked.encoding) for one in asked.subscription
        ]
        self.every = [  # s; 0: on change
            max(one.sample_interval / 1e9, POLL_S) if one.mode == gnmi.SAMPLE else 0.0
            for one in asked.subscription
        ]
        self.only_changes = [
            not every or one.suppress_redundant
            for every, one in zip(self.every, asked.subscription, strict=True)
        ]
        if not self.looks:
            raise invalid("a subscription names at least one path")
        self.quiet_at_first = asked.updates_only
        self.told: list[Any] = [None] * len(self.looks)
        self.next = [time.monotonic() + every for every in self.every]

    def all(self, first: bool = False) -> list[Any]:
        """Everything, and that this was everything."""
        self.told = [look.value() for look in self.looks]
        said = [
            gnmi.SubscribeResponse(update=look.notification(value))
            for look, value in zip(self.looks, self.told, strict=True)
        ]
        done = gnmi.SubscribeResponse(sync_response=True)
        return [done] if first and self.quiet_at_first else [*said, done]

    def due(self, now: float) -> list[Any]:
        """What has changed, or is to be told again."""
        said = []
        for i, look in enumerate(self.looks):
            if now < self.next[i]:
                continue
            self.next[i] = now + self.every[i]
            value = look.value()
            if value != self.told[i] or not self.only_changes[i]:
                self.told[i] = value
                said.append(gnmi.SubscribeResponse(update=look.notification(value)))
        return said
