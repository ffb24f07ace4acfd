"""How a cable gets its rate, and flows their shares of it: the lines that `tc` reads.

    HTB on every interface     one class has the cable's rate; below it a class for each turn
                               borrows it, a packet at a time: max-min fairness among flows
    a filter in BPF            tells the turn of a packet by its addresses and the sender's port;
                               acknowledgements go first

A turn must be one packet. What TCP hands on as several in one (GSO) makes turns longer for some,
and a class that sent more than its quantum in a turn owes it for as many turns: acknowledgements
that have to share such a class later held their flows at a third of their rate. Hosts therefore
have `gso_max_segs 1` (see `network`).

Every class costs, for the kernel keeps those of all interfaces in one list, which it searches from
end to end for each that comes or goes (`flow_indr_dev_setup_offload`): twice as many take four
times as long. So cables have as few as they can do with, and ports of OCSes mostly none (`paced`).
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import NamedTuple, TypeVar

import numpy as np

from ..fabric import Fabric, Pair, Port
from ..routing.rows import offsets_of, spread
from ..trace.packets import HEADERS, MTU, PAYLOAD
from ..units import bytes_in

ETHERNET = 14  # bytes of header on top of the IP packet
# Bytes of a full packet's frame for each of its payload. HTB counts payload alone: with what
# shorter packets have in headers, 600 flows of 1,000 bytes each took 4 % longer.
OVERHEAD = (MTU + ETHERNET) / PAYLOAD
STALL_S = 0.01  # s for which a busy host may hold a packet back
# What an HTB bucket holds at most. It makes up for stalls, so it holds what is sent in STALL_S; but
# a full one goes out at once, and flows end so much too early. Two packets are 1.9 packets early
# where the cable between racks is slow, 3 to 8 % of flows of 5 to 30 packets; now 0.4 to 4 %.
MOST_BURST = 2 * PAYLOAD
# Classes a port serves in turn, and what the number of the receiver counts in them: odd, so that
# the flows of one host have a class each. A number next to a power of two will not do: where each
# host sends to the one so many further on, as in rings over rails, numbers count one more than it.
# With 31 of 256 and 15 of 128 all flows of 32 and 64 hosts then shared a class with more than they
# must, and some ended 34 % early or 23 % late; now none of 32 hosts do, one in five of 64.
STEPS = {256: 27, 128: 29, 64: 13, 32: 13, 16: 5, 8: 3}
# What the number of a flow, among those of its pair, is multiplied by. In all-to-alls of 4 to 128
# hosts with two to eight flows a pair on 64 to 256 turns one flow in fifteen shares a turn with
# more than it must, seven in ten at worst; with other odd factors it is more in the mean. Two flows
# a pair of 64 hosts, and four of 32, are all alike.
FLOW_STEP = 73
# The sender's port tells that number: it is FIRST_PORT + 256 k + number. FIRST_PORT is a multiple
# of 256, and the last is below the kernel's own range. What has another port counts as first.
FLOWS, FIRST_PORT, LAST_PORT = max(STEPS), 0x5000, 0x7FFF
# Turns that are told apart where it is known who crosses a cable, of which it has those that are
# taken: so many that hardly two flows share one.
MOST_TURNS = 1 << 15
# All that are set up, for their cost, which the kernel makes quadratic: on two cores 8,192 took
# 0.4 s, 16,384 1.4 s, 49,152 12.8 s.
# Where it is not known who will send to whom nothing is measured either, and somebody waits.
MOST_CLASSES, MOST_WAITED_FOR = 24576, 12288
# Bytes of frame below which a packet may go first, if it carries no data of TCP: acknowledgements,
# probes. A flow's last packet waits behind its others, however few its bytes are: where it
# overtook them they were taken for lost and sent again, and what came next on their cables ended
# up to 12 % late.
SHORT, SHORT_CLASS = 200, 0xFFFE
TCP, IP_HEADER = 6, 20  # IP protocol's number; bytes, without options

# s of a cable that are worth a queue of their own: less is lost in the time that a switch here
# takes for a packet. And the packets that may be on a cable at once: never fewer than fit.
LEAST_DELAY, MOST_DELAYED = 1e-4, 1_000_000
# HTB counts payload alone. Only what stands at the root may say how packets are counted.
COUNTED = f"stab overhead -{ETHERNET + HEADERS}"

Number = TypeVar("Number", int, np.ndarray)


def paced(fabric: Fabric) -> frozenset[Port]:
    """The ports that must be shaped: those of an OCS only where a cable of it is faster.

    What leaves an OCS came in by another of its cables, and that one's sender was held to its rate.
    """
    fastest = {n.name: max(map(fabric.rate, fabric.ports[n.name]), default=0) for n in fabric.ocses}
    return frozenset(
        port for port in fabric.peer if fabric.rate(port) < fastest.get(port.node, inf)
    )


class Turns(NamedTuple):
    """The turns of a port: how many there are, a power of two, which of them it has, and what the
    number of the receiver counts in them.
    """

    of: int
    taken: Collection[int]
    step: int


def turns_of(
    fabric: Fabric,
    at_once: Mapping[Pair, int],
    most: int = MOST_CLASSES,
    ways: Mapping[Pair, Sequence[int]] | None = None,
) -> Mapping[Port, Turns]:
    """Those of each port that is `paced`: as many as all ports together can have with `most`
    classes, but no fewer than the least of STEPS; then more for cables of hosts, if they fit.

    A host's own cable holds all that it sends. Where its flows share turns by twos and one has a
    turn of its own, that one gets twice as much: in an all-to-all of 64 hosts with 32 turns, 64 of
    4,032 flows ended after half of their time.

    at_once: how many flows of (src, dst) may be under way together; a cable of a host has the
    turns of its own alone. ways: the directed cables that they cross, where these are known; then
    each cable has the turns of those that cross it alone.
    """
    if ways is not None:
        return _by_way(fabric, at_once, ways, most)
    flows = _numbered(fabric, at_once)
    for turns in STEPS:
        given = _turns(fabric, flows, turns, turns)
        if _classes(given) <= most:
            break
    for own in (own for own in STEPS if own > turns):
        more = _turns(fabric, flows, own, turns)
        if _classes(more) <= most:
            given = more
            break
    return given | _of_racks(fabric, flows, turns)


def _numbered(fabric: Fabric, at_once: Mapping[Pair, int]) -> np.ndarray:
    """int64[flows, 3]: the numbers of sender and receiver, as addresses count them, and which flow
    of theirs it is.
    """
    number = {host: i for i, host in enumerate(fabric.hosts, 1)}
    flows = [
        (number[src], number[dst], flow)
        for (src, dst), several in at_once.items()
        for flow in range(min(several, FLOWS))
    ]
    return np.array(flows, np.int64).reshape(-1, 3)


def _classes(turns: Mapping[Port, Turns]) -> int:
    return sum(len(port.taken) for port in turns.values())


def _turns(fabric: Fabric, flows: np.ndarray, own: int, others: int) -> dict[Port, Turns]:
    """`own` at both ends of the cables of hosts, all of `others` elsewhere."""
    taken = turn_of(*flows.T, own, STEPS[own])
    every = Turns(others, range(others), STEPS[others])
    given = dict.fromkeys(paced(fabric), every)
    for end in (0, 1):
        of_host: dict[int, set[int]] = {i: set() for i in range(1, len(fabric.hosts) + 1)}
        for number, turn in zip(*divmod(np.unique(flows[:, end] * own + taken), own), strict=True):
            of_host[int(number)].add(int(turn))
        for number, host in enumerate(fabric.hosts, 1):
            out = fabric.ports[host][0]
            port = fabric.peer[out][1] if end else out
            if port in given:
                given[port] = Turns(own, of_host[number], STEPS[own])
    return given


def _of_racks(fabric: Fabric, flows: np.ndarray, turns: int) -> dict[Port, Turns]:
    """Those of the ports of racks' cables to switches: most of what these carry comes from or goes
    to a rack's hosts, and the fewer of those flows share a turn the better.
    """
    number = {host: i for i, host in enumerate(fabric.hosts, 1)}
    steps: dict[Port, int] = {}
    for switch in fabric.switches:
        ports = fabric.ports[switch.name]
        hosts = [number[other] for p in ports if (other := fabric.peer[p][1].node) in number]
        if not hosts:
            continue
        ours = np.isin(flows[:, :2], hosts)  # those of two hosts of the rack stay in it
        leaving, coming = (
            _least_shared(flows[ours[:, end] & ~ours[:, 1 - end]], len(hosts), turns)
            for end in (0, 1)
        )
        cables = [(port, fabric.peer[port][1]) for port in ports]
        for port, far in ((port, far) for port, far in cables if far.node not in number):
            steps |= {port: leaving, far: coming}
    return {port: Turns(turns, range(turns), steps[port]) for port in paced(fabric) & steps.keys()}


def _least_shared(flows: np.ndarray, hosts: int, turns: int) -> int:
    """The step with which fewest of these flows share a turn: one that has the senders, or the
    receivers, of a rack of so many hosts side by side, or that of STEPS.
    """
    steps = STEPS[turns], hosts, max(turns // hosts, 1)
    used = [len(np.unique(turn_of(*flows.T, turns, step))) for step in steps]
    return steps[used.index(max(used))]


def _by_way(
    fabric: Fabric, at_once: Mapping[Pair, int], ways: Mapping[Pair, Sequence[int]], most: int
) -> dict[Port, Turns]:
    """Each port those of the flows that leave by it, of as many as let all have `most` classes."""
    flows, leaving = _numbered(fabric, at_once), _leaving(fabric, at_once, ways)
    nobody, hosts = np.zeros(0, np.int64), 1 << len(fabric.hosts).bit_length()
    crossing = {port: flows[leaving.get(port, nobody)] for port in paced(fabric)}
    counts, turns = np.array([len(some) for some in crossing.values()]), hosts * hosts
    while turns > MOST_TURNS or (turns > min(STEPS) and np.minimum(counts, turns).sum() > most):
        turns //= 2
    return {port: _apart(some, turns, hosts) for port, some in crossing.items()}


def _leaving(
    fabric: Fabric, at_once: Mapping[Pair, int], ways: Mapping[Pair, Sequence[int]]
) -> dict[Port, np.ndarray]:
    """By port, the rows of `_numbered` that leave by it."""
    first = offsets_of(np.array([min(several, FLOWS) for several in at_once.values()], np.int64))
    pairs = defaultdict(list)
    for number, pair in enumerate(at_once):
        for cable in ways.get(pair, ()):
            pairs[cable].append(number)
    ends = [(link.a, link.b) for link in fabric.links]
    return {
        ends[cable // 2][cable % 2]: spread(first[some], first[np.add(some, 1)] - first[some])
        for cable, some in pairs.items()
        if cable < 2 * len(ends)  # not those of a pair without a path
    }


def _apart(flows: np.ndarray, turns: int, hosts: int) -> Turns:
    """The turns of these flows, by the step with which fewest share one: such as `hosts`, a power
    of two that is more than there are, with which no two pairs do.
    """
    steps = hosts, *dict.fromkeys(STEPS.values())
    used = [np.unique(turn_of(*flows.T, turns, step)) for step in steps]
    best = max(range(len(steps)), key=lambda one: len(used[one]))
    return Turns(turns, used[best].tolist(), steps[best])


def turn_of(src: Number, dst: Number, flow: Number, turns: int, step: int) -> Number:
    """Of a flow of one host to another, by their numbers and its own among theirs."""
    return (src + step * dst + FLOW_STEP * flow) % turns


def port_of(connection: int, at_once: int) -> int:
    """The sender's port of a pair's connection of that number: the first `at_once` have a turn
    each, later ones share these; 0, which the kernel chooses, where ports run out.
    """
    at_once = max(1, min(at_once, FLOWS))
    port = FIRST_PORT + connection // at_once * FLOWS + connection % at_once
    return port if port <= LAST_PORT else 0


def class_of_packet(turns: int, step: int) -> str:
    """Classic BPF for tc: class 1:(1 + `turn_of`) by IPv4 address and the sender's TCP port; of
    what is shorter than SHORT and carries no data of TCP, class 1:SHORT_CLASS.
    """
    program = [  # instruction, to skip if true, to skip if not, operand
        (0x80, 0, 0, 0),  # A = length of the frame
        (0x35, 10, 0, SHORT),  # A >= SHORT?
        (0x30, 0, 0, 23),  # A = protocol
        (0x15, 0, 7, TCP),  # A == TCP?
        (0x30, 0, 0, 46),  # A = words of TCP's header, in the upper half of this byte
        (0x74, 0, 0, 2),  # A >>= 2
        (0x54, 0, 0, 0x3C),  # A &= 0x3c: bytes of that header
        (0x07, 0, 0, 0),  # X = A
        (0x28, 0, 0, 16),  # A = bytes of the IP packet
        (0x1C, 0, 0, 0),  # A -= X
        (0x25, 1, 0, IP_HEADER),  # A > IP_HEADER? It carries data
        (0x06, 0, 0, 0x10000 + SHORT_CLASS),  # return 1:SHORT_CLASS
        (0x20, 0, 0, 30),  # A = destination address: bytes 30 to 33 of the frame
        (0x24, 0, 0, step),  # A *= step
        (0x07, 0, 0, 0),  # X = A
        (0x20, 0, 0, 26),  # A = source address
        (0x0C, 0, 0, 0),  # A += X
        (0x07, 0, 0, 0),  # X = A
        (0x28, 0, 0, 34),  # A = the sender's port: a multiple of FLOWS, and which flow it is
        (0x35, 0, 1, FIRST_PORT),  # A >= FIRST_PORT?
        (0x25, 0, 1, LAST_PORT),  # A > LAST_PORT?
        (0x00, 0, 0, 0),  # then, or where it was not: A = 0
        (0x54, 0, 0, FLOWS - 1),  # A &= FLOWS - 1
        (0x24, 0, 0, FLOW_STEP),  # A *= FLOW_STEP
        (0x0C, 0, 0, 0),  # A += X
        (0x54, 0, 0, turns - 1),  # A &= turns - 1
        (0x04, 0, 0, 0x10001),  # A += class 1:1
        (0x16, 0, 0, 0),  # return A
    ]
    lines = ("{} {} {} {}".format(*instruction) for instruction in program)
    return f'"{len(program)},{",".join(lines)}"'


def bucket(rate: float) -> int:
    """Bytes that a cable of `rate` bit/s lets go at once after a rest: its HTB bucket's."""
    return min(round(bytes_in(rate, STALL_S)), MOST_BURST)


