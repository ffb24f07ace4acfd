"""The verbs around the phase model: `validate`, `validate-run`, `model`, `import`.

RFabricError for what cannot be modelled.
"""

import argparse
import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ..compute.between import RAILS
from ..compute.layout import Layout
from ..compute.model_card import model_card
from ..compute.named import load_model
from ..compute.sync_time import SOFTWARE
from ..errors import RFabricError
from ..files import replacing
from ..report.compare import PHASE_NAMES, Row, Table
from ..report.folder import write_text, writing
from ..rl.imports import import_job
from ..rl.imports.unread import grouped, told
from ..study.validate import PointGroup, left_unread
from ..study.validate import validate as validated
from ..study.validate.experiments import experiment
from ..study.validate.goals import SHARES, Reached, reached
from ..study.validate.leave_one_out import (
    constants_hash,
    leave_one_out,
    refitted,
    refitted_sync,
    sync_constants_hash,
)
from ..study.validate.residuals import residuals
from ..study.validate.standing import model_hash
from ..study.validate_run import RunBeside
from ..study.validate_run import validate_run as compared_run
from ..units import show_between, show_size
from .terminal import Talk, print_json, show_notes, show_tables

NAME_WIDTH, FILE_WIDTH = 48, 40  # of a group's name and file, so that their table fits 160 columns


def validate(args: argparse.Namespace) -> None:
    """rfabric validate: the model beside measurements."""
    model = _frozen(args.blind)
    if args.residuals:
        with Talk(args.quiet) as talk:
            talk.tell("validate", {"stage": "residuals"})
            write_text(Path(args.residuals), residuals(args.folder))
        print(args.residuals)
        return
    with Talk(args.quiet) as talk:
        if args.experiment:
            talk.tell("validate", {"stage": args.experiment})
            groups = experiment(args.folder, args.experiment)
            beside = {"experiment": args.experiment}
        elif args.leave_one_out:
            groups = leave_one_out(args.folder)
            goals = reached(args.folder, groups)
            beside = {"asked": [one.to_json() for one in goals], **_constants(args.folder)}
        else:
            groups = validated(args.folder, lambda file: talk.tell("validate", {"stage": file}))
            beside = {"not_compared": left_unread(args.folder)}
    if args.json:
        told = {"model_hash": model, "groups": _by_name(groups, args.rows), **beside}
        print_json(told)
        return
    print(f"model (formulas, constants, catalogs): sha256 {model}")
    if "asked" in beside:
        show_tables([_asked(goals)])
        _show_constants(beside)
    if args.rows:
        show_tables([_points(group) for group in groups])
    show_tables([_overview(groups), _parts(groups), _figures(groups), _left_out(groups)])
    if "not_compared" in beside:
        show_tables([_not_compared(beside["not_compared"])])


def _asked(goals: Sequence[Reached]) -> Table:
    """What is asked beside what is reached; shares of rows are to be above, errors below."""
    rows = [
        (
            f"{one.name}: {one.measure}",
            f"{'at least' if one.measure in SHARES else 'at most'} {one.asked:.1%}",
            f"{one.reached:.1%}",
            "" if one.met else "missed",
            f"{one.rows:,}",
            one.basis,
        )
        for one in goals
    ]
    columns = "", "asked", "reached", "", "rows", "basis"
    return Table.of("What is asked, and what is reached", columns, rows, words=(0, 3, 5))


def _frozen(wanted: str | None) -> str:
    """The hash of the model; RFabricError where another one was to be judged."""
    model = model_hash()
    if wanted and wanted != model:
        raise RFabricError(
            f"--blind {wanted}: this model is {model}; it was changed since, check out the one "
            "that was frozen or leave the hash out"
        )
    return model


def _constants(folder: str) -> dict:
    """Constants between servers by transport, and of weight syncs, as shipped and as fitted now, in
    SI units; null: nothing to fit on.
    """
    sync = refitted_sync(folder)
    return {
        "shipped": {name: asdict(rails) for name, rails in RAILS.items()},
        "shipped_hash": constants_hash(),
        "fitted": {name: asdict(rails) for name, rails in refitted(folder).items()},
        "weight_sync_shipped": asdict(SOFTWARE),
        "weight_sync_shipped_hash": sync_constants_hash(),
        "weight_sync_fitted": asdict(sync) if sync else None,
    }


