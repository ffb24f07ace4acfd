"""The verb `cost`: bills of networks, and which price decides between two.

RFabricError for options that do not go together.
"""

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

from ..errors import RFabricError
from ..fabric import Fabric, parse_fabric
from ..fabric.cost import METRES, Bill, Flip, bill, flips, price_table
from ..fabric.dollars import Gpus, step_cost
from ..fabric.spec import with_setting
from ..files import twice
from ..report.compare import DOLLARS, Table, bill_table
from ..units import parse_rate
from .arguments.parsing import refuse_typed
from .terminal import Talk, print_json, show_notes, show_tables

OF_A_STEP = ("--gpu-usd-per-hour", "--gpu-watts", "--price-holds", "--years", "--usd-per-kwh")


def cost(args: argparse.Namespace) -> None:
    """Bills of the fabrics that were asked for; with several or `--sweep`, which price flips their
    order.
    """
    if not args.step_s:
        refuse_typed(args, OF_A_STEP, "is of what a step costs: say how long it is by --step-s")
    if not args.gpu_usd_per_hour:
        refuse_typed(args, ["--price-holds"], "is of a price: add --gpu-usd-per-hour")
    prices = price_table(Path(args.prices)) if args.prices else ()
    metres = _metres(args.metres)
    if args.rate:
        parse_rate(args.rate, "--rate")
    specs = list(dict.fromkeys(args.topo)) or ["fat-tree", "rfabric"]
    if args.sweep and len(specs) < 2:
        raise RFabricError("--sweep says which price flips the order of fabrics: give --topo twice")
    with Talk(args.quiet) as talk:
        fabrics = [_priced_fabric(spec, args, talk) for spec in specs]
        bills = {f.spec: bill(f, prices, copper=args.copper, metres=metres) for f in fabrics}
    documents = [_document(fabric, bills[fabric.spec], args) for fabric in fabrics]
    alike = _as_dear(bills)
    swept = [f for f in flips(bills) if (f.a, f.b) not in alike] if args.sweep else []
    if args.json:
        sweep = {"sweep": [_flip_json(flip, bills) for flip in swept]} if args.sweep else {}
        alone = documents[0] if len(documents) == 1 else {}
        print_json(alone | {"fabrics": documents} | sweep)
        return
    several = [_overview(documents)] if len(documents) > 1 or args.step_s else []
    show_tables(
        [bill_table(_title(entry), bills[entry["spec"]]) for entry in documents]
        + several
        + [_sweep(swept, bills)]
    )
    if not args.quiet:
        show_notes(_notes(documents, alike if args.sweep else ()))


def _as_dear(bills: Mapping[str, Bill]) -> list[tuple[str, str]]:
    """The pairs of networks that cost the same, of which none is the cheaper, in the order of the
    bills.
    """
    return [(a, b) for a, b in combinations(bills, 2) if math.isclose(bills[a].usd, bills[b].usd)]


def _notes(documents: Sequence[dict], alike: Sequence[tuple[str, str]]) -> Iterator[str]:
    """What the order of the networks does not tell."""
    if len({entry["gpus"] for entry in documents}) > 1:
        yield (
            "the networks have room for different numbers of GPUs, and dollars are those of whole "
            "ones: see USD a GPU, or name sizes that are alike"
        )
    for first, second in alike:
        yield f"{first} and {second} cost the same: none is the cheaper"


def _priced_fabric(spec: str, args: argparse.Namespace, talk: Talk) -> Fabric:
    """The fabric of a spec, at the rate and size that were asked for where the spec leaves them
    open.
    """
    talk.tell(spec, {"stage": "fabric"})
    if args.rate:
        spec = with_setting(spec, "rate", args.rate)
    return parse_fabric(spec, args.gpus, least=1)


