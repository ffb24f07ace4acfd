"""Graphs of ranks, as Chakra has them, put together to one Trace.

Rank r is on host r // ranks_per_host. A send and the receive of its tag are one flow; as in
ASTRA-sim it begins when the sender is ready, and who waits for the receive waits for both. The
k-th collective of a process group on one rank is the k-th on the others: it begins when all its
ranks are ready, and is done for all at once. Without a group all ranks take part, or those along
the dimensions that `involved_dim` says. `comm_size` is what a rank puts in (bytes), so that an
all-gather ends with n times as much on each.
"""

import json
import re
from collections import defaultdict, deque

from ...errors import RFabricError
from ..model import MOST_BYTES, Trace
from .base import whole
from .chakra_dimensions import along, among
from .chakra_rows import OURS, Rows, trace_of_rows
from .chakra_wire import COLLECTIVE, RECEIVE, SEND, ChakraNode, Graph
from .lowering import lowered

COLLECTIVES = (
    "all-reduce", "reduce", "all-gather", "gather", "scatter", "broadcast", "all-to-all",
    "reduce-scatter", "reduce-scatter", "barrier",
)  # fmt: skip
MICRO = 1e6
# attributes of a collective that are read, and words of those that might say who takes part
READ = ("pg_name", "root_rank", "involved_dim")
GROUPING = re.compile("group|dim|rank|stride|split")


class Placed:
    """The ranks' graphs while they become one trace; `done`: rows, or references to nodes, by
    (rank, id); `ends`: rows of sends by (source, destination, tag), oldest first.
    """

    def __init__(self, graphs: dict[int, Graph], per_host: int, ranks: int, dims: tuple[int, ...]):
        self.graphs, self.per_host, self.rows, self.dims = graphs, per_host, Rows(), dims
        self.ranks = ranks or len(graphs)
        self.missing = ranks > 0
        self.done: dict[tuple[int, int], list] = {}
        self.sends: dict[tuple, deque] = defaultdict(deque)
        self.receives: list[tuple[int, ChakraNode]] = []
        self.calls: dict[tuple[str, int], dict[int, ChakraNode]] = defaultdict(dict)
        # of a group, by rank and what its file calls it
        self.names: dict[tuple[int, str], str] = {}
        self.firsts: dict[str, tuple[int, ...]] = {}  # ranks of the first group that is called so
        self.notes: list[str] = [note for graph in graphs.values() for note in graph.notes]
        self.unlisted: set[str] = set()
        self.unread: set[str] = set()
        self.inside = self.untimed = 0


def put_together(
    graphs: dict[int, Graph], per_host: int, ranks: int, dims: tuple[int, ...] = ()
) -> tuple[Trace, list[str]]:
    """The Trace of all ranks' graphs, and what was assumed or left out; dims: ranks along each
    dimension of the network. RFabricError where ranks wait for one another in a circle.
    """
    _check_ranks(graphs, ranks)
    made = Placed(graphs, per_host, ranks, dims)
    for rank, graph in graphs.items():
        _refuse_cycle(graph)
        counts: dict[str, int] = defaultdict(int)
        for node in graph.nodes:
            _node(made, rank, node, counts)
    _match(made)
    for (group, turn), nodes in made.calls.items():
        _collective(made, group, turn, nodes)
    if made.unlisted:
        count = f"{len(made.unlisted):,} process groups"
        made.notes.append(f"{count} list no ranks: taken as those that call them")
    if made.unread:
        made.notes.append(f"attributes of collectives left out: {', '.join(sorted(made.unread))}")
    if made.untimed:
        made.notes.append(
            f"{made.untimed:,} nodes say operations (num_ops) or bytes (tensor_size) and no time: "
            "they take none"
        )
    if made.inside:
        made.notes.append(f"{made.inside:,} bytes stay inside hosts")
    try:
        ours = graphs[min(graphs)].facts.get(OURS)
        return trace_of_rows(made.rows, made.done, ours), list(dict.fromkeys(made.notes))
    except RFabricError as error:
        if "waits for itself" in str(error):
            raise RFabricError("ranks wait for one another in a circle; see their order") from error
        raise


def _check_ranks(graphs: dict[int, Graph], ranks: int) -> None:
    gone = sorted(set(range(ranks or max(graphs) + 1)) - set(graphs))
    if max(graphs) >= ranks > 0:
        raise RFabricError(f"ranks {ranks}: there is a file of rank {max(graphs)}")
    if gone and not ranks:
        raise RFabricError(_lacking(gone, max(graphs) + 1))


def _lacking(gone: list[int], ranks: int) -> str:
    first = ", ".join(map(str, gone[:5])) + (" ..." if len(gone) > 5 else "")
    return (
        f"ranks missing: {first} ({len(gone)} in all); add their files, or say --set "
        f"ranks={ranks}: then collectives count them and others wait for nobody there"
    )