def delaying(interface: str, seconds: float) -> list[str]:
    """The lines for `tc -batch` that hold what leaves by `interface` up for the delay of its cable:
    before it is paced, for what waits its turn must find others that wait (tc-netem(8)).
    """
    held = f"netem delay {round(seconds * 1e6)}us limit {MOST_DELAYED}"
    return [f"qdisc replace dev {interface} root handle 2: {COUNTED} {held}"]


def shaping(interface: str, rate: float, turns: Turns, delay: float = 0.0) -> list[str]:
    """The lines for `tc -batch` that give `interface` a payload rate of `rate` bit/s, shared fairly
    by the flows in it; `delay`: s that packets are held up before that, if at all.

    One HTB class owns the rate; below it a leaf class for each turn that is taken owns next to
    nothing and borrows it in turn, a packet each. What belongs to none of them goes with the first
    turn. Packets without data go before all others: an acknowledgement that waits holds up the
    flow that needs it.
    """
    bits = round(rate)
    little = "htb rate 1kbit burst 10b"
    burst = bucket(bits)
    full = f"ceil {bits}bit cburst {burst}b quantum {PAYLOAD} mtu {PAYLOAD}"
    leaf = f"class add dev {interface} parent 1:ffff classid"
    place = "parent 2:1 handle 1:" if delay else f"root handle 1: {COUNTED}"
    return [
        *(delaying(interface, delay) if delay else ()),
        f"qdisc replace dev {interface} {place} htb default 1 r2q 1",
        (
            f"class add dev {interface} parent 1: classid 1:ffff htb rate {bits}bit burst {burst}b "
            f"{full}"
        ),
        f"{leaf} 1:{SHORT_CLASS:x} {little} {full} prio 0",
        *(f"{leaf} 1:{turn + 1:x} {little} {full} prio 1" for turn in sorted({0, *turns.taken})),
        (
            f"filter add dev {interface} parent 1: protocol ip prio 1 bpf bytecode "
            f"{class_of_packet(turns.of, turns.step)}"
        ),
    ]