def _show_constants(constants: dict) -> None:
    hashed = constants["shipped_hash"], constants["weight_sync_shipped_hash"]
    if constants["fitted"]:
        print(f"constants between servers, shipped (sha256 {hashed[0]}) and fitted on all systems")
    for transport, fitted in constants["fitted"].items():
        _show_pairs(transport, constants["shipped"][transport], fitted)
    if constants["weight_sync_fitted"]:
        print(f"constants of weight sync, shipped (sha256 {hashed[1]}) and fitted on all systems")
        _show_pairs("", constants["weight_sync_shipped"], constants["weight_sync_fitted"])


def _show_pairs(name: str, shipped: dict, fitted: dict) -> None:
    for key, value in shipped.items():
        print(f"  {name:6} {key:12} {value:11.4g} {fitted[key]:11.4g}")


def validate_run(args: argparse.Namespace) -> None:
    """rfabric validate-run: a recipe beside what its job logged."""
    run = compared_run(args.log, args.traffic, args.set, args.seed)
    notes = run.notes
    if args.json:
        told = {
            "log": args.log, "traffic": args.traffic, "steps": len(run.log.steps),
            "phases": [phase.to_json() for phase in run.phases],
            "a_faster_fabric_could_shorten": [phase.phase for phase in run.shortened],
            "notes": notes,
        }  # fmt: skip
        print_json(told)
        return
    show_tables([_run_table(args.traffic, args.log, run)])
    if not args.quiet:
        show_notes(notes)


def _run_table(recipe: str, log: str, run: RunBeside) -> Table:
    columns = ("", "predicted", "80 % within", "logged, median", "p90", "predicted/logged", "steps",
               "awaits bytes", "fabric could save")  # fmt: skip
    rows = []
    for one in run.phases:
        seconds = (one.predicted_s, one.logged_s, one.logged_p90_s)
        cells = ["–" if value is None else f"{value:.3f} s" for value in seconds]
        cells.insert(1, "–" if one.low_s is None else show_between(one.low_s, one.high_s))
        cells += [
            f"{one.ratio:.2f} x" if one.ratio else "–",
            str(one.steps),
            f"{one.fabric_s:.3f} s",
        ]
        cells += ["–" if one.could_save_s is None else f"{one.could_save_s:.3f} s"]
        rows.append(Row(PHASE_NAMES.get(one.phase, one.phase), tuple(cells)))
    return Table(f"{recipe} against {len(run.log.steps)} steps of {log}", columns, tuple(rows))


def import_(args: argparse.Namespace) -> None:
    """rfabric import: a recipe from another framework's job."""
    job = import_job(
        args.framework, args.file, args.model, args.gpu, args.lengths, _environment(args.env)
    )
    if job.misfit:
        raise RFabricError(f"{args.file}: the recipe cannot run: {job.misfit}{job.way_out}")
    if args.output:
        with writing(args.output), replacing(Path(args.output)) as beside:
            beside.write_text(job.yaml(), encoding="utf-8")
    if args.json:
        said = {
            key: getattr(job, key)
            for key in ("framework", "file", "assumed", "unmapped", "ignored", "notes")
        }
        print_json(said | {"recipe": job.recipe(), "misfit": job.misfit})
        return
    if not args.output:
        print(job.yaml(), end="")
    if args.quiet:
        return
    for note in job.notes:
        print(f"note: {note}", file=sys.stderr)
    for name, keys in grouped(job.unmapped).items():
        lines = [f"not mapped: {key}" for key in keys] if args.verbose else [told(name, keys)]
        print(*lines, sep="\n", file=sys.stderr)
    print(
        f"{len(job.values)} keys, {len(job.assumed)} of them assumed; settings not mapped: "
        f"{len(job.unmapped)}; without effect on time and traffic: {len(job.ignored)}",
        file=sys.stderr,
    )


