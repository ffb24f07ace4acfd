"""What a job's file sets, flattened to `dotted.key: value`, and a record of which keys were read.

    YAML      nested mappings by OmegaConf's rules; `defaults:` names parents (`yaml_files`)
    overrides Hydra's key=value, +key=value, key={a:1,b:[2]} on a command line; ~key takes one of
              the config file away
    flags     --key value, --key=value, --flag
    launchers a script in the YAML of KubeRay, SkyPilot and the like (`launchers`)

Shell scripts are read, never run (`shell`). What stays unknown keeps its $ and is reported by
whoever needs it.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...errors import RFabricError
from .launchers import launched
from .overrides import is_number, scalar, set_by
from .shell import read_script
from .shell_commands import nearby
from .shell_text import Command, Script, readable, unknown_names
from .slurm import batch_gpu, batch_lines
from .yaml_files import read_text, read_yaml, resolved

_FEW = 3  # words that a note shows


@dataclass
class JobSettings:
    """The values of one file by dotted key; `words` are the other words of a command line, `used`
    the keys asked for, `environment` the variables that a value still depends on, `notes` what was
    decided while reading, `gpus` the kinds of GPU that a launcher is asked for.
    """

    file: str
    values: dict[str, Any]
    words: tuple[str, ...] = ()
    used: set[str] = field(default_factory=set)
    environment: dict[str, list[str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()

    def find(self, *keys: str) -> tuple[str, Any] | None:
        """The first of `keys` that is set, with its value; all of them count as read."""
        self.used.update(keys)
        return next(
            ((key, self.values[key]) for key in keys if self.values.get(key) not in (None, "null")),
            None,
        )

    def value(self, *keys: str, default: Any = None) -> Any:
        """The value of the first of `keys` that is set."""
        setting = self.find(*keys)
        return setting[1] if setting else default

    def number(self, *keys: str) -> tuple[str, int | float] | None:
        """The first of `keys` that is set, as a number above or at 0; RFabricError for anything
        else.
        """
        setting = self.find(*keys)
        if setting is None:
            return None
        key, value = setting
        if isinstance(value, str) and is_number(value):  # quoted, or of ${oc.env:NAME,8}
            value = scalar(value)
            value = float(value) if isinstance(value, str) else value  # 1e-3: text to YAML alone
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
            raise RFabricError(
                f"{self.file}: {key} is {shown(value)}, not a number from 0 "
                f"to 1e15; {self.way_out(key)}"
            )
        return key, int(value) if value == int(value) else value

    def way_out(self, key: str) -> str:
        """What to do where the value of `key` is not known."""
        names = self.environment.get(key)
        return f"say --env {names[0]}=VALUE" if names else "write it out"

    def lacks(self, key: str) -> str:
        """The error that `key` is not set, with the files of settings that are not there."""
        return f"{self.file}: {key} is not set, and a recipe cannot do without it{self.away}"

    @property
    def away(self) -> str:
        """The files of settings that are not there, in brackets behind what may stand in them."""
        away = [note for note in self.notes if note.endswith("left out") and " is not " in note]
        return f" ({'; '.join(away)})" if away else ""

    def flag(self, *keys: str) -> bool:
        """Whether the first of `keys` that is set says yes."""
        value = self.value(*keys)
        return str(value).lower() in ("true", "1", "yes", "on", "")

    def drop(self, beginning: str) -> None:
        """Forget the keys that begin so: a section that is off."""
        self.values = {k: v for k, v in self.values.items() if not k.startswith(beginning)}

    def left(self) -> dict[str, Any]:
        """What nobody asked for."""
        return {key: value for key, value in self.values.items() if key not in self.used}


def shown(value: Any) -> str:
    """A value as an error can show it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def read_settings(path: str | Path, environment: Mapping[str, str] | None = None) -> JobSettings:
    """The settings of a YAML file, or of the command lines of a shell script or text file.

    `environment`: variables the job would find set; all others are unset, whatever the shell that
    calls has. RFabricError where the file is neither, or cannot be read.
    """
    path = Path(path)
    if path.suffix.lower() in (".json", ".toml", ".py"):
        raise RFabricError(f"{path}: give the job's YAML file or launch script, not {path.suffix}")
    if path.suffix.lower() in (".yaml", ".yml"):
        if run := launched(path):
            told = run.variables | dict(environment or {})
            return replace(_of_script(path, run.script, told), gpus=run.gpus)
        values, notes = read_yaml(path, environment or {})
        return JobSettings(str(path), values, notes=notes)
    text = read_text(path)
    gpus = tuple(filter(None, [batch_gpu(batch_lines(text))]))
    return replace(_of_script(path, text, environment or {}), gpus=gpus)


