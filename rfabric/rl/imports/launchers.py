"""YAML that tells a cluster's launcher what to run, and the script in it: KubeRay's and Kubernetes'
jobs, SkyPilot, dstack, Docker compose.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ...errors import RFabricError
from ...files import parse_yaml
from .shell_others import shell_options
from .yaml_files import flattened, read_text

_RUNS = ("entrypoint", "run", "command", "commands", "args", "script")
_SETS = ("env", "envs", "environment", "env_vars")
_STARTS, _TELLS = re.compile(r"(?<![\w.-])python[\d.]*\s"), re.compile(r"\S=\S|\s--\S")
_MOST = 100_000  # values looked at
_BETWEEN = re.compile(r"^---(?:[ \t].*)?$", re.MULTILINE)  # documents of one file


@dataclass(frozen=True)
class Launched:
    """What a launcher's file runs: a script, the variables that it finds set, and the kinds of GPU
    that are asked for.
    """

    script: str
    variables: dict[str, str]
    gpus: tuple[str, ...]


def launched(path: Path) -> Launched | None:
    """What a launcher's YAML file runs; None of a file that starts no python. Of several documents,
    as Kubernetes has them, the one that says most to a python, on GPUs that any of them names.

    RFabricError where the file cannot be read, or its documents start nothing.
    """
    texts = [text for text in _BETWEEN.split(read_text(path)) if text.strip()]
    documents = [said for text in texts if isinstance(said := _document(text, path), Mapping)]
    several = [flattened(said) for said in documents]
    runs = [(run, values) for values in several if (run := script_within(values))]
    if not runs and len(several) > 1:
        raise RFabricError(
            f"{path}: holds {len(several)} documents, none of which starts a python; give the "
            "job's YAML file or launch script"
        )
    if not runs:
        return None
    (script, told), own = max(runs, key=lambda each: len(each[0][0]))
    asked = (gpus_within(values) for values in (own, *several))
    return Launched(script, told, next(filter(None, asked), ()))


def _document(text: str, path: Path) -> Any:
    try:
        return parse_yaml(text, aliases=True)
    except RFabricError as error:
        raise RFabricError(f"{path}: {error}") from error


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
    if not script:
        return None
    told = _variables(said)
    told = _of_sizes(said, script) | told
    if any(path[0] == "services" for path, _ in said):  # Docker compose's word for $
        script = script.replace("$$", "$")
    return _NAMED.sub(lambda m: told.get(m[1], m[0]), script), told


def gpus_within(values: Mapping[str, Any]) -> tuple[str, ...]:
    """The kinds of GPU that a launcher's file asks for, as it writes them: SkyPilot's accelerators,
    dstack's gpu, the product or accelerator that Kubernetes selects nodes by. Of several pods those
    count that ask for most GPUs, and none where one of them names none. `values` as for
    `script_within`.

    >>> gpus_within({"resources.accelerators": "H200:8"}), gpus_within({"resources.gpu": "24GB:2"})
    (('H200',), ())
    """
    counted = [(_gpus_of_pod(pod), pod) for pod in islice(_pods(values), _MOST_PODS)]
    most = max((count for count, _ in counted), default=0)
    asking = [pod for count, pod in counted if count == most] if most else [values]
    named = [_named(each) for each in asking]
    return tuple(dict.fromkeys(name for names in named for name in names)) if all(named) else ()


def _pods(values: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What Kubernetes is told of each kind of pod: all that stands beside its containers."""
    for told in islice(_mappings(values), _MOST):
        for key in told:
            begun = key.removesuffix("containers")
            if begun != key and (not begun or begun.endswith(".")):
                yield {name: each for name, each in told.items() if name.startswith(begun)}


