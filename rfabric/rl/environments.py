"""What generation exchanges with CPU servers: environments that answer between the turns of a
response, and rewards.

    action        replica -> CPU server: the tokens of every turn but the last, as text
    observation   CPU server -> replica: what the environment says, as text, and whatever else it
                  holds, such as a screenshot
    reward        replica -> CPU server: prompt and response, as text, and what a call carries
                  beside them, such as test cases; scores come back as a few bytes, left out

CPU servers are hosts of their own behind the GPUs, each with one network card of the fabric.
Response n of a step has its environment, and its reward, on server n mod servers. What a replica's
environments send is a loop over turns beside its computing, as others decode while one answers;
rewards leave when the replica is done.
"""

from collections.abc import Sequence

import numpy as np

from ..trace import Flows
from . import flows
from .exchanges import Repeated, Turn
from .phases import Generated
from .workload import Workload

ACTION, OBSERVATION, REWARD = "action", "observation", "reward"


def environment_loop(w: Workload, made: Generated, replica: int) -> Repeated | None:
    """What a replica and its environments send, turn by turn, beside all that it computes; None
    where nothing is sent.
    """
    outputs = made.outputs[replica]
    there = _to_servers(w, made, replica, action_bytes(w, outputs))
    back = _to_servers(w, made, replica, observation_bytes(w, outputs))
    both = ((ACTION, there), (OBSERVATION, Flows(back.dst, back.src, back.size)))
    sent = [(label, some) for label, some in both if len(some.src)]
    if not sent:
        return None
    repeat, total = w.generation.turns - 1, sum(np.sum(some.size) for _, some in sent)
    turns = tuple(  # computing is dealt in proportion: both ways hide behind it together
        Turn(label, Flows(some.src, some.dst, some.size / repeat), 0.0, np.sum(some.size) / total)
        for label, some in sent
    )
    return Repeated(turns, repeat, made.times[replica].seconds)


def reward_calls(w: Workload, made: Generated, replica: int) -> Flows:
    """The calls for the rewards of a replica's responses; none where they are computed in place."""
    size = reward_bytes(w, made.prompts[replica], made.outputs[replica])
    return _to_servers(w, made, replica, size)


def environments_exposed(w: Workload, loops: Sequence[Repeated | None]) -> list[float]:
    """What the bytes of each replica's environments add to its computing (s), when nothing but
    network cards limits them: those of CPU servers are for all replicas at once.
    """
    every = [turn for loop in loops if loop for turn in loop.turns]
    wire = {
        label: flows.wire_seconds(w, flows.join(t.flows for t in every if t.label == label))
        for label in (ACTION, OBSERVATION)
    }
    return [
        loop.repeat * sum(max(0.0, wire[turn.label] - loop.beside(turn)) for turn in loop.turns)
        if loop
        else 0.0
        for loop in loops
    ]


def action_bytes(w: Workload, outputs: np.ndarray) -> np.ndarray:
    """Bytes that each response sends to its environment (float64[n]): all its turns but the last,
    as `compute.requests.in_turns` cuts them.
    """
    if not w.environments.servers:
        return np.zeros(len(outputs))
    turns = w.generation.turns
    return outputs * (turns - 1) // turns * w.environments.text_bytes


def observation_bytes(w: Workload, outputs: np.ndarray) -> np.ndarray:
    """Bytes that the environment of each response sends back (float64[n])."""
    e, g = w.environments, w.generation
    if not e.servers:
        return np.zeros(len(outputs))
    answers = np.minimum(outputs, g.turns) - 1  # a response takes no more turns than tokens
    return answers * (g.observation * e.text_bytes + e.observation_bytes)


def reward_bytes(w: Workload, prompts: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """Bytes of the reward call of each response (float64[n])."""
    e = w.environments
    if not e.servers or not e.rewards:
        return np.zeros(len(outputs))
    return (prompts + outputs) * e.text_bytes + e.reward_bytes


def servers_paid(w: Workload) -> dict[str, float]:
    """What a trace says of CPU servers: how many, and what they cost; nothing without any."""
    if not w.environments.servers:
        return {}
    return {
        "cpu_servers": w.environments.servers,
        "cpu_servers_usd_per_hour": w.cpu_usd_per_hour,
        "cpu_servers_watts": w.cpu_watts,
    }


def _to_servers(
    w: Workload, made: Generated, replica: int, size: Sequence[float] | np.ndarray
) -> Flows:
    """Flows from a replica to the CPU servers of its responses, `size` bytes each."""
    servers = w.cpu_servers
    if not servers:
        return flows.NONE
    numbers = np.arange(*made.first_responses[replica : replica + 2])
    sums = np.bincount(numbers % len(servers), size, len(servers))
    asked = np.flatnonzero(sums)
    if not len(asked):
        return flows.NONE
    sender = np.full(len(asked), w.decoding[replica][0])
    return Flows(sender, np.asarray(servers)[asked], sums[asked])
