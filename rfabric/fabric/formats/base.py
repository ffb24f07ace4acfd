"""What a topology format is: a name, how its files are told, a reader or a writer or both; and what
several of them read with.

RFabricError for what a file should not say, in words that follow its name.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import RFabricError
from ...files import NOTHING, kind_of, parse_json, parse_yaml, read_text
from ...units import BITS_PER_BYTE, parse_rate, parse_time
from ..model import KINDS, TIERS, Fabric
from ..network import Network
from ..roles import Role, word_role

MOST_TEXT = 1 << 28  # characters of a topology file
SHOWN_TEXT = 40  # characters of a value in a message
PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
# the unit of a number that has none, by the end of its key in small letters and digits
RATE_ENDS = {
    f"{prefix}{unit}": factor * bits
    for prefix, factor in PREFIXES.items()
    for unit, bits in (("bps", 1), ("bits", 1), ("bit", 1), ("bs", 1), ("bytesps", BITS_PER_BYTE))
}
DELAY_ENDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "ps": 1e-12}
RATE_KEYS = ("rate", "bandwidth", "capacity", "speed", "bw")
DELAY_KEYS = ("delay", "latency")
PLACE = re.compile(  # what may stand before one of these
    rf"^(?:link|port|interface|intf|line|nic|cable)(?={'|'.join((*RATE_KEYS, *DELAY_KEYS))})"
)
COPY_KEYS = ("count", "multiplicity", "numlinks", "numcables", "quantity", "qty")
MOST_COPIES = 1024
ROLE_KEYS = ("tier", "role", "type", "node_type", "device_type", "kind", "layer", "class", "group")


@dataclass(frozen=True)
class Reading:
    """What a user says of a file that does not say it: units of bare numbers, such as `Gbit/s` and
    `us`, and the `tiers` of a table's columns, lowest first.
    """

    rate_unit: str = ""
    delay_unit: str = ""
    tiers: str = ""

    def rate(self, value: Any, name: str, end: float | None = None) -> float:
        """bit/s; `end`: the unit that the key said of a bare number."""
        return _quantity(value, name, parse_rate, self.rate_unit, end, "rate_unit=Gbit/s")

    def delay(self, value: Any, name: str, end: float | None = None) -> float:
        """The same in s."""
        return _quantity(value, name, parse_time, self.delay_unit, end, "delay_unit=us")


@dataclass(frozen=True)
class TopologyFormat:
    """One file format of networks.

    about: one line, which `rfabric list formats` prints. suffixes: of its files. `sniff` says of
    the beginning of a file's text whether it is of this format. read: the Network of a file; None:
    only written. write: a Fabric as text; None: only read. folders: it also reads a folder of such
    files. lines: rows of text, which may be cut in mid-number.

    A reader may raise RFabricError, OSError, ValueError, and what its library does of bad files:
    `read_network` puts the path before.
    """

    name: str
    about: str
    suffixes: tuple[str, ...]
    sniff: Callable[[str], bool]
    read: Callable[[Path, Reading], Network] | None = None
    write: Callable[[Fabric], str] | None = None
    folders: bool = False
    lines: bool = False


def never(text: str) -> bool:
    """The sniff of a format that is only written."""
    return False


def text_of(path: Path) -> str:
    """All text of a file, unpacked."""
    text = read_text(path, MOST_TEXT)
    if len(text) > MOST_TEXT:
        raise RFabricError(f"more than {MOST_TEXT:,} characters; this is no topology")
    return text


def stem_of(path: Path) -> str:
    """The name of a file without its suffixes: `lab` of `lab.clab.yml.gz`."""
    return path.name.partition(".")[0] or path.name


def mapping_of(path: Path) -> dict:
    """The mapping in a JSON or YAML file; RFabricError for anything else."""
    text = text_of(path)
    as_json = kind_of(path) == ".json" or text.lstrip().startswith("{")
    return mapping(parse_json(text) if as_json else parse_yaml(text), "the file")


def mapping(value: Any, what: str) -> dict:
    """The value where it is a mapping."""
    if not isinstance(value, dict):
        raise RFabricError(f"{what}: a mapping is expected, not {_short(value)}")
    return value


def items(value: Any, what: str) -> list:
    """The value where it is a list."""
    if not isinstance(value, list):
        raise RFabricError(f"{what}: a list is expected, not {_short(value)}")
    return value


def name_of(value: Any, what: str) -> str:
    """A name: text, or a number as people number nodes."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)) or not str(value):
        raise RFabricError(f"{what}: a name is expected, not {_short(value)}")
    return str(value)