def _refuse_cycle(graph: Graph) -> None:
    """RFabricError for an id that stands twice, a node that is not there, a cycle."""
    waits = {node.id: set(node.deps) for node in graph.nodes}
    if len(waits) < len(graph.nodes):
        raise RFabricError(f"{graph.name}: node ids stand twice; every id names one node")
    followers = defaultdict(list)
    for number, deps in waits.items():
        for dep in deps:
            if dep not in waits:
                raise RFabricError(
                    f"{graph.name}: node {number} waits for {dep}, which the file lacks"
                )
            followers[dep].append(number)
    left = {number: len(deps) for number, deps in waits.items()}
    ready = [number for number, count in left.items() if not count]
    for number in ready:  # grows
        for follower in followers[number]:
            left[follower] -= 1
            if not left[follower]:
                ready.append(follower)
    if len(ready) < len(left):
        stuck = next(number for number, count in left.items() if count)
        raise RFabricError(f"{graph.name}: node {stuck} waits for itself: its deps form a cycle")


def _node(made: Placed, rank: int, node: ChakraNode, counts: dict[str, int]) -> None:
    key, host = (rank, node.id), rank // made.per_host
    waits = [(rank, dep) for dep in node.deps]
    said = json.loads(node.attrs[OURS]) if OURS in node.attrs else {}
    if node.type == COLLECTIVE:
        made.unread |= {key for key in node.attrs if key not in READ and GROUPING.search(key)}
        group = _group(made, rank, node)
        made.calls[group, counts[group]][rank] = node
        counts[group] += 1
    elif node.type == SEND:
        made.done[key] = _send(made, rank, node, waits, said)
    elif node.type == RECEIVE:
        made.receives.append((rank, node))
    elif "role" in said:
        made.done[key] = waits
    else:
        where = f"{made.graphs[rank].name}: node {node.id} ({node.name})"
        whole(node.type, f"{where}: type", 0, COLLECTIVE)  # the last of them
        seconds = whole(node.micros, f"{where}: duration_micros", 0, 10**15) / MICRO
        made.untimed += not seconds and any(
            node.attrs.get(key) for key in ("num_ops", "tensor_size")
        )
        made.done[key] = [made.rows.add(
            host, said.get("dst", host), 0, waits, "compute", said.get("gap", seconds), said
        )]  # fmt: skip


def _group(made: Placed, rank: int, node: ChakraNode) -> str:
    """The process group of a collective; along dimensions of the network one that they make."""
    if (said := along(node)) is None:
        return _named(made, rank, str(node.attrs.get("pg_name", "")))
    where = f"{made.graphs[rank].name}: node {node.id} ({node.name})"
    members = among(rank, said, made.dims, made.ranks, where)
    name = f"involved_dim {[int(one) for one in said]} of rank {members[0]}"
    made.graphs[rank].groups[name] = members
    return name


def _named(made: Placed, rank: int, name: str) -> str:
    """A process group by a name of its own: files may call groups of other ranks alike."""
    if (rank, name) not in made.names:
        ranks = _listed(made, rank, name)
        same = made.firsts.setdefault(name, ranks) == ranks
        made.names[rank, name] = own = name if same else f"{name} of ranks {ranks}"
        if ranks:
            made.graphs[rank].groups[own] = list(ranks)
    return made.names[rank, name]


def _listed(made: Placed, rank: int, name: str) -> tuple[int, ...]:
    """The ranks of a process group as the file of one of them lists it, else as others do that list
    it among them; () where none does, or not all alike.
    """
    if not name:
        return ()
    if said := made.graphs[rank].groups.get(name):
        return tuple(sorted(said))
    others = (graph.groups.get(name, ()) for graph in made.graphs.values())
    every = {tuple(sorted(ranks)) for ranks in others if rank in ranks}
    return every.pop() if len(every) == 1 else ()


def _size(made: Placed, rank: int, node: ChakraNode, least: int = 1) -> int:
    where = f"{made.graphs[rank].name}: node {node.id} ({node.name})"
    if "comm_size" not in node.attrs:
        raise RFabricError(f"{where}: has no comm_size; say how many bytes it sends")
    return whole(node.attrs["comm_size"], f"{where}: comm_size", least, int(MOST_BYTES))


def _peer(made: Placed, rank: int, node: ChakraNode, key: str) -> int:
    where = f"{made.graphs[rank].name}: node {node.id} ({node.name})"
    peer = whole(node.attrs.get(key, ""), f"{where}: {key}", 0, 2**31)
    if peer not in made.graphs and not (made.missing and peer < made.ranks):
        raise RFabricError(f"{where}: {_lacking([peer], max(peer + 1, made.ranks))}")
    return peer


def _send(made: Placed, rank: int, node: ChakraNode, waits: list, said: dict) -> list:
    peer = _peer(made, rank, node, "comm_dst")
    if said.get("role") == "sync":
        made.sends[rank, peer, node.attrs.get("comm_tag", 0)].append((waits, None))
        return waits
    size = _size(made, rank, node)
    row = _flow(made, rank, peer, size, waits, said)
    made.sends[rank, peer, node.attrs.get("comm_tag", 0)].append(([row], size))
    return [row]


