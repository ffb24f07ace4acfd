"""YAML that tells a cluster's launcher what to run, and the script in it: KubeRay's and Kubernetes'
jobs, SkyPilot, dstack, Docker compose.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

from ...errors import RFabricError
from ...files import parse_yaml

_RUNS = ("entrypoint", "run", "command", "commands", "args", "script")
_SETS = ("env", "envs", "environment", "env_vars")
_STARTS, _TELLS = re.compile(r"(?<![\w.-])python[\d.]*\s"), re.compile(r"\S=\S|\s--\S")
_MOST = 100_000  # values looked at


def script_within(values: Mapping[str, Any]) -> tuple[str, dict[str, str]] | None:
    """The commands that a launcher's file has its nodes run, and the variables it sets for them;
    None of a file that starts no python.

    `values`: by dotted key, as `yaml_files` flattens them.

    >>> script_within({"envs.N": 2, "run": "cd x\\npython3 -m job nodes=$N"})
    ('cd x\\npython3 -m job nodes=$N', {'N': '2'})
    >>> script_within({"spec.containers": [{"command": ["python3", "job.py", "--b", "2"]}]})
    ('python3 job.py --b 2', {})
    """
    said = list(islice(_leaves(values), _MOST))
    texts = (_text(value) for path, value in said if path[-1] in _RUNS)
    starts = (text for text in texts if _STARTS.search(text) and _TELLS.search(text))
    script = max(starts, key=len, default="")
    return (script, _variables(said)) if script else None


def gpu_within(values: Mapping[str, Any]) -> str:
    """The GPU that a launcher's file asks for, as it writes it: SkyPilot's accelerators, dstack's
    gpu, the product or accelerator that Kubernetes selects nodes by; empty where it names none, or
    several. `values` as for `script_within`.

    >>> gpu_within({"resources.accelerators": "H200:8"}), gpu_within({"resources.gpu": "24GB:2"})
    ('H200', '')
    """
    named = {name for path, value in islice(_leaves(values), _MOST) for name in _gpus(path, value)}
    return named.pop() if len(named) == 1 else ""


def _gpus(path: tuple[str, ...], value: Any) -> list[str]:
    """The kinds of GPU that one value names, without their count."""
    if path[-2:-1] == ("accelerators",):  # accelerators: {H100: 8}
        return [_of_cloud(path[-1])]
    if path[-1] == "accelerators":
        return [_of_cloud(str(each)) for each in (value if isinstance(value, list) else [value])]
    if path[-1] == "gpu" and isinstance(value, str):  # one that is a number counts them
        return [kind for kind in [value.partition(":")[0]] if re.match(r"[A-Za-z]", kind)]
    return [_of_cloud(str(value))] if path[-2:] in _SELECTED else []


_SELECTED = (("com/gpu", "product"), ("google", "com/gke-accelerator"))


def _of_cloud(text: str) -> str:
    """A name without its count. SkyPilot and GKE mean the A100 of 40 GB where they say no size:
    that of 80 is their A100-80GB and nvidia-a100-80gb.
    """
    kind = text.partition(":")[0].strip()
    return "A100-40GB" if kind in ("A100", "nvidia-tesla-a100") else kind


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Values with their keys, those in lists of mappings too."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _leaves(each, (*path, *str(key).split(".")))
    elif isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
        yield path, value
        for each in value:
            yield from _leaves(each, path)
    elif path:
        yield path, value


def _text(value: Any) -> str:
    """Words of one command, or commands one by one where they hold several words."""
    said = value if isinstance(value, list) else [value]
    if any(isinstance(each, list | Mapping) for each in said):
        return ""
    words = [str(each) for each in said]
    apart = words[0].split()[1:] if words else ()
    return "\n".join(words) if apart or len(words) == 1 else shlex.join(words)


def _held(said: list[tuple[tuple[str, ...], Any]]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """What KubeRay's runtimeEnvYAML holds, a text of YAML within it."""
    for path, value in said:
        if path[-1] == "runtimeEnvYAML" and isinstance(value, str):
            with suppress(RFabricError):
                held = parse_yaml(value)
                yield from _leaves(held if isinstance(held, Mapping) else {})


def _variables(said: list[tuple[tuple[str, ...], Any]]) -> dict[str, str]:
    """N: 2, N=2 in a list, and Kubernetes' {name: N, value: 2}."""
    told: dict[str, str] = {}
    for path, value in [*said, *_held(said)]:
        if len(path) > 1 and path[-2] in _SETS and not isinstance(value, list):
            told[path[-1]] = str(value)
        elif path[-1] in _SETS and isinstance(value, list):
            named = [each for each in value if isinstance(each, Mapping)]
            told |= {str(e["name"]): str(e["value"]) for e in named if {"name", "value"} <= set(e)}
            told |= dict(e.split("=", 1) for e in value if isinstance(e, str) and "=" in e)
        elif path[-1] == "num_nodes":
            told["SKYPILOT_NUM_NODES"] = str(value)
        elif path[-1] == "accelerators" and (gpus := re.fullmatch(r"[^:]+:(\d+)", str(value))):
            told["SKYPILOT_NUM_GPUS_PER_NODE"] = gpus[1]
        elif path[-2:-1] == ("accelerators",):
            told["SKYPILOT_NUM_GPUS_PER_NODE"] = str(value)
    return {name: text for name, text in told.items() if name not in ("name", "value")}