# --- shell ----------------------------------------------------------------------------------------


def _of_script(path: Path, text: str, environment: Mapping[str, str]) -> JobSettings:
    """Overrides and flags of the command that starts the job."""
    script = read_script(path, text, environment)
    job = _job(script)
    values, words = set_by(_spelt_out(_without_launcher(job.words)))
    if not values and not words:
        why = f" ({script.notes[-1]})" if script.notes else ""
        raise RFabricError(f"{path}: sets nothing{why}; give the job's YAML file or launch script")
    seen = {**environment, **job.environment}
    values, config_notes = _over_config(script, values, seen, _removed(words))
    values, counted = _without_counts(values)
    unset = {key: unknown_names(value) for key, value in values.items() if isinstance(value, str)}
    return JobSettings(
        str(path),
        {key: readable(v) if isinstance(v, str) else v for key, v in values.items()},
        (*map(readable, words), *script.sourced),
        environment={key: names for key, names in unset.items() if names},
        notes=(
            *_defaults_taken(script),
            *_taken_as_absent(script),
            *script.notes,
            *config_notes,
            *counted,
            *_left_out(script, job),
            *_not_understood(words),
        ),
    )


def _without_counts(values: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The values without those that are what a machine's GPUs are counted by, with a note each: the
    framework's default stands for them.
    """
    said = {key: readable(value) for key, value in values.items() if isinstance(value, str)}
    counted = {key: text for key, text in said.items() if _COUNTS.fullmatch(text)}
    notes = (
        f"{key}: what {text[2:-1]} prints where the job runs; by the framework's default here"
        for key, text in counted.items()
    )
    return {key: each for key, each in values.items() if key not in counted}, tuple(notes)


_COUNTS = re.compile(r"\$\((?:nvidia-smi|rocm-smi|amd-smi|npu-smi|device_count|ls /dev/nvidia\*)\)")


def _job(script: Script) -> Command:
    """The command that sets most, of those that may be a job: scripts also fetch data, convert
    checkpoints and start Ray.

    Where no python sets anything on the way that was taken, the job may stand on another.
    """
    most, beside = map(_most, (_that_may_be_rl(script.commands), script.beside))
    if _of_job(beside) and not any(map(_of_job, script.commands)):
        script.notes.append(
            f"the job on line {beside.line} is read, though whether it is reached cannot be known"
        )
        return beside
    return most


def _most(commands: Sequence[Command]) -> Command:
    likely = [command for command in commands if _may_be_job(command.words)]
    most = max(likely or commands, key=lambda c: len(set_by(c.words)[0]), default=None)
    return most or Command((), 0)


def _may_be_job(words: Sequence[str]) -> bool:
    """Whether a command names a python, a module or a setting within a section: `ray start --head
    --port=1` and a download do not.
    """
    return any(word == "-m" or _PYTHON.fullmatch(word) or _INSIDE.match(word) for word in words)


_INSIDE = re.compile(r"[-+]{0,2}[A-Za-z_]\w*\.[\w.]+=")


def _that_may_be_rl(commands: Sequence[Command]) -> Sequence[Command]:
    """Commands without those that fine-tune, generate or evaluate, where another sets much too."""
    others = [c for c in commands if not any(map(_HALF, c.words))]
    sets = [len(set_by(_most(each).words)[0]) for each in (others, commands) if each]
    return others if others and sets[0] * 2 > sets[-1] else commands


_HALF = re.compile(r"sft_loss|--debug-\w+-only|.*(sft_trainer|main_generation|main_eval)").match


def _of_job(command: Command) -> bool:
    """Whether a command starts a python that is told something."""
    own = _without_launcher(command.words)
    return bool(own and _PYTHON.fullmatch(own[0]) and set_by(own)[0])


def _without_launcher(words: Sequence[str]) -> Sequence[str]:
    """The words from the job's python on; srun and `ray job submit` have their own before it."""
    at = next((i for i, word in enumerate(words) if _PYTHON.fullmatch(word)), 0)
    return words[at:]


_PYTHON = re.compile(r"(?:.*/)?python[\d.]*|[^=\s]+\.py")


def _spelt_out(words: Sequence[str]) -> list[str]:
    """Hydra's short options for its config, such as -cn, in their long form."""
    parts = (word.partition("=") for word in words)
    return ["".join((_SHORT.get(option, option), *rest)) for option, *rest in parts]


_SHORT = {"-cp": "--config-path", "-cn": "--config-name", "-cd": "--config-dir"}


def _removed(words: Sequence[str]) -> list[str]:
    """The keys that Hydra's ~key and ~key=value take away."""
    return [w[1:].partition("=")[0] for w in words if re.match(r"~[A-Za-z_]", w)]


def _not_understood(words: Sequence[str]) -> tuple[str, ...]:
    """A note of words that set something, but no key by its name."""
    strange = [readable(w) for w in words if re.match(r"[^-~=][^=]*=", w)]
    said = ", ".join(map(shown, strange[:_FEW])) + (", ..." if strange[_FEW:] else "")
    return (f"not understood, left out: {said}",) if strange else ()


def _over_config(
    script: Script, values: dict[str, Any], environment: Mapping[str, str], removed: Sequence[str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The command's values over those of the config file it names, which the script makes or which
    stands near; a note where neither is so.

    Named as Hydra has it (`--config-path` or `--config-dir`, `--config-name`), as ROLL has it (with
    _) or as one `--config FILE`.
    """
    said = {key.replace("-", "_"): str(values[key]) for key in values if key.startswith("config")}
    name = said.get("config") or said.get("config_name")
    if not name:
        return resolved(values, str(script.path), environment), ()
    # Hydra looks in config_dir too, after config_path
    folders = [said[key] for key in ("config_path", "config_dir") if said.get(key)] or [""]
    names = [readable("/".join(filter(None, (folder, name)))) for folder in folders]
    name = next((each for each in names if _has_config(script, each)), names[0])
    own = {key: each for key, each in values.items() if not key.startswith("config")}
    with _config_file(script, name) as (file, folder):
        if file is None:
            why = "is not near the script; what it sets is left out"
            own = resolved(values, str(script.path), environment)
            return own, (f"the config file {name} {why}",)
        other = [readable(each) for each, of in zip(folders, names, strict=True) if of != name]
        start = script.path.parent
        below, notes = read_yaml(file, environment, own, removed, folder, other, start)
    values = {key: each for key, each in own.items() if key in below} | below
    return values, (f"the config file {file.name} is read below the command's words", *notes)


def _made(script: Script, name: str) -> tuple[str, str]:
    """Where a script would make a config file, and the file's name with its ending."""
    name = name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"
    return posixpath.normpath(posixpath.join(script.path.parent, name)), name


def _has_config(script: Script, name: str) -> bool:
    made, name = _made(script, name)
    return made in script.written or nearby(name, script.path) is not None


@contextmanager
def _config_file(script: Script, name: str) -> Iterator[tuple[Path | None, Path | None]]:
    """The config file that a command names, as it stands near, or as the script writes it and
    where.
    """
    made, name = _made(script, name)
    if made not in script.written:
        yield nearby(name, script.path), None
        return
    with TemporaryDirectory() as folder:
        file = Path(folder) / Path(name).name
        file.write_text(readable(script.written[made]), encoding="utf-8")
        yield file, Path(made).parent


def _left_out(script: Script, job: Command) -> tuple[str, ...]:
    """A note of other commands that set as much as the job, or much the same: a sweep, stages."""
    own = set_by(job.words)[0].keys()
    others = [set_by(c.words)[0].keys() for c in script.commands if c != job]
    if any(len(keys) == len(own) > 3 for keys in others):
        count = 1 + sum(len(keys) == len(own) for keys in others)
        return (f"{count} commands set as much; the first, on line {job.line}, was read",)
    like = [keys for keys in others if len(keys & own) * 2 > len(own) > 3]
    if not like:
        return ()
    said = f"{len(like) + 1} commands set much the same"
    return (f"{said}; the one on line {job.line}, which sets most, was read",)


def _defaults_taken(script: Script) -> tuple[str, ...]:
    """One note of all variables that the script leaves to its environment."""
    if not script.defaulted:
        return ()
    said = ", ".join(f"{name}={value}" for name, value in sorted(script.defaulted.items()))
    return (f"not set in the environment, so by the script's own default: {said}",)


def _taken_as_absent(script: Script) -> tuple[str, ...]:
    """One note of all files that the script asks for and that are not in its folder."""
    if not script.absent:
        return ()
    names = [f"{name} (line {line})" for name, line in script.absent.items()]
    said = ", ".join(names[:_FEW]) + (", ..." if names[_FEW:] else "")
    return (f"not in the script's folder, so taken as not there: {said}",)