def _environment(words: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE words as a mapping."""
    pairs = [word.partition("=") for word in words]
    for name, equals, _ in pairs:
        if not equals or not name.isidentifier():
            raise RFabricError(f"--env {name}: write NAME=VALUE, for example --env NNODES=8")
    return {name: value for name, _, value in pairs}


def model(args: argparse.Namespace) -> None:
    """rfabric model: what a model is made of and fits on."""
    ranks = math.lcm(args.tp, args.ep)
    layout = Layout.over(ranks * args.pp, tp=args.tp, pp=args.pp, ep=args.ep)
    told = model_card(load_model(args.model), layout, args.context, args.precision)
    if args.json:
        print_json(told)
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
            "in layers that predict further tokens, not counted above",
            _billions(told["mtp_parameters"]),
        ),
        (f"weights, {told['precision']}", show_size(told["weight_bytes"])),
        (
            f"weights as published, {told['published_precision']}",
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
    rows = [(name, value) for name, value in lines if value]
    return Table.of(told["model"], ("", ""), rows)


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
    rows = [
        (
            _short(g.name),
            f"{len(g.points):,}",
            f"{len(g.unmodelled):,}",
            *_errors(g),
            _times(g.interval),
            g.basis,
            _short(g.file, FILE_WIDTH),
        )
        for g in groups
    ]
    columns = "group", "modelled", "left out", "median", "p90", "80 % within", "basis", "file"
    said = "errors are relative; 80 % of measurements lie between so many times the model"
    return Table.of("Model against measurement", columns, rows, said, (0, 6, 7))


def _errors(g: PointGroup) -> tuple[str, ...]:
    return tuple("–" if e is None else f"{e:.1%}" for e in (g.median_error, g.p90_error))


def _times(interval: tuple[float, float] | None) -> str:
    return "–" if interval is None else f"{interval[0]:.2f}–{interval[1]:.2f}"


def _parts(groups: Sequence[PointGroup]) -> Table:
    """Groups by model, GPU and scale."""
    rows = [
        (_short(g.name), part, f"{len(p.points):,}", *_errors(p), _times(p.interval))
        for g in groups
        for part, p in g.parts.items()
    ]
    columns = "group", "part", "modelled", "median", "p90", "80 % within"
    return Table.of("Within the groups", columns, rows, words=(0, 1))


def _not_compared(files: dict[str, str]) -> Table:
    """Files by folder and reason."""
    folders = Counter((name.split("/")[0], why) for name, why in files.items())
    rows = [(folder, f"{many:,}", why) for (folder, why), many in folders.items()]
    columns = "file or folder", "files", "why"
    return Table.of("Files not compared with", columns, rows, words=(0, 2))


def _short(text: str, width: int = NAME_WIDTH) -> str:
    """`text` cut in its middle where it is longer than a column of a terminal has room for."""
    half = width // 2
    return text if len(text) <= width else f"{text[:half]}…{text[half + 1 - width :]}"


def _figures(groups: Sequence[PointGroup]) -> Table:
    """What a group says beside its errors."""
    rows = [
        (_short(g.name), name.replace("_", " "), f"{value:,.2f}")
        for g in groups
        for name, value in g.extra
    ]
    return Table.of("Beside the errors", ("group", "figure", "value"), rows, words=(0, 1))


def _points(group: PointGroup) -> Table:
    rows = [
        (p.name, f"{p.measured:,.4g}", f"{p.modelled:,.4g}", p.unit, f"{p.error:+.1%}")
        for p in group.points
    ]
    columns = "row", "measured", "model", "unit", "error"
    return Table.of(f"{group.name} ({group.file})", columns, rows, group.note, (0, 3))


def _left_out(groups: Sequence[PointGroup]) -> Table:
    rows = [(_short(group.name), text) for group in groups for text in group.unmodelled]
    return Table.of("Rows left out", ("group", "row and reason"), rows, words=(0, 1))
