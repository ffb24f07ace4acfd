"""What the flow engine accepts: every check of its input, in one place, before either
implementation is entered.

The compiled core trusts its arrays: an index that passed here is in range, a size is a finite
number of bytes, the dependencies end. So each function takes what a user gave, and returns
contiguous arrays of the one right dtype, or raises an ``RFabricError`` naming the argument, the
index and the value.
"""

from dataclasses import dataclass

import numpy as np

from ..errors import RFabricError

LONG = 16  # links of a path beyond which they are sorted rather than compared each with each
LONGEST_PATH = 1024  # the compiled core keeps room for the longest in flight beside each of them


@dataclass(frozen=True, eq=False)
class Batch:
    """Flows that may be handed to an engine: checked columns, one row a flow (SI units, bytes, CSR
    for ragged ones).
    """

    path_offsets: np.ndarray  # int64[n+1]
    path_links: np.ndarray  # int32
    size: np.ndarray  # float64[n], bytes
    start: np.ndarray  # float64[n], s
    after_offsets: np.ndarray | None  # int64[n+1]
    after: np.ndarray | None  # int32, ids of the engine
    gap: np.ndarray | None  # float64[n], s
    latency: np.ndarray | None  # float64[n], s
    weight: np.ndarray | None  # float64[n], how many identical flows of `size` the row stands for

    def __len__(self) -> int:
        return len(self.size)


def capacities(capacity, n: int | None = None) -> np.ndarray:
    """Capacity of each directed link in bit/s: finite, >= 0; 0 is a dark link."""
    return _numbers("capacity", capacity, n, minimum=0.0)


def tolerance(value) -> float:
    """Relative change of a rate that the engine may ignore: 0 (exact) up to 0.1."""
    value = float(value)
    if not 0.0 <= value <= 0.1:
        raise RFabricError(f"tolerance is {value}: it must lie between 0 (exact) and 0.1")
    return value


def edges(values, now: float) -> np.ndarray:
    """Edges of time bins, s: finite, ascending, none before `now`."""
    edges = _numbers("edges", values, None, minimum=now)
    down = np.flatnonzero(edges[1:] <= edges[:-1])
    if len(down):
        i = int(down[0]) + 1
        raise RFabricError(
            f"edges[{i}] is {edges[i]:g} after {edges[i - 1]:g}: edges of bins must ascend"
        )
    return edges


def ids(name: str, values, count: int, what: str) -> np.ndarray:
    """Indices into `count` things, as int32."""
    array = _integers(name, values).ravel()
    _in_range(name, array, count, what)
    return np.ascontiguousarray(array, np.int32)


