"""Continuous batching played to its end in the compiled core (`serving.cpp`), through ctypes:
arrays in, arrays out.

It does what `serving.ServingSession` does event by event, to the last bit; `core()` is None where
it was never built.
"""

import ctypes
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from .. import native
from .requests import Requests
from .roofline import DecodeStep

POINTER = ctypes.c_void_p
NO_MEMORY, NEVER = -1, 1
PARTS = attrgetter(*(field.name for field in fields(DecodeStep)))


@cache
def core() -> ctypes.CDLL | None:
    """The core with its server declared."""
    library = native.core()
    if library is None:
        return None
    library.rf_serve.restype = ctypes.c_int
    shares = ctypes.c_double, ctypes.c_double
    library.rf_serve.argtypes = [POINTER, POINTER, *shares, POINTER, POINTER]
    return library


class Rules(NamedTuple):
    """What a server may do: tokens of its KV cache, tokens of a step, requests at once; whether
    decode waits for prefill, whether prompts are cut. Of tokens to come the share `reserve` must
    fit, and the share `watermark` of the cache stays free.
    """

    capacity: int
    batched_tokens: int
    max_num_seqs: int
    prefill_first: bool
    chunked: bool
    reserve: float
    watermark: float


class Played(NamedTuple):
    """Columns and sums of `serving.Served`."""

    arrival: np.ndarray
    first: np.ndarray
    end: np.ndarray
    prefill: float
    decode: float
    idle: float
    peak_kv_tokens: int
    preempted: int


def played(step: DecodeStep, rules: Rules, requests: Requests, resident: np.ndarray) -> Played:
    """All of `requests`; `resident`: the KV of a prompt is there (bool[n]). IndexError where some
    are left that nothing will wake.
    """
    r, n = requests, len(requests)
    if len(resident) != n:
        raise ValueError(f"{len(resident)} prompts that are there or not, of {n} requests")
    columns = r.prompt, r.output, r.after, r.cached, r.group, r.following
    held = [np.ascontiguousarray(column, np.int64) for column in columns]
    held += [np.ascontiguousarray(r.gap, float), np.ascontiguousarray(resident, bool)]
    times, seconds, counts = np.zeros((3, n)), np.zeros(3), np.zeros(2, np.int64)
    into = [*map(_at, times), _at(seconds), _at(counts)]
    parts, *words = np.array(PARTS(step), float), np.array(rules[:5], np.int64)
    words += np.array([n, *map(_at, held)]), np.array(into)
    shares = rules.reserve, rules.watermark
    done = core().rf_serve(_at(parts), _at(words[0]), *shares, *map(_at, words[1:]))
    if done == NO_MEMORY:
        raise MemoryError(f"no memory to serve {n} requests")
    if done == NEVER:
        raise IndexError("requests are left that nothing will wake")
    return Played(*times, *seconds.tolist(), *counts.tolist())


def _at(array: np.ndarray) -> int:
    return array.ctypes.data
