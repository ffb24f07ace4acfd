"""What nodes are by the words that people use for them, and by their names."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import RFabricError
from .model import KINDS, TIERS


@dataclass(frozen=True)
class Role:
    """What a file says of a node: `kind` and `tier` as of a Node, '' where it says nothing; pod and
    plane likewise None.
    """

    kind: str = ""
    tier: str = ""
    pod: int | None = None
    plane: int | None = None

    def __post_init__(self):
        for key, known in (("kind", KINDS), ("tier", TIERS)):
            if (said := getattr(self, key)) and said not in known:
                raise RFabricError(f"{key} {said!r} is none of {', '.join(known)}")


OURS = re.compile(r"h\d+")  # a host, as traces and Mininet call it
ROLES = (  # words by which people call what stands where, the first that fits
    (r"host|server|srv|gpu|nic|hca|compute|endpoint|hgx|dgx|client", Role("host", "host")),
    (r"superspine|core|dsw|ssw|t2|\w*spinerouter", Role("eps", "core")),
    (r"agg\w*|psw|spine|fabric|t1|dist\w*|\w*leafrouter", Role("eps", "aggregation")),
    (r"tor|\w*torrouter|leaf|edge|asw|access|lsw|t0|rack", Role("eps", "edge")),
    (r"switch|sw|router|bridge|eps", Role("eps")),
    (r"ocs", Role("ocs")),
)


def word_role(text: str) -> Role | None:
    """The role that words name, such as `ToR` or `leaf-switch`; None where they name none.

    Of several the last counts, as a GPU leaf is a leaf; `switch` leaves its tier to those before.
    """
    if (whole := _one_word(re.sub(r"[^a-z0-9]+", "", text.lower()))) is not None:
        return whole
    roles = [role for word in _words(text) if (role := _one_word(word)) is not None]
    if not roles or roles[-1].kind == "host" or roles[-1].tier:
        return roles[-1] if roles else None
    return next((role for role in roles[::-1] if role.tier and role.kind == "eps"), roles[-1])


def named_role(name: str, ends: int = 0) -> Role | None:
    """The role that the name of a node with so many cables says, such as `leaf12`; None where it
    says none. A domain behind it says nothing. With a single cable `leaf1-host2` and
    `host2-leaf1` are hosts alike, and `rack3-u7` is a place.
    """
    if OURS.fullmatch(name):
        return Role("host", "host")
    domain = re.fullmatch(r"([^.]+)(?:\.[\w-]+)*\.[a-z]+", name.lower())
    bare = re.sub(r"\d+", " ", domain[1] if domain else name)
    if ends == 1:
        roles = [_one_word(word) for word in _words(bare) if word not in ("rack", "racks")]
        return next((r for r in roles if r and r.kind == "host"), next(filter(None, roles), None))
    return word_role(bare)


def by_number(nodes: Mapping[str, Role]) -> tuple[dict[str, Role], list[str]]:
    """The nodes, with hosts that are all called h3, h1, ... by their numbers, as traces call them;
    and what is said where one is called as another will be.
    """
    hosts = [name for name, role in nodes.items() if role.kind == "host"]
    own = {name: parts for name in hosts if (parts := _own_number(name))}
    if len(own) == len(hosts):
        hosts.sort(key=own.__getitem__)
    moved = [(name, i) for i, name in enumerate(hosts, 1) if own.get(name, [i])[0] != i]
    said = [f"its hosts are numbered anew: {name} of the file is h{i}" for name, i in moved[:1]]
    return {name: nodes[name] for name in hosts} | dict(nodes), said


def _own_number(name: str) -> list[int]:
    """[7] of h7, [7, 2] of its second NIC h7:2; none of other names."""
    return list(map(int, re.findall(r"\d+", name))) if re.fullmatch(r"h\d+(:\d+)?", name) else []


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", text.lower()) if word]


def _one_word(word: str) -> Role | None:
    return next((role for known, role in ROLES if re.fullmatch(f"(?:{known})s?", word)), None)
