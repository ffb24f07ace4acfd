"""The verbs of sweeps and of the store that they fill: what each takes."""

from .options import grid_options, step_options, transport_option, workers_option
from .parsing import Parser, count, shard, share

STORE = "sweep"


def sweep(verb: Parser) -> None:
    """Many cells, simulated on one machine or many, into a store; none is run twice.

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
        "only the I-th of N parts, for arrays of jobs; a shared --store, or `rfabric merge`",
        shard,
        default=(1, 1),
    )
    verb.takes("--cache DIR", "where all cells ever run are kept (default ~/.cache/rfabric)")
    verb.takes(
        "--until SHARE",
        "end before all seeds are run: drop who is told apart from the best, stop where the "
        "95 %% interval of all others is within so much of the best, such as 1%%",
        share,
        default=0.0,
    )
    verb.takes(
        "--by COLUMN",
        "the measure that --until looks at, the less the better (default %(default)s)",
        default="step_s",
    )


def best(verb: Parser) -> None:
    """The best networks of a store, job by job, held against each other seed by seed.

    rfabric best --minimise usd_per_step
    rfabric best --minimise step_s --where "network_usd < 2e6 and fabric like 'rfabric%'"
    """
    which = verb.add_mutually_exclusive_group(required=True)
    which.add_argument("--minimise", metavar="COLUMN", default="", help="the less the better")
    which.add_argument("--maximise", metavar="COLUMN", default="", help="the more the better")
    verb.takes("--where SQL", "only of cells for which this holds", default="true")
    verb.takes("--most N", "so many a job (default %(default)s)", count, default=10)
    _store_option(verb)


def query(verb: Parser) -> None:
    """Ask a store in SQL; its one table is called cells, a row a cell.

    rfabric query "select fabric, avg(step_s), count(*) from cells group by fabric"
    rfabric query "describe cells"
    rfabric query "from cells" --csv > cells.csv
    """
    verb.takes("sql SQL", "as DuckDB understands it")
    verb.takes("--csv", "the answer as CSV on stdout")
    _store_option(verb)


def merge(verb: Parser) -> None:
    """Put the cells of several stores into one, each once.

    rfabric merge shard-1 shard-2 --store all
    """
    verb.takes("stores STORE", "a store of the same rfabric", nargs="+")
    _store_option(verb)


def _store_option(verb: Parser) -> None:
    verb.takes("--store DIR", "the store (default ./%(default)s)", default=STORE)
