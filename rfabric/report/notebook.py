"""How a fabric, a result and a comparison show themselves in a notebook: the report's own drawings
and tables as one piece of HTML. Without the libraries that draw they stay the line that `repr`
gives. Names are escaped by the template and by matplotlib.

Fabric and Result stand in rooms below the drawings, so they get their `_repr_html_` from here, as
soon as `report.outcome` is loaded: everything that `import rfabric` hands out.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..errors import RFabricError
from ..fabric import Fabric
from . import compare
from .html import drawing, render
from .result import Result
from .summary import Run, summary_of


def fabric_html(fabric: Fabric) -> str | None:
    """Its pods and cables, and what it is made of; None where nothing can draw."""
    figures = _figures()
    if figures is None:
        return None
    drawn = figures.topology(fabric, figures.PAGE)
    return _piece(fabric, [figures.svg(drawn)], [compare.fabric_table(fabric)])


def run_html(run: Run) -> str | None:
    """The whole step, a row an activity, and what it came to."""
    figures = _figures()
    if figures is None:
        return None
    summary = summary_of([run], "", "")
    tables = [compare.comparison(summary), compare.rewires(summary), compare.fidelity(summary)]
    return _piece(run, [figures.svg(figures.timeline(run.result, figures.PAGE))], tables)


def result_html(result: Result) -> str | None:
    """The same of a result alone."""
    return run_html(Run(result))


def runs_html(compared: Sequence[Run]) -> str | None:
    """Step time, exposed communication and cost, a bar a run, and the table of them."""
    figures = _figures()
    if figures is None or not compared:
        return None
    table = compare.comparison(summary_of(compared, "", ""))
    return _piece(compared, [figures.svg(figures.comparison(compared, figures.PAGE))], [table])


def _figures() -> Any:
    try:
        import jinja2  # noqa: F401  what `render` needs

        return drawing()
    except (ImportError, RFabricError):
        return None


def _piece(shown: object, pictures: Iterable[str], tables: Iterable[compare.Table]) -> str:
    return render("notebook.html", title=repr(shown), pictures=pictures, tables=tables)


_NOUNS: tuple[tuple[Any, Callable], ...] = ((Fabric, fabric_html), (Result, result_html))
for _noun, _html in _NOUNS:
    _noun._repr_html_ = _html
