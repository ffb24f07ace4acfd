"""What REST requests may say: JSON in, checked nouns out; whatever else a request holds is an error
naming it.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .. import files
from ..errors import RFabricError
from ..fabric import Fabric
from ..optics import IN_FLIGHT, Circuits, Demand, parse_policy
from ..plugins import refuse_unlisted
from ..routing.schemes import Routing, Sent, one_way

Pair = tuple[str, str]
MAX_BODY = 64 << 20  # bytes: the demand of 1,024 racks is some 10 MB of JSON


@dataclass(frozen=True)
class Intent:
    """What will be sent, and the policy that shall choose the circuits for it, beside what others
    are `sending`.

    also: circuits to be weighed beside those of the policy.
    """

    policy: str
    demand: Demand
    now: float = 0.0
    upcoming: tuple[Demand, ...] = ()
    sending: tuple[Demand, ...] = ()
    also: tuple[Circuits, ...] = ()


@dataclass(frozen=True)
class PlanRequest:
    """A plan to be made: from an intent, or for explicit circuits (of the whole fabric, or of one
    `ocs` alone).
    """

    intent: Intent | None = None
    circuits: Circuits | None = None
    ocs: str = ""
    pairs: tuple[Pair, ...] | None = None
    time_dilation: float = 1.0
    in_flight: str = "hold"
    control: float | None = None  # s from request to programmed; None: what the switches take
    delay: float | None = None  # s that the OCSes take for it; None: what the fabric says


def parse_json(body: bytes) -> object:
    """The JSON of a request body."""
    try:
        return files.parse_json(body or b"{}", parse_int=int, parse_constant=_no_constant)
    except ValueError as error:
        raise RFabricError(f"the request body is not JSON: {error}") from None


def plan_request(data: object, fabric: Fabric) -> PlanRequest:
    """The body of `POST /plans`."""
    common = ("pairs", "time_dilation", "in_flight", "delay_s", "control_s")
    if isinstance(data, dict) and "circuits" in data:
        data = _object(data, "plan", ("circuits",), common)
        return PlanRequest(circuits=circuits(data["circuits"]), **_common(data, fabric))
    data = _object(
        data,
        "plan (with policy and demand, or with circuits)",
        ("policy", "demand"),
        (*common, "now_s", "upcoming", "sending", "also"),
    )
    refuse_unlisted(_text(data["policy"], "policy"))
    parse_policy(data["policy"], fabric)
    now = _number(data.get("now_s", 0.0), "now_s")
    others = (_demands(data, name, fabric) for name in ("upcoming", "sending"))
    also = tuple(circuits(some).check(fabric) for some in _list(data.get("also", []), "also"))
    intent = Intent(data["policy"], demand(data["demand"], fabric, "demand"), now, *others, also)
    return PlanRequest(intent=intent, **_common(data, fabric))


def ocs_request(data: object, ocs: str, fabric: Fabric) -> PlanRequest:
    """The body of `PUT /ocs/NAME/circuits`."""
    data = _object(
        data,
        "circuits of one OCS",
        ("circuits",),
        ("pairs", "time_dilation", "in_flight", "delay_s", "control_s"),
    )
    return PlanRequest(circuits=circuits(data["circuits"]), ocs=ocs, **_common(data, fabric))


def pairs_request(data: object, fabric: Fabric) -> tuple[tuple[Pair, ...], Routing]:
    """The body of `PUT /pairs`: `pairs`, and the `routing` scheme; `placed` needs `bytes`, a row a
    kind, a number a pair.
    """
    data = _object(data, "pairs", ("pairs",), ("routing", "bytes"))
    found, scheme = pairs(data["pairs"], fabric), _text(data.get("routing", "ecmp"), "routing")
    refuse_unlisted(scheme)
    if one_way(scheme) != "placed":
        return found, Routing(scheme)
    kinds = [
        [_number(x, "bytes") for x in _list(row, "bytes")]
        for row in _list(data.get("bytes"), "bytes")
    ]
    if not kinds or [len(row) for row in kinds] != [len(found)] * len(kinds):
        raise RFabricError(
            f"bytes must be rows of {len(found)} numbers, one a pair, for routing placed"
        )
    ends = ([fabric.host_index[pair[end]] for pair in found] for end in (0, 1))
    return found, Routing(scheme, Sent(*ends, kinds))


def pairs_json(chosen: Sequence[Pair], routing: Routing, fabric: Fabric) -> dict:
    """The inverse of `pairs_request`; pairs of which `routing` knows nothing send 0 bytes."""
    body = {"pairs": [list(pair) for pair in chosen], "routing": routing.scheme}
    if routing.sent is None:
        return body
    sent, index = routing.sent, fabric.host_index
    place = {code: i for i, code in enumerate(sent.codes.tolist())}
    columns = [place.get(index[src] << 32 | index[dst]) for src, dst in chosen]
    rows = sent.bytes.tolist()
    return body | {"bytes": [[0.0 if i is None else row[i] for i in columns] for row in rows]}


def nothing(data: object) -> None:
    """The body of a request that takes none."""
    _object(data, "this request", (), ())


def _demands(data: Mapping, name: str, fabric: Fabric) -> tuple[Demand, ...]:
    return tuple(
        demand(d, fabric, f"{name}[{i}]") for i, d in enumerate(_list(data.get(name, []), name))
    )


def demand(data: object, fabric: Fabric, where: str) -> Demand:
    """`{racks, bytes, window_s, phase, floor_s, lead_s, ahead_s, follows}`: bytes as rows by rack,
    in the fabric's order; window_s
    null: unknown; follows a list, empty: nothing.
    """
    data = _object(
        data,
        where,
        ("racks", "bytes"),
        ("window_s", "phase", "floor_s", "lead_s", "ahead_s", "follows"),
    )
    racks = tuple(_list(data["racks"], f"{where}.racks"))
    if racks != fabric.racks:
        raise RFabricError(
            f"{where}.racks must be the fabric's racks in order: {', '.join(fabric.racks[:4])}, ..."
        )
    rows = _list(data["bytes"], f"{where}.bytes")
    numbers = [[_number(x, f"{where}.bytes") for x in _list(row, f"{where}.bytes")] for row in rows]
    if [len(row) for row in numbers] != [len(racks)] * len(racks):
        raise RFabricError(f"{where}.bytes must be {len(racks)} rows of {len(racks)} numbers")
    window = data.get("window_s")
    seconds = math.inf if window is None else _number(window, f"{where}.window_s")
    times = (
        _number(data.get(name, 0.0), f"{where}.{name}") for name in ("floor_s", "lead_s", "ahead_s")
    )
    follows = tuple(
        _places(k, f"{where}.follows") for k in _list(data.get("follows", [1]), f"{where}.follows")
    )
    return Demand(
        racks, numbers, seconds, _text(data.get("phase", ""), f"{where}.phase"), *times, follows
    )


def demand_json(wanted: Demand) -> dict:
    """The inverse of `demand`."""
    window = None if math.isinf(wanted.window) else wanted.window
    return {
        "racks": list(wanted.racks),
        "bytes": wanted.bytes.tolist(),
        "window_s": window,
        "phase": wanted.phase,
        "floor_s": wanted.floor,
        "lead_s": wanted.lead,
        "ahead_s": wanted.ahead,
        "follows": list(wanted.follows),
    }


def circuits(data: object) -> Circuits:
    """`["a1:1-a1:3", ...]`; a port in two circuits is an error."""
    return Circuits.from_json(_text(c, "circuits") for c in _list(data, "circuits"))


def pairs(data: object, fabric: Fabric) -> tuple[Pair, ...]:
    """`[["h1", "h5"], ...]`: ordered host pairs."""
    found = []
    for item in _list(data, "pairs"):
        pair = tuple(_list(item, "a pair"))
        if len(pair) != 2 or pair[0] == pair[1]:
            raise RFabricError(f"pair {item!r} must be two different hosts, source and destination")
        for host in pair:
            if not isinstance(host, str) or host not in fabric.rack_of:
                raise RFabricError(
                    f"pair {item!r}: {host!r} is not a host of {fabric.name}; there are h1 to "
                    f"h{len(fabric.hosts)}"
                )
        found.append(pair)
    return tuple(found)


def _common(data: Mapping, fabric: Fabric) -> dict:
    dilation = _number(data.get("time_dilation", 1.0), "time_dilation")
    if dilation < 1:
        raise RFabricError(
            f"time_dilation {dilation:g} must be 1 or more: 2 runs the emulated clock at half speed"
        )
    in_flight = data.get("in_flight", "hold")
    if in_flight not in IN_FLIGHT:
        raise RFabricError(f"in_flight {in_flight!r} is not one of {', '.join(IN_FLIGHT)}")
    chosen = pairs(data["pairs"], fabric) if data.get("pairs") is not None else None
    delay = None if data.get("delay_s") is None else _number(data["delay_s"], "delay_s")
    control = None if data.get("control_s") is None else _number(data["control_s"], "control_s")
    return {
        "pairs": chosen,
        "time_dilation": dilation,
        "in_flight": in_flight,
        "delay": delay,
        "control": control,
    }


def _object(data: object, what: str, required: Sequence[str], optional: Sequence[str]) -> dict:
    if not isinstance(data, dict):
        raise RFabricError(f"{what}: expected a JSON object, got {_kind(data)}")
    unknown = sorted(set(data) - {*required, *optional})
    if unknown:
        raise RFabricError(
            f"{what}: unknown key {unknown[0]!r}; it takes "
            f"{', '.join((*required, *optional)) or 'none'}"
        )
    missing = [key for key in required if key not in data]
    if missing:
        raise RFabricError(f"{what}: {missing[0]!r} is missing")
    return data


def _list(data: object, what: str) -> list:
    if not isinstance(data, list):
        raise RFabricError(f"{what}: expected a JSON array, got {_kind(data)}")
    return data


def _text(data: object, what: str) -> str:
    if not isinstance(data, str):
        raise RFabricError(f"{what}: expected text, got {_kind(data)}")
    return data


def _number(data: object, what: str) -> float:
    # compared, not converted: no float holds a whole number of 400 digits
    number = isinstance(data, (int, float)) and not isinstance(data, bool)
    if not (number and 0 <= data <= sys.float_info.max):
        raise RFabricError(f"{what}: {data!r} must be a number, finite and not negative")
    return float(data)


def _places(data: object, what: str) -> int:
    number = _number(data, what)
    if not number.is_integer():
        raise RFabricError(f"{what}: {data!r} must be a whole number of places")
    return int(number)


def _kind(data: object) -> str:
    return "null" if data is None else type(data).__name__


def _no_constant(name: str) -> float:
    raise RFabricError(
        f"the request body holds {name}; JSON has finite numbers only, write "
        "null for an unknown window"
    )