def paths(offsets, links, n_links: int, n: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Paths in CSR form: the links of flow f are ``links[offsets[f]:offsets[f+1]]``, none twice."""
    links = _integers("path_links", links).ravel()
    offsets = _offsets("path_offsets", offsets, len(links), n)
    _in_range("path_links", links, n_links, "links")
    long = np.flatnonzero(np.diff(offsets) > LONGEST_PATH)
    if len(long):
        raise RFabricError(
            f"the path of flow {long[0]} has {np.diff(offsets)[long[0]]} links: the limit is "
            f"{LONGEST_PATH}"
        )
    links = np.ascontiguousarray(links, np.int32)
    _no_link_twice(offsets, links)
    return offsets, links


def batch(
    first: int,
    n_links: int,
    *,
    path_offsets,
    path_links,
    size,
    start=None,
    after_offsets=None,
    after=None,
    gap=None,
    latency=None,
    weight=None,
    part=None,
) -> Batch:
    """The flows of one `Engine.add`: ids `first`, `first` + 1, ..., on `n_links` links.

    path_offsets, path_links   CSR: the directed links of each flow's path (int64, int32)
    size                       bytes
    start                      earliest start, s (default 0; a time already past means now)
    after_offsets, after       CSR: the flows each one waits for, of these or earlier ones
    gap                        s between the last finish among `after` and the start; without
                               `after` it means nothing
    latency                    s added to the finish
    weight                     how many identical flows the row stands for, 1 or more (default 1)
    part                       the share of its flow that the row sends, over 0 and 1 at most
                               (default 1): `size` is the whole flow's, so much takes this path
    """
    size = _numbers("size", size, None, minimum=0.0)
    n = len(size)
    path_offsets, path_links = paths(path_offsets, path_links, n_links, n)
    bare = np.flatnonzero((np.diff(path_offsets) == 0) & (size > 0))
    if len(bare):
        f = bare[0]
        raise RFabricError(
            f"flow {f} has size {size[f]:g} B and an empty path: give it links, "
            "or size 0 (a marker)"
        )
    start = np.zeros(n) if start is None else _numbers("start", start, n, minimum=None)
    if (after is None) != (after_offsets is None):
        raise RFabricError("after and after_offsets go together: give both or neither")
    if after is not None:
        after = _integers("after", after).ravel()
        after_offsets = _offsets("after_offsets", after_offsets, len(after), n)
        _in_range("after", after, first + n, "flows")
        after = np.ascontiguousarray(after, np.int32)
        _no_cycle(first, after_offsets, after)
    if first + n >= 2**31 - 1:
        raise RFabricError(
            f"{first + n} flows in one engine: the limit is {2**31 - 2}; split the trace"
        )
    return Batch(
        path_offsets,
        path_links,
        size,
        start,
        after_offsets,
        after,
        None if gap is None else _numbers("gap", gap, n, minimum=0.0),
        None if latency is None else _numbers("latency", latency, n, minimum=0.0),
        _weights(weight, part, n),
    )


def _weights(weight, part, n: int) -> np.ndarray | None:
    """What each row weighs on its links: flows it stands for, times its part of them."""
    weights = None
    for name, values, low, high in (("weight", weight, 1.0, np.inf), ("part", part, 0.0, 1.0)):
        if values is None:
            continue
        values = _numbers(name, values, n, minimum=0.0)
        bad = np.flatnonzero((values < low) | (values > high) | (values == 0))
        if len(bad):
            limit = "at least one flow" if name == "weight" else "more than 0 and at most 1"
            raise RFabricError(
                f"{name}[{bad[0]}] is {values[bad[0]]:g}: a row stands for {limit}; leave it out "
                "instead"
            )
        weights = values if weights is None else weights * values
    return weights


def _numbers(name: str, values, n: int | None, minimum: float | None) -> np.ndarray:
    array = _array(name, values)
    if array.dtype.kind not in "fiu":
        raise RFabricError(f"{name} has dtype {array.dtype}: numbers are needed (float64)")
    if n is not None and array.ndim == 0:
        array = np.full(n, array)
    if array.ndim != 1:
        raise RFabricError(
            f"{name} has {array.ndim} dimensions: one is needed, a value for each row"
        )
    if n is not None and len(array) != n:
        raise RFabricError(f"{name} has {len(array)} values for {n} rows: one each is needed")
    array = np.ascontiguousarray(array, np.float64)
    good = np.isfinite(array)
    if minimum is not None:
        good &= array >= minimum
    if not good.all():
        i = int(np.argmin(good))
        bound = "" if minimum is None else f" and >= {minimum:g}"
        raise RFabricError(f"{name}[{i}] is {array[i]:g}: it must be finite{bound}")
    return array


def _integers(name: str, values) -> np.ndarray:
    array = _array(name, values)
    if array.size == 0:
        return np.zeros(0, np.int64)
    if array.dtype.kind not in "iu":
        raise RFabricError(
            f"{name} has dtype {array.dtype}: whole numbers are needed (int32 or int64)"
        )
    return array


def _array(name: str, values) -> np.ndarray:
    try:
        return np.asarray(values)
    except ValueError:
        raise RFabricError(f"{name} is ragged: a flat array is needed") from None


def _offsets(name: str, values, end: int, n: int | None) -> np.ndarray:
    offsets = np.ascontiguousarray(_integers(name, values).ravel(), np.int64)
    if n is not None and len(offsets) != n + 1:
        raise RFabricError(
            f"{name} has {len(offsets)} values for {n} rows: {n + 1} are needed (CSR)"
        )
    if not len(offsets) or offsets[0] != 0:
        raise RFabricError(
            f"{name}[0] is {offsets[0] if len(offsets) else 'missing'}: CSR offsets begin with 0"
        )
    down = np.flatnonzero(offsets[1:] < offsets[:-1])
    if len(down):
        i = int(down[0]) + 1
        raise RFabricError(
            f"{name}[{i}] is {offsets[i]} after {offsets[i - 1]}: CSR offsets must ascend"
        )
    if offsets[-1] != end:
        raise RFabricError(
            f"{name}[{len(offsets) - 1}] is {offsets[-1]}: the last offset must "
            f"be {end}, the length"
        )
    return offsets


def _in_range(name: str, array: np.ndarray, count: int, what: str) -> None:
    if len(array) and (array.min() < 0 or array.max() >= count):
        i = int(np.argmax((array < 0) | (array >= count)))
        raise RFabricError(f"{name}[{i}] is {array[i]}: there are {count} {what}, 0 to {count - 1}")


def _no_link_twice(offsets: np.ndarray, links: np.ndarray) -> None:
    lengths = np.diff(offsets)
    for length in np.flatnonzero(np.bincount(lengths, minlength=2)[: LONG + 1]):
        rows = np.flatnonzero(lengths == length)
        columns = [links[offsets[rows] + hop] for hop in range(length)]
        for hop, column in enumerate(columns):
            for other in columns[:hop]:
                same = column == other
                if same.any():
                    _refuse_twice(rows[same][0], column[same][0])
    long = np.repeat(lengths > LONG, lengths)
    if long.any():
        wide = int(links.max()) + 1
        code = np.sort((np.repeat(np.arange(len(lengths)), lengths) * wide + links)[long])
        same = code[1:] == code[:-1]
        if same.any():
            _refuse_twice(*divmod(code[1:][same][0], wide))


def _refuse_twice(row: int, link: int) -> None:
    raise RFabricError(f"the path of flow {row} crosses link {link} twice: remove the loop")


def _no_cycle(first: int, offsets: np.ndarray, after: np.ndarray) -> None:
    """Refuse flows that wait for themselves.

    Earlier batches cannot wait for this one, so only its own ids count.
    """
    n = len(offsets) - 1
    owner = np.repeat(np.arange(first, first + n, dtype=np.int32), np.diff(offsets))
    if (after < owner).all():
        return
    inside = after >= first
    owner, before = owner[inside] - first, after[inside] - first
    waits = np.bincount(owner, minlength=n)
    order = np.argsort(before, kind="stable")
    followers, begin = owner[order], np.searchsorted(before[order], np.arange(n + 1))
    stack = np.flatnonzero(waits == 0).tolist()
    left = n - len(stack)
    while stack:
        flow = stack.pop()
        for follower in followers[begin[flow] : begin[flow + 1]].tolist():
            waits[follower] -= 1
            if waits[follower] == 0:
                stack.append(follower)
                left -= 1
    if left:
        raise RFabricError(
            f"flows wait for each other in a circle: {_name_cycle(first, owner, before, waits)}"
        )


def _name_cycle(first: int, owner: np.ndarray, before: np.ndarray, waits: np.ndarray) -> str:
    """One cycle as text, e.g.

    "3 after 5 after 3": walk back along blocked flows until one repeats.
    """
    blocked = waits > 0
    keep = blocked[owner] & blocked[before]
    cause = dict(zip(owner[keep].tolist(), before[keep].tolist(), strict=True))
    walk = [int(np.argmax(blocked))]
    while walk[-1] not in walk[:-1]:
        walk.append(cause[walk[-1]])
    walk = walk[walk.index(walk[-1]) :]
    shown = [str(first + f) for f in walk]
    if len(shown) > 9:
        shown = [*shown[:4], "...", *shown[-4:]]
    return " after ".join(shown)