def _mappings(values: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A file's values, and those of each mapping in its lists, by dotted key."""
    yield values
    for value in values.values():
        for each in value if isinstance(value, list) else ():
            if isinstance(each, Mapping):
                yield from _mappings(flattened(each))


_MOST_PODS = 100  # looked at


def _gpus_of_pod(pod: Mapping[str, Any]) -> int:
    """GPUs that one pod is limited to, in all its containers: nvidia.com/gpu, amd.com/gpu."""
    said = islice(_leaves(pod), _MOST)
    counts = (str(value) for path, value in said if path[-1] == "com/gpu" and "limits" in path)
    return sum(int(count) for count in counts if re.fullmatch(r"\d{1,4}", count))


def _named(values: Mapping[str, Any]) -> list[str]:
    said = list(islice(_leaves(values), _MOST))
    sizes = {path[:-1]: str(value) for path, value in said if path[-2:] == ("gpu", "memory")}
    return [name for path, value in said for name in _gpus(path, value, sizes)]


def _gpus(path: tuple[str, ...], value: Any, sizes: Mapping[tuple[str, ...], str]) -> list[str]:
    """The kinds of GPU that one value names, without their count; `sizes`: memory that stands
    beside the name.
    """
    listed = [str(each) for each in (value if isinstance(value, list) else [value])]
    if path[-2:-1] == ("accelerators",):  # accelerators: {H100: 8}
        return [_of_cloud(path[-1])]
    if path[-1] == "accelerators":
        return [_of_cloud(each) for each in listed]
    if path[-1] == "gpu" or path[-2:] == ("gpu", "name"):
        return [name for each in listed for name in _of_dstack(each, sizes.get(path[:-1], ""))]
    return [_of_cloud(str(value))] if path[-2:] in _SELECTED else []


def _of_dstack(text: str, size: str) -> list[str]:
    """The names in `A100:8`, `A100,H100:8`, `nvidia:A100:40GB:8`, with their memory; no other
    words, such as a vendor's or `cuda`.

    >>> _of_dstack("nvidia:A100:40GB:8", ""), _of_dstack("24GB..80GB:2", "")
    (['A100-40GB'], [])
    """
    words = [word.strip() for word in re.split("[:,]", text)]
    size = next((word for word in [*words, size] if re.fullmatch(r"\d+GB", word)), "")
    names = [word for word in words if re.fullmatch(r"[A-Za-z][A-Za-z -]*\d[\w -]*", word)]
    return [f"{name}-{size}" if size else name for name in names]


_SELECTED = (("com/gpu", "product"), ("google", "com/gke-accelerator"))


def _of_cloud(text: str) -> str:
    """A name without its count. SkyPilot and GKE mean the A100 of 40 GB where they say no size:
    that of 80 is their A100-80GB and nvidia-a100-80gb.
    """
    kind = text.partition(":")[0].strip()
    return "A100-40GB" if kind in ("A100", "nvidia-tesla-a100") else kind


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Values with their keys, those in lists of mappings too; a container's args stand behind its
    command.
    """
    if isinstance(value, Mapping):
        parts = [value.get(key) for key in ("command", "args")]
        if all(isinstance(part, list) for part in parts):
            value = {**value, "command": sum(parts, []), "args": []}
        for key, each in value.items():
            yield from _leaves(each, (*path, *str(key).split(".")))
    elif isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
        yield path, value
        for each in value:
            yield from _leaves(each, path)
    elif path:
        yield path, value


_NAMED = re.compile(r"(?<!\$)\$\(([A-Za-z_]\w*)\)")  # Kubernetes' $(NAME) of a container's variable


def _text(value: Any) -> str:
    """Words of one command, or commands one by one where they hold several words; behind a shell
    that is named elsewhere, the text of its -c.
    """
    said = value if isinstance(value, list) else [value]
    if any(isinstance(each, list | Mapping) for each in said):
        return ""
    words = [str(each) for each in said]
    asked, rest = shell_options(words)
    if asked and rest:
        return rest[0]
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
    return {name: text for name, text in told.items() if name not in ("name", "value")}


def _of_sizes(said: list[tuple[tuple[str, ...], Any]], script: str) -> dict[str, str]:
    """What SkyPilot and dstack tell the first node of the sizes that their files ask for, one node
    where these name none; empty of a script that asks neither.
    """
    asks = [kind for kind in _TOLD if f"{kind}_" in script]
    counts = [str(value) for path, value in said if path in (("num_nodes",), ("nodes",))]
    nodes = next((count for count in counts if re.fullmatch(r"\d{1,4}", count)), "1")
    gpus = next(filter(None, (_gpus_each(path, value) for path, value in said)), "")
    names = "\n".join(f"node{i + 1}" for i in range(int(nodes)))
    told: dict[str, str] = {}
    for kind in asks:
        count, each, whole, listed, rank = (f"{kind}_{name}" for name in _TOLD[kind])
        told |= {count: nodes, listed: names, rank: "0"}
        told |= {each: gpus, whole: str(int(nodes) * int(gpus))} if gpus else {}
    return told


# Nodes, GPUs of each, GPUs in all, the nodes' addresses, the number of this one.
_TOLD = {
    "SKYPILOT": ("NUM_NODES", "NUM_GPUS_PER_NODE", "NUM_GPUS", "NODE_IPS", "NODE_RANK"),
    "DSTACK": ("NODES_NUM", "GPUS_PER_NODE", "GPUS_NUM", "NODES_IPS", "NODE_RANK"),
}


def _gpus_each(path: tuple[str, ...], value: Any) -> str:
    """GPUs of a node, as `accelerators: H100:8`, {H100: 8} or dstack's `gpu: nvidia:H100:80GB:8`
    and {name: H100, count: 8} say; one of a kind without a count, none of what is no GPU.
    """
    if path[-2:-1] == ("accelerators",) or path[-2:] == ("gpu", "count"):
        return str(value) if re.fullmatch(r"\d{1,3}", str(value)) else ""
    if path[-1] not in ("accelerators", "gpu") or isinstance(value, list | Mapping):
        return ""
    counts = re.findall(r"(?<=:)\d{1,3}(?![\w.])", f":{value}")
    return counts[-1] if counts else "1" * bool(re.search("[A-Za-z]", str(value)))