def xml_of(text: str):
    """The root element of an XML text; one that declares entities is refused, and no DTD that a
    <!DOCTYPE> names is fetched.
    """
    try:
        from defusedxml import DefusedXmlException
        from defusedxml.ElementTree import ParseError, fromstring
    except ImportError as error:
        raise RFabricError("XML is read by defusedxml: pip install defusedxml") from error
    try:
        return fromstring(text.lstrip())  # a declaration must begin it
    except DefusedXmlException as error:
        raise RFabricError(
            "declares entities, which can stand for gigabytes and are not read; remove them from "
            "its <!DOCTYPE>"
        ) from error
    except ParseError as error:
        raise RFabricError(f"is no whole XML: {error}") from error


def role_of(attributes: Mapping[str, Any]) -> Role:
    """What the attributes of a node say it is: our own `kind` and `tier`, or the words people
    use.
    """
    said = {str(key).lower(): value for key, value in attributes.items()}
    place = {key: _place(said.get(key)) for key in ("pod", "plane")}
    if said.get("kind") in KINDS and said.get("tier") in TIERS:
        return Role(said["kind"], said["tier"], **place)
    for key in ROLE_KEYS:
        if (role := word_role(str(said.get(key, "")))) is not None:
            return Role(role.kind, role.tier, **place)
    return Role(**place)


def rate_of(attributes: Mapping[str, Any], reading: Reading, what: str) -> float | None:
    """bit/s of a cable from its attributes; None where they name none."""
    if (named := _named(attributes, RATE_KEYS, RATE_ENDS)) is None:
        return None
    key, value, unit = named
    rate = reading.rate(value, f"{what} {key}", unit)
    if not rate:
        raise RFabricError(f"{what} {key}: {value!r} must be above 0")
    return rate


def delay_of(attributes: Mapping[str, Any], reading: Reading, what: str) -> float | None:
    """s of a cable from its attributes; None where they name none."""
    if (named := _named(attributes, DELAY_KEYS, DELAY_ENDS)) is None:
        return None
    key, value, unit = named
    return reading.delay(value, f"{what} {key}", unit)


def copies_of(attributes: Mapping[str, Any], what: str) -> int:
    """How many cables an edge or a row is, as its `count` or `multiplicity` says; else 1."""
    for key, value in attributes.items():
        if is_count(key) and _filled(value):
            text = str(value).removesuffix(".0")
            if not text.isdecimal() or not 1 <= int(text[:9]) <= MOST_COPIES:
                raise RFabricError(
                    f"{what} {key}: {_short(value)} is no number of cables, 1 to {MOST_COPIES:,}"
                )
            return int(text)
    return 1


def is_count(key: str) -> bool:
    """Whether an attribute of this name says how many cables an edge or a row is."""
    return re.sub(r"[^a-z]", "", str(key).lower()) in COPY_KEYS


def several(copies: Iterable[int], what: str) -> list[str]:
    """What is said of edges or rows that are more than one cable each."""
    more = [count for count in copies if count > 1]
    cables = f"{sum(more):,} cables, each of the rate that stands there"
    return [f"{len(more):,} {what} stand for {cables}"] if more else []


def is_quantity(key: str) -> bool:
    """Whether an attribute of this name is a rate or a delay."""
    said = {key: "1"}
    return _bare_key(key) in ("speedraw", "speedunits") or any(
        _named(said, *known) for known in ((RATE_KEYS, RATE_ENDS), (DELAY_KEYS, DELAY_ENDS))
    )


