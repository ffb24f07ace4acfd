"""What all pictures share: colours, bare axes, tooltips; a figure as SVG or as PNG."""

import io
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from ...files import replacing
from ..folder import writing

PHASE_COLOURS = {"generation": "#4f86e8", "training": "#e8912d", "weight_sync": "#2fa678"}
OTHER_COLOUR = "#8f7fd6"
OCS_COLOUR, EPS_COLOUR, DARK_COLOUR = "#8f7fd6", "#4f86e8", "#d6568c"
PAGE_WIDTH = 11.0  # inches: a figure of this width fills the page


@dataclass(frozen=True)
class Theme:
    """Colours of ink and paper.

    The default ones are stand-ins that `svg` replaces by the page's CSS variables.
    """

    ink: str = "#010203"
    muted: str = "#040506"
    grid: str = "#070809"
    paper: str = "#0a0b0c"


PAGE = Theme()
PRINT = Theme("#1d2430", "#68727f", "#d5dae1", "#ffffff")


def svg(figure: Figure) -> str:
    """The figure as an <svg> element: text stays text, colours follow the page, titles of parts
    become tooltips.
    """
    text = io.StringIO()
    settings = {"svg.fonttype": "none", "svg.hashsalt": "rfabric"}
    with matplotlib.rc_context(settings):
        figure.savefig(
            text, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    body = text.getvalue()
    body = body[body.index("<svg") :]
    for name in ("ink", "muted", "grid", "paper"):
        body = body.replace(getattr(PAGE, name), f"var(--{name})")
    body = re.sub(r'<g id="tip:([^"]*)">', lambda m: f"<g><title>{m[1]}</title>", body)
    body = re.sub(
        r'<svg (.*?)width="[^"]*"',
        rf'<svg \1style="width: {100 * figure.get_figwidth() / PAGE_WIDTH:.1f}%"',
        body,
        count=1,
        flags=re.S,
    )
    body = re.sub(r' height="[\d.]+pt"', "", body, count=1)
    return _unique_ids(body, f"{zlib.crc32(body.encode()):08x}")


def png(figure: Figure, path: str | Path) -> None:
    """Write the figure as a PNG file, beside its name first."""
    drawn = io.BytesIO()  # a PNG's writer seeks in its file, and a pipe has no places
    figure.savefig(drawn, format="png", dpi=160, facecolor=PRINT.paper)
    with writing(path), replacing(Path(path)) as beside:
        beside.write_bytes(drawn.getvalue())


def new_figure(width: float, height: float):
    """An empty figure (inches) and its axes."""
    figure = Figure(figsize=(width, height))
    axes = figure.add_subplot()
    figure.subplots_adjust(left=0.06, right=0.99, top=0.99, bottom=0.02)
    return figure, axes


def bare(axes, theme: Theme, grid: str = "") -> None:
    """No frame, muted ticks, a light grid."""
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(length=0, labelsize=8, colors=theme.muted)
    axes.set_axisbelow(True)
    if grid:
        axes.grid(axis=grid, color=theme.grid, lw=0.8)
    for label in axes.get_yticklabels():
        label.set_color(theme.ink)


def tooltip(artist, text: str) -> None:
    """A tooltip in the SVG."""
    artist.set_gid("tip:" + text)


def _unique_ids(body: str, salt: str) -> str:
    """Ids with `salt`, so that figures of one page do not clash."""
    body = re.sub(r'\bid="([^"]+)"', rf'id="\1-{salt}"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#\1-{salt})", body)
    return re.sub(r'xlink:href="#([^"]+)"', rf'xlink:href="#\1-{salt}"', body)
