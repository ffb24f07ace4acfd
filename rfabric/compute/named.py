"""Models by name: whatever way makers, engines and people spell it.

>>> find_model("Qwen/Qwen3-30B-A3B-FP8").active_parameters
3353032704
"""

import difflib
import functools
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import RFabricError
from ..files import read_json
from ..folders import data_dir
from .config_fields import read_config
from .configs import model_of
from .models import Model


def read_model(path: str | Path) -> Model:
    """The model that a Hugging Face config file describes."""
    return model_of(read_config(path), Path(path).stem)


def find_model(name: str, folders: Sequence[str | Path] = ()) -> Model | None:
    """The model that `name` means in whatever spelling, from the *.json of `folders` first, then
    from traffic/models/.

    `Qwen/Qwen3-32B`, `qwen_qwen3_32b`, `LLAMA3.1_8B`, `Meta-Llama-3.1-8B-Instruct` and
    `Qwen3-235B-A22B-FP8` are understood. None where no config has the name.
    """
    config = find_config(name, folders)
    return read_model(config) if config else None


def find_config(name: str, folders: Sequence[str | Path] = ()) -> Path | None:
    """The config file that `find_model` reads."""
    configs = (_in_folder(str(name), Path(folder)) for folder in (*folders, _shipped()))
    return next((path for path in configs if path), None)


def load_model(text: str) -> Model:
    """The model of a config file, of a folder that holds one, or of a name; RFabricError names
    those like it where it is none.
    """
    file = config_file(Path(text))
    if file.suffix == ".json":
        model = read_model(file)
        return replace(model, name=file.resolve().parent.name) if file.stem == "config" else model
    model = find_model(text)
    if model is None:
        raise RFabricError(
            f"no model {text!r}; give a config.json or one of traffic/models/, which has "
            f"{likely_models(text)}"
        )
    return model


def config_file(path: Path) -> Path:
    """The file that says what model a file or a folder is."""
    return path / "config.json" if path.is_dir() else path


def likely_models(text: str) -> str:
    """The models in traffic/models whose names are like `text`, and how many others there are."""
    known = {_joined(_words(path.stem)): path.stem for path in sorted(_shipped().glob("*.json"))}
    close = difflib.get_close_matches(_joined(_words(text)), known, n=4, cutoff=0.0)
    return f"{', '.join(known[key] for key in close)} and {len(known) - len(close)} more"


def same_model(one: str, other: str) -> bool:
    """Whether two names mean the same model, whatever their makers, spelling and tuning.

    >>> same_model("Qwen/Qwen3-32B-FP8", "qwen_qwen3_32b"), same_model("Qwen3-32B", "Qwen3-8B")
    (True, False)
    """
    mine, its = _words(one), _words(other)
    short, long = sorted((mine, its), key=len)
    return bool(short) and any(
        _joined(a) == _joined(b) for a, b in ((mine, its), (short, long[1:]), (short, long[2:]))
    )


# What a name says besides the shape: who made or packed it, how it was tuned, stored or dated.
_BESIDE = re.compile(
    r"(?:instruct|base|chat|it|hf|pt|sft|dpo|rl|thinking|preview|meta|text|bf16|fp16|fp8|fp4|nvfp4|mxfp4|mxfp8|int8|int4|awq|gptq|"
    r"dynamic|block|w4a16|w8a8|1m|128k|32k|16k|8k|4k|\d{4})"
)


def _shipped() -> Path:
    return data_dir("traffic") / "models"


def _in_folder(name: str, folder: Path) -> Path | None:
    """The config in `folder` whose name or other names mean the same as `name`."""
    known = _known(folder, folder.stat().st_mtime_ns) if folder.is_dir() else {}
    words = _words(name)
    for first in range(len(words)):  # makers stand before a name, as in meta_llama_llama_3_1_8b
        key = _joined(words[first:])
        if key in known:
            return known[key]
        likely = {path for k, path in known.items() if _is_like(key, k)}
        if len(likely) == 1:
            return likely.pop()
    return None


def _is_like(key: str, known: str) -> bool:
    """Whether a name that states a size lacks only the active parameters or the dots of a known
    one: Qwen3-30B, Llama31-8B.
    """
    if not re.search(r"\db$", key):
        return False
    return bool(re.fullmatch(re.escape(key) + r"a\d+b", known)) or key.replace(
        "|", ""
    ) == known.replace("|", "")


@functools.lru_cache(maxsize=16)
def _known(folder: Path, changed: int) -> dict[str, Path]:
    """The configs of a folder under all their names; `changed`, when a file came or went there,
    keeps the cache true.
    """
    files = sorted(folder.glob("*.json"))
    also = {_joined(_words(name)): file for file in files for name in _other_names(file)}
    return also | {_joined(_words(file.stem)): file for file in files}


def _other_names(file: Path) -> tuple[str, ...]:
    """Names under `_also` in a config: models of the same shape."""
    try:
        config = read_json(file)
    except (OSError, ValueError):
        return ()
    return tuple(config.get("_also") or ()) if isinstance(config, dict) else ()


def _words(name: str) -> list[str]:
    """A model's name as words in small letters, without those that do not tell its shape."""
    path = re.sub(r"(/snapshots/[^/]*)?/*$", "", name.removesuffix(".json"))  # of the hub's cache
    last = re.split(r"/|--", path)[-1].lower()
    words = re.split(r"[^a-z0-9]+", re.sub(r"[-_ ]v0[._]\d", "", last))  # Mixtral-8x7B-v0.1
    return [word for word in words if word and not _BESIDE.fullmatch(word)]


def _joined(words: list[str]) -> str:
    """Words as one, with a bar between numbers: 1.3B is not 13B."""
    return re.sub(r"(?<=\d) (?=\d)", "|", " ".join(words)).replace(" ", "")