def no_circuits(fabric: Fabric, form: str) -> None:
    """Refuse a fabric with OCSes, where a format knows none."""
    if fabric.ocses:
        raise RFabricError(
            f"{fabric.name} has {len(fabric.ocses):,} OCSes, and {form} knows packet switches "
            "alone: as one of them an OCS would carry what no circuit does; write GraphML, "
            "node-link JSON or containerlab"
        )


def joined_lines(lines: Iterable[str]) -> str:
    """Lines as text."""
    return "".join(f"{line}\n" for line in lines)


def _place(value: Any) -> int | None:
    """A pod or a plane, where it is a number; people also write names, which say nothing here."""
    text = str(value).removesuffix(".0")
    return int(text) if re.fullmatch(r"-1|\d{1,6}", text) else None


def _named(
    attributes: Mapping[str, Any], keys: tuple[str, ...], ends: Mapping[str, float]
) -> tuple[str, Any, float | None] | None:
    """(key, value, unit of a bare number) of the first attribute that is one of `keys`, with or
    without a unit at its end.
    """
    lower = {str(key).lower(): key for key in attributes}
    if keys is RATE_KEYS and (zoo := _zoo_speed(attributes, lower)):
        return zoo
    filled = [key for key in attributes if _filled(attributes[key])]
    bare = {_bare_key(key): key for key in sorted(filled, key=_says_place, reverse=True)}
    for key in keys:
        for end, unit in (*ends.items(), ("", None)):
            if (own := bare.get(f"{key}{end}")) is not None:
                return str(own), attributes[own], unit
    return None


def spelled_bytes(key: str) -> str:
    """A key whose unit is of bytes, such as `bw_GBps`, `bw_GBs` or `Rate (GB/s)`, so that it is
    told from one of bits in small letters too.
    """
    return re.sub(r"([kKMGT]?)B(?:p|[/_ ])?s(?=\W*$)", r"\1bytesps", key)


def _bare_key(key: Any) -> str:
    """`link_bandwidth_gbps`, `bandwidthGbps` and `Bandwidth (Gbps)` alike as bandwidthgbps."""
    return PLACE.sub("", _letters(key))


def _says_place(key: Any) -> bool:
    """Whether a key says where its quantity is, such as `port_speed`; `speed` counts before it."""
    return PLACE.match(_letters(key)) is not None


def _letters(key: Any) -> str:
    lower = re.sub("[\u00b5\u03bc]", "u", spelled_bytes(str(key)).lower())
    return re.sub(r"[^a-z0-9]", "", lower)


def _zoo_speed(
    attributes: Mapping[str, Any], lower: Mapping[str, str]
) -> tuple[str, Any, float | None] | None:
    """The Topology Zoo's `LinkSpeedRaw` in bit/s, or its `LinkSpeed` and `LinkSpeedUnits`."""
    raw, speed, unit = (lower.get(f"linkspeed{end}") for end in ("raw", "", "units"))
    if raw and _filled(attributes[raw]):
        return raw, attributes[raw], 1.0
    if speed and unit and _filled(attributes[speed]):
        return speed, f"{attributes[speed]}{attributes[unit]}", None
    return None


def _filled(value: Any) -> bool:
    return value is not None and str(value).strip().lower() not in NOTHING


def _quantity(value: Any, name: str, parse, unit: str, end: float | None, way_out: str) -> float:
    """A value with its unit; a bare number takes that of its key, else the one the user said."""
    text = _short(value) if isinstance(value, (dict, list, bool)) else str(value).strip()
    bare = re.fullmatch(r"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?", text)
    if not bare:
        return parse(text, name)
    if end is not None:
        return parse(float(parse(text, name, bare=True)) * end, name)
    if not unit and parse(text, name, bare=True):
        whole = f"{text}{way_out.partition('=')[2]}"
        raise RFabricError(
            f"{name} {text} has no unit; write {whole} (or as it is meant), or say that of all, "
            f"such as {way_out}"
        )
    return parse(f"{text}{unit}", name)


def _short(value: Any) -> str:
    """A value in a message: what it is, where it may hold others."""
    if isinstance(value, (dict, list, tuple)):
        return f"a {'mapping' if isinstance(value, dict) else 'list'}"
    return repr(value)[:SHOWN_TEXT]
