"""A matching of maximum weight: by the compiled core (`matching.cpp`), or where that was never
built by rustworkx, which takes ten times as long and of several such matchings may find another.
"""

import ctypes
from functools import cache

import numpy as np

from .. import native
from ..routing.inner import at

WEIGHT_STEPS = 10**9  # resolution of a matching's weights: whole numbers add up exactly
NO_MEMORY = -1


def heaviest(rows: np.ndarray, columns: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Positions, ascending, of a matching of maximum weight among edges of weight[i] >= 0 that join
    racks rows[i] and columns[i], no two the same; to a billionth of the heaviest edge.

    MemoryError where there is no room for it; RFabricError for a core that cannot be used.

    >>> heaviest(np.array([0, 1, 2]), np.array([1, 2, 3]), np.array([4.0, 7.0, 4.0])).tolist()
    [0, 2]
    """
    shares = (weight / weight.max(initial=1e-300) * WEIGHT_STEPS).astype(np.int64)
    if not len(shares):
        return np.zeros(0, np.int64)
    return (by_core if _core() else by_library)(rows, columns, shares)


def by_core(rows: np.ndarray, columns: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """`heaviest` of whole numbers up to 2^56, one edge at least, by the compiled core.

    MemoryError where there is no room for it; RFabricError for a core that cannot be used.
    """
    edges = [np.ascontiguousarray(column, np.int64) for column in (rows, columns, weight)]
    chosen, racks = np.zeros(len(rows), np.uint8), int(max(rows.max(), columns.max())) + 1
    if _core().rf_matching(racks, len(rows), *map(at, (*edges, chosen))) == NO_MEMORY:
        raise MemoryError(f"no room to match {racks:,} racks by {len(rows):,} edges")
    return np.flatnonzero(chosen)


def by_library(rows: np.ndarray, columns: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """`by_core`, by rustworkx."""
    import rustworkx

    edges = list(zip(*(column.tolist() for column in (rows, columns, weight)), strict=True))
    graph = rustworkx.PyGraph(multigraph=False)
    graph.add_nodes_from(range(int(max(rows.max(), columns.max())) + 1))
    graph.add_edges_from(edges)
    pairs = set(map(frozenset, rustworkx.max_weight_matching(graph, weight_fn=int)))
    return np.flatnonzero([frozenset(ends) in pairs for *ends, _ in edges])


@cache
def _core() -> ctypes.CDLL | None:
    """The core with its matching declared; None where it was never built."""
    library = native.core()
    if library is not None:
        count, array = ctypes.c_int64, ctypes.c_void_p
        library.rf_matching.restype = ctypes.c_int
        library.rf_matching.argtypes = [count, count, *[array] * 4]
    return library
