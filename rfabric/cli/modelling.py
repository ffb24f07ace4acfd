"""The verbs around the phase model: `validate`, `model`, `import`."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ..compute.between import RAILS
from ..compute.model_card import Split, model_card
from ..compute.named import load_model
from ..errors import RFabricError
from ..report.compare import Row, Table
from ..report.folder import replacing, writing
from ..rl.imports import import_job
from ..study.validate import PointGroup
from ..study.validate import validate as validated
from ..study.validate.leave_one_out import constants_hash, leave_one_out, refitted
from ..units import show_size
from .terminal import Talk, show_notes, show_tables

NAME_WIDTH = 52  # of a group's name or file, so that their table fits 160 columns


def validate(args: argparse.Namespace) -> None:
    """rfabric validate: the model beside measurements."""
    with Talk(args.quiet) as talk:
        if args.leave_one_out:
            groups, constants = leave_one_out(args.folder), _constants(args.folder)
        else:
            groups = validated(args.folder, lambda file: talk.tell("validate", {"stage": file}))
            constants = {}
    if args.json:
        print(json.dumps({"groups": _by_name(groups, args.rows), **constants}, indent=1))
        return
    if constants:
        _show_constants(**constants)
    if args.rows:
        show_tables([_points(group) for group in groups])
    show_tables([_overview(groups), _figures(groups), _left_out(groups)])


def _constants(folder: str) -> dict:
    """Constants between servers by transport, as shipped and as fitted now, in SI units."""
    return {
        "shipped": {name: asdict(rails) for name, rails in RAILS.items()},
        "shipped_hash": constants_hash(),
        "fitted": {name: asdict(rails) for name, rails in refitted(folder).items()},
    }


def _show_constants(shipped: dict, shipped_hash: str, fitted: dict) -> None:
    print(f"constants between servers, shipped (sha256 {shipped_hash}) and fitted on all systems")
    for transport in shipped:
        for key, value in shipped[transport].items():
            print(f"  {transport:6} {key:11} {value:11.4g} {fitted[transport][key]:11.4g}")


def import_(args: argparse.Namespace) -> None:
    """rfabric import: a recipe from another framework's job."""
    job = import_job(
        args.framework, args.file, args.model, args.gpu, args.lengths, _environment(args.env)
    )
    if args.output:
        with writing(args.output), replacing(Path(args.output)) as beside:
            beside.write_text(job.yaml(), encoding="utf-8")
    if args.json:
        told = {
            key: getattr(job, key)
            for key in ("framework", "file", "assumed", "unmapped", "ignored", "notes")
        }
        print(json.dumps(told | {"recipe": job.recipe(), "misfit": job.misfit}, indent=1))
        return
    if not args.output:
        print(job.yaml(), end="")
    if args.quiet:
        return
    for note in job.notes:
        print(f"note: {note}", file=sys.stderr)
    for key in job.unmapped:
        print(f"not mapped: {key}", file=sys.stderr)
    print(
        f"{len(job.values)} keys, {len(job.assumed)} of them assumed; settings not mapped: "
        f"{len(job.unmapped)}; without effect on time and traffic: {len(job.ignored)}",
        file=sys.stderr,
    )
    if job.misfit:
        print(f"the recipe cannot run as it is: {job.misfit}", file=sys.stderr)