def _metres(settings: Sequence[str]) -> Mapping[str, float]:
    metres = dict(METRES)
    if (tier := twice(text.partition("=")[0] for text in settings)) is not None:
        raise RFabricError(f"--metres sets {tier} twice; keep one")
    for text in settings:
        tier, _, value = text.partition("=")
        try:
            length = float(value)
        except ValueError:
            length = -1.0
        if tier not in METRES or not 0 <= length < float("inf"):
            raise RFabricError(
                f"--metres {text!r}: write TIER=METRES with one of {', '.join(METRES)}"
            )
        metres[tier] = length
    return metres


def _document(fabric: Fabric, priced: Bill, args: argparse.Namespace) -> dict:
    """What `--json` says of one fabric."""
    gpus = len(fabric.hosts)
    document = {
        "fabric": fabric.name,
        "spec": fabric.spec,
        "gpus": gpus,
        "gpus_asked": args.gpus or gpus,
    }
    document |= priced.to_json() | {"usd_per_gpu": round(priced.usd / gpus, 2)}
    document["parts"] = [line.to_json() for line in priced.lines]
    if args.step_s:
        one = Gpus(
            args.gpu_usd_per_hour, args.gpu_watts, args.price_holds if args.gpu_usd_per_hour else ()
        )
        paid = step_cost(
            args.step_s, one.times(gpus), priced, years=args.years, usd_per_kwh=args.usd_per_kwh
        )
        document |= paid.to_json() | {
            "step_s": args.step_s,
            "years": args.years,
            "usd_per_kwh": args.usd_per_kwh,
        }
    return document


def _title(entry: dict) -> str:
    return f"{entry['spec']}: {entry['gpus']:,} GPUs, {entry['usd_per_gpu']:,.0f} USD each"


def _overview(documents: Sequence[dict]) -> Table:
    paid = "usd_per_step" in documents[0]
    rows = [(e["spec"], f"{e['gpus']:,}", *_sums(e), *_step(e, paid)) for e in documents]
    columns = "fabric", "GPUs", "USD", "W", "USD a GPU"
    return Table.of(
        "Networks", columns + (("USD a step", *DOLLARS.values()) if paid else ()), rows, words=(0,)
    )


def _sums(entry: dict) -> tuple[str, ...]:
    watts = entry["network_watts"]
    return (
        f"{entry['network_usd']:,.0f}",
        "–" if watts is None else f"{watts:,.0f}",
        f"{entry['usd_per_gpu']:,.0f}",
    )


def _step(entry: dict, paid: bool) -> tuple[str, ...]:
    if not paid:
        return ()
    parts = (entry["usd_per_step_parts"][part] for part in DOLLARS)
    return f"{entry['usd_per_step']:,.3f}", *(
        "–" if part is None else f"{part:,.4f}" for part in parts
    )


def _sweep(swept: Sequence[Flip], bills: Mapping[str, Bill]) -> Table:
    """Each price, by how much it would have to change for the dearer of two fabrics to be the
    cheaper.
    """
    rows = [(str(flip), f"{flip.usd:,.4g}", *_flip(flip, bills)) for flip in swept]
    columns = "price", "USD", "cheaper now", "than", "equal at", "which is x"
    note = "A price that both use alike, or that cannot outweigh the others, never flips the order."
    return Table.of("Which price flips the order", columns, rows, note, (0, 2, 3))


def _flip(flip: Flip, bills: Mapping[str, Bill]) -> tuple[str, ...]:
    cheap, dear = sorted((flip.a, flip.b), key=lambda label: bills[label].usd)
    if flip.factor is None:
        return cheap, dear, "never", ""
    return cheap, dear, f"{flip.factor * flip.usd:,.4g}", f"{flip.factor:.3g}"


def _flip_json(flip: Flip, bills: Mapping[str, Bill]) -> dict:
    cheap, dear = sorted((flip.a, flip.b), key=lambda label: bills[label].usd)
    flipped = None if flip.factor is None else flip.factor * flip.usd
    return {
        "part": str(flip), "unit_usd": flip.usd, "cheaper": cheap, "dearer": dear,
        "flips_at_factor": flip.factor, "flips_at_usd": flipped,
    }  # fmt: skip
