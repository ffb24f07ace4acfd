"""What REST requests may say: JSON in, checked nouns out; whatever else a request holds is an error
naming it: RFabricError, or TooLargeError.

Every number, list and text from outside has a limit, in the tables below; openapi.py tells them to
who asks.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from .. import files
from ..errors import RFabricError
from ..fabric import Fabric, Pair
from ..optics import IN_FLIGHT, Circuit, Circuits, Demand, parse_policy
from ..plugins import refuse_unlisted
from ..routing.schemes import Routing, Sent, one_way

MAX_BODY = 64 << 20  # bytes: the demand of 1,024 racks is some 10 MB of JSON
_WHOLE = partial(files.whole, most=4000)  # digits; the limits of keys are below
MAX_DEPTH = 16  # lists in objects in lists: the deepest request that means something has 6
MAX_SHOWN = 200  # characters of a wrong value that its error repeats
# s that a commit may keep the switches, and everyone who waits for his turn
MAX_HOLD_S = 3600.0


@dataclass(frozen=True)
class Limit:
    """What a number may be, both ends included; `most` is also the most items of a list, or
    characters of a text.
    """

    most: float
    least: float = 0.0
    unit: str = ""


# Far above what anything here is run with, far below where sums and products stop being finite.
SECONDS, BYTES = Limit(1e15, unit="s"), Limit(1e18, unit="bytes")
LIMITS: Mapping[str, Limit] = {
    "time_dilation": Limit(1e6, 1.0),
    "delay_s": Limit(MAX_HOLD_S, unit="s"),
    "control_s": Limit(MAX_HOLD_S, unit="s"),
    **dict.fromkeys(("now_s", "window_s", "floor_s", "lead_s", "ahead_s"), SECONDS),
    "bytes": BYTES,
    "follows": Limit(1e6, 1.0, "places"),
}
ITEMS: Mapping[str, Limit] = {
    "upcoming": Limit(10_000, unit="demands"),
    "sending": Limit(10_000, unit="demands"),
    "also": Limit(256, unit="lists of circuits"),
    "follows": Limit(10_000, unit="places"),
    "kinds": Limit(10_000, unit="rows"),
}
LETTERS: Mapping[str, Limit] = {
    "policy": Limit(1000),
    "phase": Limit(200),
    "routing": Limit(1000),
    "circuit": Limit(40),
    "patch": Limit(200),
}

# The keys of each object: those that must be there, those that may.
COMMON_KEYS = ("pairs", "time_dilation", "in_flight", "delay_s", "control_s")
CIRCUITS_KEYS = ("circuits",), COMMON_KEYS
INTENT_KEYS = ("policy", "demand"), (*COMMON_KEYS, "now_s", "upcoming", "sending", "also")
DEMAND_KEYS = ("racks", "bytes"), ("window_s", "phase", "floor_s", "lead_s", "ahead_s", "follows")
PAIRS_KEYS = ("pairs",), ("routing", "bytes")


class TooLargeError(RFabricError):
    """A request body above the limit (HTTP 413)."""


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
        data = files.parse_json(body or b"{}", parse_int=_WHOLE, parse_constant=_no_constant)
    except ValueError as error:
        raise RFabricError(f"the request body is not JSON: {error}") from None
    level = [data]
    for _ in range(MAX_DEPTH + 1):
        if not level:
            return data
        inner = (value for outer in level for value in _values(outer))
        level = [value for value in inner if isinstance(value, list | dict)]
    raise _too_deep()


def body_size(text: str) -> int:
    """Bytes that a Content-Length says will come."""
    if not text.isascii() or not text.isdigit():
        raise RFabricError(f"Content-Length: {short(text)} must be a whole number of bytes")
    if len(text) > 18 or int(text) > MAX_BODY:
        raise TooLargeError(f"Content-Length: {short(text)} bytes; the limit is {MAX_BODY}")
    return int(text)


def _values(data: object) -> list:
    return list(data.values()) if isinstance(data, dict) else data if isinstance(data, list) else []


def _too_deep() -> RFabricError:
    return RFabricError(
        f"the request body is nested deeper than {MAX_DEPTH} lists and objects, the limit"
    )


def plan_request(data: object, fabric: Fabric) -> PlanRequest:
    """The body of `POST /plans`."""
    if isinstance(data, dict) and "circuits" in data:
        data = an_object(data, "plan", *CIRCUITS_KEYS)
        return PlanRequest(circuits=circuits(data["circuits"], fabric), **_common(data, fabric))
    data = an_object(data, "plan (with policy and demand, or with circuits)", *INTENT_KEYS)
    _named(data["policy"], "policy")
    parse_policy(data["policy"], fabric)
    now = _number(data.get("now_s", 0.0), "now_s")
    others = (_demands(data, name, fabric) for name in ("upcoming", "sending"))
    listed = a_list(data.get("also", []), "also", ITEMS["also"])
    also = tuple(circuits(some, fabric).check(fabric) for some in listed)
    intent = Intent(data["policy"], demand(data["demand"], fabric, "demand"), now, *others, also)
    return PlanRequest(intent=intent, **_common(data, fabric))


def ocs_request(data: object, ocs: str, fabric: Fabric) -> PlanRequest:
    """The body of `PUT /ocs/NAME/circuits`."""
    data = an_object(data, "circuits of one OCS", *CIRCUITS_KEYS)
    chosen = circuits(data["circuits"], fabric)
    return PlanRequest(circuits=chosen, ocs=ocs, **_common(data, fabric))


def pairs_request(data: object, fabric: Fabric) -> tuple[tuple[Pair, ...], Routing]:
    """The body of `PUT /pairs`: `pairs`, and the `routing` scheme; `placed` needs `bytes`, a row a
    kind, a number a pair.
    """
    data = an_object(data, "pairs", *PAIRS_KEYS)
    asked = pairs(data["pairs"], fabric)
    scheme = _named(data.get("routing", "ecmp"), "routing")
    if "," in scheme:  # what is looked up must be what was looked for among the listed files
        raise RFabricError(f"routing {short(scheme)}: it takes no settings, a file no comma")
    if one_way(scheme) != "placed":
        return asked, Routing(scheme)
    kinds = _numbers(a_list(data.get("bytes"), "bytes", ITEMS["kinds"]), "bytes")
    if (asked and not kinds) or [len(row) for row in kinds] != [len(asked)] * len(kinds):
        raise RFabricError(
            f"bytes must be rows of {len(asked)} numbers, one a pair, for routing placed"
        )
    ends = ([fabric.host_index[pair[end]] for pair in asked] for end in (0, 1))
    return asked, Routing(scheme, Sent(*ends, kinds))


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
    an_object(data, "this request", (), ())


def _named(data: object, what: str) -> str:
    """The name of a policy or routing; RFabricError for a file this controller may not run."""
    text = a_text(data, what, LETTERS[what])
    if not text.isprintable():
        raise RFabricError(f"{what}: {short(text)} holds a character that cannot be printed")
    try:
        refuse_unlisted(text)
    except (OSError, RuntimeError) as error:  # a path too long, a circle of links
        raise RFabricError(f"{what}: {short(text)}: {error}") from None
    return text


def _demands(data: Mapping, name: str, fabric: Fabric) -> tuple[Demand, ...]:
    return tuple(
        demand(d, fabric, f"{name}[{i}]")
        for i, d in enumerate(a_list(data.get(name, []), name, ITEMS[name]))
    )


def demand(data: object, fabric: Fabric, where: str) -> Demand:
    """`{racks, bytes, window_s, phase, floor_s, lead_s, ahead_s, follows}`: bytes as rows by rack,
    in the fabric's order; window_s null: unknown; follows a list, empty: nothing.
    """
    data = an_object(data, where, *DEMAND_KEYS)
    racks = tuple(a_list(data["racks"], f"{where}.racks"))
    if racks != fabric.racks:
        raise RFabricError(
            f"{where}.racks must be the fabric's racks in order: {', '.join(fabric.racks[:4])}, ..."
        )
    numbers = _numbers(a_list(data["bytes"], f"{where}.bytes"), f"{where}.bytes")
    if [len(row) for row in numbers] != [len(racks)] * len(racks):
        raise RFabricError(f"{where}.bytes must be {len(racks)} rows of {len(racks)} numbers")
    window = data.get("window_s")
    seconds = math.inf if window is None else _number(window, f"{where}.window_s")
    times = (
        _number(data.get(name, 0.0), f"{where}.{name}") for name in ("floor_s", "lead_s", "ahead_s")
    )
    listed = a_list(data.get("follows", [1]), f"{where}.follows", ITEMS["follows"])
    follows = tuple(_places(k, f"{where}.follows") for k in listed)
    phase = a_text(data.get("phase", ""), f"{where}.phase", LETTERS["phase"])
    return Demand(racks, numbers, seconds, phase, *times, follows)


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


def circuits(data: object, fabric: Fabric) -> Circuits:
    """`["a1:1-a1:3", ...]`; a port in two circuits is an error."""
    ports = sum(len(fabric.ports[node.name]) for node in fabric.ocses)
    most = Limit(ports // 2, unit=f"circuits, two OCS ports of {fabric.name} each")
    wanted: set[Circuit] = set()
    for text in a_list(data, "circuits", most):
        circuit = Circuit.parse(a_text(text, "circuits", LETTERS["circuit"]))
        if circuit in wanted:
            raise RFabricError(f"circuit {circuit} is listed twice")
        wanted.add(circuit)
    return Circuits(frozenset(wanted))


def pairs(data: object, fabric: Fabric) -> tuple[Pair, ...]:
    """`[["h1", "h5"], ...]`: ordered host pairs."""
    hosts = len(fabric.hosts)
    listed = a_list(data, "pairs", Limit(hosts * hosts, unit=f"pairs of {hosts} hosts"))
    return tuple(_pair(item, fabric) for item in listed)


def _pair(data: object, fabric: Fabric) -> Pair:
    pair = tuple(a_list(data, "a pair"))
    if len(pair) != 2 or pair[0] == pair[1]:
        raise RFabricError(
            f"pair {short(data)} must be two different hosts, source and destination"
        )
    for host in pair:
        if not isinstance(host, str) or host not in fabric.rack_of:
            raise RFabricError(
                f"pair {short(data)}: {short(host)} is not a host of {fabric.name}; there are "
                f"h1 to h{len(fabric.hosts)}"
            )
    return pair


def _common(data: Mapping, fabric: Fabric) -> dict:
    dilation = _number(data.get("time_dilation", 1.0), "time_dilation")
    in_flight = data.get("in_flight", "hold")
    if in_flight not in IN_FLIGHT:
        raise RFabricError(f"in_flight {short(in_flight)} is not one of {', '.join(IN_FLIGHT)}")
    chosen = pairs(data["pairs"], fabric) if data.get("pairs") is not None else None
    delay = None if data.get("delay_s") is None else _number(data["delay_s"], "delay_s")
    control = None if data.get("control_s") is None else _number(data["control_s"], "control_s")
    held = dilation * ((fabric.reconfig_delay if delay is None else delay) + (control or 0.0))
    if held > MAX_HOLD_S:
        raise RFabricError(
            f"time_dilation {dilation:g} makes the OCS delay and control_s {held:g} s long; the "
            f"limit is {MAX_HOLD_S:g} s, as all other orders wait meanwhile"
        )
    return {
        "pairs": chosen,
        "time_dilation": dilation,
        "in_flight": in_flight,
        "delay": delay,
        "control": control,
    }


def an_object(data: object, what: str, required: Sequence[str], optional: Sequence[str]) -> dict:
    """`data`, an object that has the required keys and no unknown ones."""
    if not isinstance(data, dict):
        raise RFabricError(f"{what}: expected a JSON object, got {_kind(data)}")
    unknown = sorted(set(data) - {*required, *optional})
    if unknown:
        raise RFabricError(
            f"{what}: unknown key {short(unknown[0])}; it takes "
            f"{', '.join((*required, *optional)) or 'none'}"
        )
    missing = [key for key in required if key not in data]
    if missing:
        raise RFabricError(f"{what}: {missing[0]!r} is missing")
    return data


def a_list(data: object, what: str, limit: Limit | None = None) -> list:
    """`data`, an array of at most `limit.most` items."""
    if not isinstance(data, list):
        raise RFabricError(f"{what}: expected a JSON array, got {_kind(data)}")
    if limit and len(data) > limit.most:
        raise RFabricError(f"{what}: {len(data)} items; the limit is {limit.most:g} {limit.unit}")
    return data


def a_text(data: object, what: str, limit: Limit) -> str:
    """`data`, text of at most `limit.most` characters."""
    if not isinstance(data, str):
        raise RFabricError(f"{what}: expected text, got {_kind(data)}")
    if len(data) > limit.most:
        raise RFabricError(
            f"{what}: {short(data)} has {len(data)} characters; the limit is {limit.most:g}"
        )
    return data


def _number(data: object, what: str) -> float:
    """A number within the limits that LIMITS has for the last word of `what`."""
    limit = LIMITS[what.rpartition(".")[2]]
    # compared, not converted: no float holds a whole number of 400 digits
    number = isinstance(data, (int, float)) and not isinstance(data, bool)
    if not (number and 0 <= data < math.inf):
        raise RFabricError(f"{what}: {short(data)} must be a number, finite and not negative")
    if data > limit.most:
        raise RFabricError(
            f"{what}: {short(data)} is above the limit, {limit.most:g} {limit.unit}".rstrip()
        )
    if what == "time_dilation" and data < limit.least:
        raise RFabricError(
            f"time_dilation {data:g} must be 1 or more: 2 runs the emulated clock at half speed"
        )
    return float(data)


def _numbers(rows: Iterable, what: str) -> list[list[float]]:
    return [[_number(x, what) for x in a_list(row, what)] for row in rows]


def _places(data: object, what: str) -> int:
    number = _number(data, what)
    if not number.is_integer():
        raise RFabricError(f"{what}: {data!r} must be a whole number of places")
    return int(number)


def short(data: object) -> str:
    """A value as its error shows it: not more of it than one wants to read."""
    try:
        text = repr(data)
    except ValueError:  # Python does not spell whole numbers of more than 4,300 digits
        return "a number of thousands of digits"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}... ({len(text)} characters)"


def _kind(data: object) -> str:
    return "null" if data is None else type(data).__name__


def _no_constant(name: str) -> float:
    raise RFabricError(
        f"the request body holds {name}; JSON has finite numbers only, write "
        "null for an unknown window"
    )