def _environment(words: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE words as a mapping."""
    pairs = [word.partition("=") for word in words]
    for name, equals, _ in pairs:
        if not equals or not name.isidentifier():
            raise RFabricError(f"--env {name}: write NAME=VALUE, for example --env NNODES=8")
    return {name: value for name, _, value in pairs}


def model(args: argparse.Namespace) -> None:
    """rfabric model: what a model is made of and fits on."""
    told = model_card(
        load_model(args.model), Split(args.tp, args.pp, args.ep), args.context, args.precision
    )
    if args.json:
        print(json.dumps(told, indent=1))
        return
    show_tables([_of_model(told), _on_gpus(told)])
    if not args.quiet:
        show_notes(told["notes"])


def _of_model(told: dict) -> Table:
    """What a model comes to, one line a figure."""
    split, at = told["split"], f"at {told['context_tokens']:,} tokens"
    where = f"on each GPU of tp {split['tp']} x pp {split['pp']}" + (
        f", ep {split['ep']}" if split["ep"] else ""
    )
    lines = [
        ("parameters", _billions(told["parameters"])),
        ("passed by a token", _billions(told["active_parameters"])),
        ("in experts", _billions(told["expert_parameters"])),
        (
            ("in layers that predict further tokens, not counted above"),
            _billions(told["mtp_parameters"]),
        ),
        (f"weights, {told['precision']}", show_size(told["weight_bytes"])),
        (
            (f"weights as published, {told['published_precision']}"),
            show_size(told["published_weight_bytes"]),
        ),
        *(
            (f"a layer, {kind}", show_size(size))
            for kind, size in told["layer_weight_bytes"].items()
        ),
        ("KV cache of a token", show_size(told["kv_bytes_per_token"])),
        (f"KV cache of a sequence {at}", show_size(told["kv_bytes_at_context"])),
        (f"prefill, a token {at}", _flops(told["prefill_flops_per_token"])),
        (f"decode, a token {at}", _flops(told["decode_flops_per_token"])),
        (f"training, a token {at}", _flops(told["training_flops_per_token"])),
        (f"weights {where}", show_size(split["weight_bytes_per_gpu"])),
        (f"KV cache of a token {where}", show_size(split["kv_bytes_per_token_per_gpu"])),
    ]
    rows = tuple(Row(name, (value,)) for name, value in lines if value)
    return Table(told["model"], ("", ""), rows)


def _on_gpus(told: dict) -> Table:
    split, at = told["split"], f"{told['context_tokens']:,} tokens"
    title = f"Where it fits: weights in {told['precision']}, 90 % of HBM"
    cut = f"tp {split['tp']} x pp {split['pp']}"
    columns = (
        "GPU",
        "HBM",
        f"KV tokens, {cut}",
        f"GPUs to serve {at}",
        "GPUs to hold training states",
    )
    return Table(title, columns, tuple(Row(name, _fit(on)) for name, on in told["gpus"].items()))


def _fit(on: dict) -> tuple[str, ...]:
    room = f"{on['kv_capacity_tokens']:,}" if on["kv_capacity_tokens"] else "does not fit"
    fewest = (
        f"{n:,}" if n else "–" for n in (on["fewest_gpus_to_serve"], on["fewest_gpus_to_train"])
    )
    return show_size(on["hbm_bytes"]), room, *fewest


def _billions(count: float) -> str:
    return f"{count / 1e9:,.3f} billion" if count else ""


def _flops(count: float) -> str:
    return f"{count / 1e9:,.1f} GFLOP"


def _by_name(groups: Sequence[PointGroup], rows: bool) -> dict[str, dict]:
    return {g.name: g.to_json() | ({"points": g.points_to_json()} if rows else {}) for g in groups}


def _overview(groups: Sequence[PointGroup]) -> Table:
    rows = []
    for g in groups:
        errors = ("–" if e is None else f"{e:.1%}" for e in (g.median_error, g.p90_error))
        counts = f"{len(g.points):,}", f"{len(g.unmodelled):,}"
        rows.append(Row(_short(g.name), (*counts, *errors, _short(g.file))))
    columns = "group", "modelled", "left out", "median error", "p90 error", "file"
    return Table("Model against measurement", columns, tuple(rows), words=(0, 5))


def _short(text: str) -> str:
    """`text` cut in its middle where it is longer than a column of a terminal has room for."""
    half = NAME_WIDTH // 2
    return text if len(text) <= NAME_WIDTH else f"{text[:half]}…{text[half + 1 - NAME_WIDTH :]}"


def _figures(groups: Sequence[PointGroup]) -> Table:
    """What a group says beside its errors."""
    rows = [
        Row(_short(g.name), (name.replace("_", " "), f"{value:,.2f}"))
        for g in groups
        for name, value in g.extra
    ]
    return Table("Beside the errors", ("group", "figure", "value"), tuple(rows), words=(0, 1))


def _points(group: PointGroup) -> Table:
    rows = [
        Row(p.name, (f"{p.measured:,.4g}", f"{p.modelled:,.4g}", p.unit, f"{p.error:+.1%}"))
        for p in group.points
    ]
    columns = "row", "measured", "model", "unit", "error"
    return Table(f"{group.name} ({group.file})", columns, tuple(rows), group.note, (0, 3))


def _left_out(groups: Sequence[PointGroup]) -> Table:
    rows = [Row(_short(group.name), (text,)) for group in groups for text in group.unmodelled]
    return Table("Rows left out", ("group", "row and reason"), tuple(rows), words=(0, 1))
