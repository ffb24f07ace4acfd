"""The verbs of sweeps and of the store that they fill: what each takes."""

from .options import grid_options, step_options, transport_option, workers_option
from .parsing import Parser, count, shard, share

STORE = "sweep"
MEASURE = "step_s"


def sweep(verb: Parser) -> None:
    """Simulate many cells, on one machine or many, into a store; none is run twice.

    rfabric sweep --topo fat-tree --topo rfabric,delay={1ms,10ms,100ms} --seeds 100
    rfabric sweep --topo fat-tree --topo rfabric --seeds 100 --workers tcp://head:8786
    rfabric sweep --topo fat-tree --topo rfabric --seeds 100 --shard 3/16 --store /shared/buy
    rfabric sweep --topo fat-tree --topo mixnet --seeds 64 --until 1%
    """
    verb.set_defaults(engine="simulate")
    step_options(verb, several=True, out=False)
    transport_option(verb)
    grid_options(verb)
    _store_option(verb)
    workers_option(verb)
    verb.takes(
        "--shard I/N",
        "run only the I-th of N parts, for job arrays; share a --store, or `rfabric merge` them",
        shard,
        default=(1, 1),
    )
    verb.takes("--cache DIR", "where the results of all sweeps are kept (default ~/.cache/rfabric)")
    verb.takes(
        "--until SHARE",
        "end before all seeds are run: drop networks that are clearly worse than the best, and "
        "stop once the 95 %% intervals of the others are within this share of the best, such as "
        "1%%",
        share,
        default=0.0,
    )
    verb.takes(
        "--by COLUMN",
        f"the measure that --until looks at, where less is better (default {MEASURE})",
        default="",
    )


def best(verb: Parser) -> None:
    """Rank the networks of a store for each job, compared seed by seed.

    rfabric best --minimise usd_per_step
    rfabric best --minimise step_s --where "network_usd < 2e6 and fabric like 'rfabric%'"
    """
    which = verb.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--minimise", metavar="COLUMN", default="", help="rank by this, less is better"
    )
    which.add_argument(
        "--maximise", metavar="COLUMN", default="", help="rank by this, more is better"
    )
    verb.takes("--where SQL", "only cells for which this is true", default="true")
    verb.takes("--most N", "at most so many a job (default %(default)s)", count, default=10)
    _store_option(verb)


def query(verb: Parser) -> None:
    """Ask a store in SQL; its one table is `cells`, with a row for each cell.

    rfabric query "select fabric, avg(step_s), count(*) from cells group by fabric"
    rfabric query "describe cells"
    rfabric query "from cells" --csv > cells.csv
    """
    verb.takes("sql SQL", "a query in DuckDB's SQL")
    verb.takes("--csv", "print the answer as CSV")
    _store_option(verb)


def merge(verb: Parser) -> None:
    """Merge several stores into one, each cell once.

    rfabric merge shard-1 shard-2 --store all
    """
    verb.takes("stores STORE", "a store that the same version of rfabric wrote", nargs="+")
    _store_option(verb)


def _store_option(verb: Parser) -> None:
    verb.takes("--store DIR", "the store (default ./%(default)s)", default=STORE)
