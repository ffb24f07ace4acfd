"""Flow workloads on fat-trees, for benchmarks: columns of `Engine.add`, made by array arithmetic
alone.

k-ary fat-tree (Al-Fares et al., SIGCOMM 2008), k^3/4 hosts, six groups of k^3/4 directed links:
host->edge  edge->host  edge->aggregation  aggregation->edge  aggregation->core  core->aggregation
"""

from dataclasses import dataclass, field

import numpy as np

# Web-search flow sizes (bytes, cumulative probability): Alizadeh et al., "pFabric", SIGCOMM 2013,
# figure 4, taken from the cluster of "Data Center TCP (DCTCP)", SIGCOMM 2010.
WEB_SEARCH = np.array(
    [
        [0, 0],
        [6e3, 0.15],
        [13e3, 0.2],
        [19e3, 0.3],
        [33e3, 0.4],
        [53e3, 0.53],
        [133e3, 0.6],
        [667e3, 0.7],
        [1333e3, 0.8],
        [3333e3, 0.9],
        [6667e3, 0.97],
        [20e6, 1.0],
    ]
)
RATE_BPS = 100e9


@dataclass(frozen=True, eq=False)
class Work:
    """A network and the flows on it: what an engine is given."""

    name: str
    capacity: np.ndarray
    columns: dict = field(repr=False)

    @property
    def flows(self) -> int:
        """How many flows there are."""
        return len(self.columns["size"])


@dataclass(frozen=True)
class FatTree:
    """Directed links and paths of a k-ary fat-tree; all links run at `rate_bps`."""

    k: int
    rate_bps: float = RATE_BPS

    @property
    def hosts(self) -> int:
        """Hosts of a full tree."""
        return self.k**3 // 4

    def capacity(self) -> np.ndarray:
        """bit/s of each directed link."""
        return np.full(6 * self.hosts, self.rate_bps)

    def paths(self, src, dst, choice) -> tuple[np.ndarray, np.ndarray]:
        """CSR paths src -> dst; `choice` (whole numbers) picks among the (k/2)^2 equal ones."""
        half, n = self.k // 2, self.hosts
        src, dst, choice = (np.asarray(a, np.int64) for a in (src, dst, choice))
        agg, core = choice % half, choice // half % half
        up, down = src // half, dst // half  # edge switches
        up_pod, down_pod = up // half, down // half
        table = np.stack(
            [
                src,
                2 * n + up * half + agg,
                4 * n + (up_pod * half + agg) * half + core,
                5 * n + (down_pod * half + agg) * half + core,
                3 * n + down * half + agg,
                n + dst,
            ],
            axis=1,
        ).astype(np.int32)
        keep = np.ones(table.shape, bool)
        keep[:, 1] = keep[:, 4] = up != down
        keep[:, 2] = keep[:, 3] = up_pod != down_pod
        return np.concatenate([[0], np.cumsum(keep.sum(1))]), table[keep]


def ecmp(src, dst) -> np.ndarray:
    """A hash of the pair, the same on every machine (the finaliser of MurmurHash3, Appleby
    2011).
    """
    h = np.asarray(src, np.uint64) * np.uint64(1000003) + np.asarray(dst, np.uint64)
    for shift, factor in ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53)):
        h = (h ^ (h >> np.uint64(shift))) * np.uint64(factor)
    return ((h ^ (h >> np.uint64(33))) % np.uint64(2**31)).astype(np.int64)


def ring_steps(rings: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray, dict]:
    """src, dst, dependencies of ring collectives: `rings` is (ring, member) -> host; a step waits
    for the one before.
    """
    count, n = rings.shape
    src = np.tile(rings.ravel(), steps)
    dst = np.tile(np.roll(rings, -1, axis=1).ravel(), steps)
    row = np.arange(count * n).reshape(count, n)
    before = np.roll(row, 1, axis=1).ravel()
    after = (before + np.arange(steps - 1)[:, None] * count * n).ravel()
    offsets = np.concatenate([np.zeros(count * n, np.int64), np.arange(len(after) + 1)])
    return src, dst, {"after_offsets": offsets, "after": after.astype(np.int32)}


