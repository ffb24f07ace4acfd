"""What replicas that read prompts send to those that decode.

A prompt's KV cache leaves when it is complete, each GPU its part of it to its partner. Of layers
with a window goes the window alone, of those without attention their state, as the decoding side
keeps nothing else: SGLang's `state_indices` (disaggregation/prefill.py).
"""

from collections.abc import Iterable

from ..trace import Flows, point_to_point
from .flows import NONE
from .workload import Workload


def prompts_read(w: Workload, replica: int, prompts: Iterable[float]) -> Flows:
    """The KV cache of a replica's prompts, of so many tokens each, from the replica that reads
    them; none where replicas read their own.
    """
    if not w.prefilling:
        return NONE
    reader = w.prefilling[replica % len(w.prefilling)]
    size = sum(w.served.kv_bytes(float(tokens)) for tokens in prompts) / w.generation.gpus
    pairs = list(zip(reader, w.decoding[replica], strict=True))
    return point_to_point(pairs, size, w.gpus_per_server)