def _flow(made: Placed, rank: int, peer: int, size: int, waits: list, said: dict) -> int:
    src, dst = rank // made.per_host, peer // made.per_host
    if src == dst:
        made.inside, size = made.inside + size, 0
    return made.rows.add(src, dst, size, waits, "send", said.get("gap", 0.0), said)


def _match(made: Placed) -> None:
    """Each receive its send, in the order in which a rank names them."""
    for rank, node in made.receives:
        peer, tag = _peer(made, rank, node, "comm_src"), node.attrs.get("comm_tag", 0)
        waiting = made.sends[peer, rank, tag]
        name = f"{made.graphs[rank].name}: node {node.id} ({node.name})"
        if waiting:
            sent, size = waiting.popleft()
            if None not in (size, told := node.attrs.get("comm_size")) and size != told:
                made.notes.append("receives say other bytes than their sends: those sent count")
        elif peer in made.graphs:
            raise RFabricError(f"{name}: rank {peer} sends nothing with tag {tag}")
        else:
            sent = [_flow(made, peer, rank, _size(made, rank, node), [], {})]
        waits = sent + [(rank, dep) for dep in node.deps]
        if node.deps:
            host = rank // made.per_host
            waits = [made.rows.add(host, host, 0, waits, "receive")]
        made.done[rank, node.id] = waits
    for (rank, peer, tag), unmet in made.sends.items():
        if unmet and peer in made.graphs:
            name = made.graphs[rank].name
            raise RFabricError(
                f"{name}: {len(unmet)} sends to rank {peer} with tag {tag} are never received"
            )


def _collective(made: Placed, group: str, turn: int, nodes: dict[int, ChakraNode]) -> None:
    rank, first = next(iter(nodes.items()))
    where = f"{made.graphs[rank].name}: node {first.id} ({first.name})"
    code = whole(first.attrs.get("comm_type", ""), f"{where}: comm_type", 0, len(COLLECTIVES) - 1)
    kind, members = COLLECTIVES[code], _members(made, rank, group, nodes)
    gone = sorted(set(members) - set(nodes))
    if strange := sorted(set(nodes) - set(members)):
        rank, node = strange[0], nodes[strange[0]]
        raise RFabricError(
            f"{made.graphs[rank].name}: node {node.id} ({node.name}): rank {rank} calls group "
            f"{group!r}, whose ranks are {str(members)[1:-1][:60]}; correct that list"
        )
    if [one for one in gone if one in made.graphs or not made.missing]:
        if gone[0] not in made.graphs:
            raise RFabricError(f"{where}: {_lacking(gone, max(gone) + 1)}")
        raise RFabricError(
            f"{where}: collective {turn + 1} of group {group!r}: rank {gone[0]} never joins"
        )
    other = next((r for r, n in nodes.items() if n.attrs.get("comm_type") != code), rank)
    if other != rank:
        there = f"{made.graphs[other].name}: node {nodes[other].id}"
        raise RFabricError(f"{where} is a {kind}, its partner {there} another collective")
    sizes = _put_in(made, kind, nodes)
    if len(set(sizes)) > 1 and kind != "scatter":  # in which the root alone puts in something
        made.notes.append("ranks of one collective put in different bytes: the most is taken")
    if len(members) == 1 and kind != "barrier":
        made.notes.append(
            "collectives of one rank send nothing; where there are more, add their files, or say "
            "--set ranks=N"
        )
    size = max(sizes) * (len(members) if kind == "all-gather" else 1)
    root = whole(first.attrs.get("root_rank", members[0]), f"{where}: root_rank")
    if root not in members:
        raise RFabricError(f"{where}: root_rank {root} is none of the ranks of group {group!r}")
    flows = lowered(kind, members, size, made.per_host, root)
    waits = [(r, dep) for r, node in nodes.items() for dep in node.deps]
    host, rows = members[0] // made.per_host, made.rows
    begin = [rows.add(host, host, 0, waits, kind)]
    ends = [
        rows.add(a // made.per_host, b // made.per_host, -int(-bytes_ // 1), begin, kind)
        for a, b, bytes_ in zip(*flows, strict=True)
    ]
    done = [rows.add(host, host, 0, ends, kind)] if ends else begin
    made.done |= {(r, node.id): done for r, node in nodes.items()}


def _put_in(made: Placed, kind: str, nodes: dict[int, ChakraNode]) -> list[int]:
    """Bytes that each rank puts in: nothing from some ranks, never from all."""
    if kind == "barrier":
        return [0]
    sizes = [_size(made, r, n, least=0) for r, n in nodes.items()]
    if not any(sizes):
        _size(made, *next(iter(nodes.items())))
    return sizes


def _members(made: Placed, rank: int, group: str, nodes: dict[int, ChakraNode]) -> list[int]:
    known = made.graphs[rank].groups.get(group)
    if known:
        return sorted(known)
    if not group:
        return list(range(made.ranks))
    made.unlisted.add(group)
    return sorted(nodes)