def disjoint_rings(rings: int = 1024, members: int = 8, steps: int = 20, seed: int = 1) -> Work:
    """Rings that share nothing, each step of a ring with sizes of its own (log-normal)."""
    n = rings * members
    src, dst, columns = ring_steps(np.arange(n).reshape(rings, members), steps)
    links = np.stack([src, n + dst], axis=1).astype(np.int32)
    size = 1e6 * np.random.default_rng(seed).lognormal(0, 1, len(src))
    columns |= {
        "path_offsets": np.arange(0, 2 * len(src) + 1, 2),
        "path_links": links.ravel(),
        "size": size,
    }
    return Work(f"{rings} disjoint {members}-rings x {steps}", np.full(2 * n, RATE_BPS), columns)


def all_to_all(
    k: int, hosts: int, *, spread: str = "ecmp", jitter: float = 0.0, seed: int = 1
) -> Work:
    """One synchronous all-to-all, 1 MB a pair.

    `spread`: "ecmp" by pair, or "balanced" (equal load everywhere).
    """
    tree = FatTree(k)
    src, dst = (a.ravel() for a in np.indices((hosts, hosts)))
    src, dst = src[src != dst], dst[src != dst]
    choice = ecmp(src, dst) if spread == "ecmp" else src + dst
    offsets, links = tree.paths(src, dst, choice)
    size = 1e6 * (1 + jitter * np.random.default_rng(seed).uniform(-1, 1, len(src)))
    name = f"{hosts}-host all-to-all, {spread}" + (f", sizes +-{jitter:.0%}" if jitter else "")
    return Work(name, tree.capacity(), {"path_offsets": offsets, "path_links": links, "size": size})


def web_search(k: int, flows: int, load: float = 0.5, seed: int = 1) -> Work:
    """Poisson arrivals between random hosts, web-search sizes, hashed by pair."""
    tree, rng = FatTree(k), np.random.default_rng(seed)
    size = np.maximum(1.0, np.interp(rng.random(flows), WEB_SEARCH[:, 1], WEB_SEARCH[:, 0]))
    mean = np.sum(np.diff(WEB_SEARCH[:, 1]) * (WEB_SEARCH[1:, 0] + WEB_SEARCH[:-1, 0]) / 2)
    start = np.cumsum(rng.exponential(mean * 8 / (load * tree.rate_bps * tree.hosts), flows))
    src = rng.integers(0, tree.hosts, flows)
    dst = (src + rng.integers(1, tree.hosts, flows)) % tree.hosts
    offsets, links = tree.paths(src, dst, ecmp(src, dst))
    columns = {"path_offsets": offsets, "path_links": links, "size": size, "start": start}
    return Work(f"web-search, load {load}, {tree.hosts} GPUs", tree.capacity(), columns)


INCASTS = ("one link", "own cards", "racks", "slow cards", "two receivers")


def incast(senders: int, kind: str = "own cards", at_once: bool = True, seed: int = 1) -> Work:
    """Many senders to one receiver of 100 Gbit/s, 1 to 2 MB each, as one of INCASTS.

    The sender's card is as fast as the receiver's, or between half its fair share there and twenty
    times that ("slow cards"); "racks" adds an uplink for 32 senders and a trunk as wide as the
    receiver's card; with "two receivers" every sender sends to both. Not `at_once`: starts spread
    over the time that all need.
    """
    rng = np.random.default_rng(seed)
    ends = 2 if kind == "two receivers" else 1
    cards = senders // ends
    card = np.arange(ends * cards) % cards
    to = np.arange(ends * cards) // cards
    size = rng.uniform(1e6, 2e6, len(card))
    racks = (cards + 31) // 32
    slow = rng.uniform(0.5, 20, cards) / senders if kind == "slow cards" else np.ones(cards)
    capacity = 1e11 * np.concatenate((np.ones(ends + 1), np.full(racks, 8.0), slow))
    hops = {"one link": [to], "racks": [ends + 1 + racks + card, ends + 1 + card // 32,
            np.full(len(card), ends), to]}.get(kind, [ends + 1 + racks + card, to])  # fmt: skip
    start = np.zeros(len(card)) if at_once else rng.uniform(0, size.sum() * 8 / 1e11, len(card))
    columns = {
        "path_offsets": np.arange(len(card) + 1) * len(hops),
        "path_links": np.stack(hops, axis=1).ravel(),
        "size": size,
        "start": start,
    }
    return Work(f"{len(card)} flows into one card: {kind}", capacity, columns)


