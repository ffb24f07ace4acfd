"""Optical circuit switches by name: `ocs=piezo` picks ports and delay together, from the table
`ocs.csv`.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import RFabricError, meant
from ...units import parse_time
from .parts import whole


@dataclass(frozen=True)
class Crossbar:
    """One row of the table.

    `item` is what it is priced as; `delay` (s) and `loss_db` are None where no source gives them.
    """

    name: str
    technology: str
    example: str
    item: str
    ports: int
    delay: float | None
    loss_db: float | None
    ports_source: str
    delay_source: str
    loss_source: str


def ocs_of(
    fabric: str, name: str, usual: Crossbar, delay: str | float, ports: int
) -> tuple[int, float, dict]:
    """Ports, seconds that a circuit is dark, and parameters: of `name`, or the builder's `usual`;
    what is said wins. RFabricError where its delay is not published and not given.
    """
    known = _known(name) if name else usual
    seconds = known.delay if delay == "" else parse_time(delay, "delay")
    if seconds is None:
        raise RFabricError(
            f"{fabric}: no published delay of ocs={name} ({known.example}) was found; say delay="
        )
    number = whole("ocs_ports", whole("ocs_ports", ports, 0) or known.ports, 2)
    said = {"delay_s": seconds, "ocs_ports": number, "ocs": name}
    return number, seconds, said | ({"optics": known.item} if name else {})


def ocs_ports_of(given: Mapping, usual: Crossbar) -> int:
    """Ports of the OCSes of a builder that gets these settings."""
    known = _known(given["ocs"]) if given.get("ocs") else usual
    return whole("ocs_ports", given.get("ocs_ports", 0), 0) or known.ports


def _known(name: str) -> Crossbar:
    if name not in CROSSBARS:
        raise RFabricError(
            f"ocs={name!r} is not known{meant(str(name), CROSSBARS)}; there are "
            f"{', '.join(CROSSBARS)}"
        )
    return CROSSBARS[name]


def _crossbars() -> dict[str, Crossbar]:
    text = Path(__file__).parents[1].joinpath("ocs.csv").read_text(encoding="utf-8")
    return {row["name"]: _crossbar(row) for row in csv.DictReader(_rows(text))}


def _rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def _crossbar(row: dict[str, str]) -> Crossbar:
    delay = parse_time(row["delay"], "delay") if row["delay"] else None
    loss = float(row["loss_db"]) if row["loss_db"] else None
    return Crossbar(**row | {"ports": int(row["ports"]), "delay": delay, "loss_db": loss})


CROSSBARS = _crossbars()  # by name