def parking_lots(lots: int, cables: int, entering: int = 2, seed: int = 1) -> Work:
    """Chains of cables: `entering` flows of 1 to 2 MB come in at each cable and leave behind the
    last, which all of a chain share.
    """
    rng = np.random.default_rng(seed)
    at = np.repeat(np.arange(lots * cables), entering)
    hops = cables - at % cables
    last = np.repeat(at + hops, hops)
    offsets = np.concatenate(([0], np.cumsum(hops)))
    columns = {
        "path_offsets": offsets,
        "path_links": last - np.repeat(offsets[1:], hops) + np.arange(len(last)),
        "size": rng.uniform(1e6, 2e6, len(at)),
    }
    name = f"{lots} parking lots of {cables} cables"
    return Work(name, np.full(lots * cables, RATE_BPS), columns)


def overloaded_mix(k: int = 8, steps: int = 40, permutations: int = 100, seed: int = 1) -> Work:
    """Rings over scattered hosts and, on top, random permutations that arrive faster than they
    leave.
    """
    tree, rng = FatTree(k), np.random.default_rng(seed)
    src, dst, columns = ring_steps(rng.permutation(tree.hosts).reshape(-1, 8), steps)
    rows = len(src)
    many = np.concatenate([rng.permutation(tree.hosts) for _ in range(permutations)])
    to = np.concatenate([rng.permutation(tree.hosts) for _ in range(permutations)])
    many, to = many[many != to], to[many != to]
    start = np.concatenate(
        [np.zeros(rows), np.sort(rng.uniform(0, 2e-3 * permutations / 2, len(many)))]
    )
    size = np.concatenate([np.full(rows, 4e6), 8e6 * rng.lognormal(0, 1, len(many))])
    src, dst = np.concatenate([src, many]), np.concatenate([dst, to])
    offsets, links = tree.paths(src, dst, ecmp(src, dst))
    columns["after_offsets"] = np.concatenate(
        [columns["after_offsets"], np.full(len(many), len(columns["after"]))]
    )
    columns |= {"path_offsets": offsets, "path_links": links, "size": size, "start": start}
    return Work(f"overloaded mix, k={k}", tree.capacity(), columns)


def rings_on_fat_tree(k: int, members: int = 64, steps: int = 20, packed: bool = True) -> Work:
    """Rings over the whole fat-tree, hashed by pair: members side by side, or (not packed) spread
    over all pods.
    """
    tree = FatTree(k)
    rings = tree.hosts // members
    hosts = np.arange(rings * members)
    placed = hosts.reshape(rings, members) if packed else hosts.reshape(members, rings).T
    src, dst, columns = ring_steps(placed, steps)
    offsets, links = tree.paths(src, dst, ecmp(src, dst))
    columns |= {"path_offsets": offsets, "path_links": links, "size": np.full(len(src), 1e6)}
    how = "packed" if packed else "spread"
    return Work(f"{how} rings of {members} x {steps}, {tree.hosts} GPUs", tree.capacity(), columns)


def expert_groups(k: int, members: int = 64) -> Work:
    """One all-to-all in each packed expert-parallel group of a fat-tree, hashed by pair."""
    tree = FatTree(k)
    groups = tree.hosts // members
    a, b = (x.ravel() for x in np.indices((members, members)))
    a, b = a[a != b], b[a != b]
    base = np.repeat(np.arange(groups) * members, len(a))
    src, dst = base + np.tile(a, groups), base + np.tile(b, groups)
    offsets, links = tree.paths(src, dst, ecmp(src, dst))
    columns = {"path_offsets": offsets, "path_links": links, "size": np.full(len(src), 1e6)}
    return Work(f"{groups} expert groups of {members}, {tree.hosts} GPUs", tree.capacity(), columns)
