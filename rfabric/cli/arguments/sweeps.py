"""The verbs of sweeps and of the store that they fill: what each takes."""

from .options import add_verb, grid_options, step_options, workers_option
from .parsing import Parser, count, shard, share

STORE = "sweep"


def sweep(verbs) -> None:
    """The words of `rfabric sweep`."""
    verb = add_verb(
        verbs,
        "sweep",
        "many cells, simulated on one machine or many, into a store; none is run twice",
        "rfabric sweep --topo fat-tree --topo rfabric,delay={1ms,10ms,100ms} --seeds 100",
        "rfabric sweep --topo fat-tree --topo rfabric --seeds 100 --workers tcp://head:8786",
        "rfabric sweep --topo fat-tree --topo rfabric --seeds 100 --shard 3/16 --store /shared/buy",
        "rfabric sweep --topo fat-tree --topo mixnet --seeds 64 --until 1%",
        module="sweeping",
    )
    verb.set_defaults(engine="simulate")
    step_options(verb, several=True, out=False)
    grid_options(verb)
    _store_option(verb)
    workers_option(verb)
    verb.add_argument(
        "--shard", metavar="I/N", type=shard, default=(1, 1),
        help="only the I-th of N parts, for arrays of jobs; a shared --store, or `rfabric merge`",
    )  # fmt: skip
    verb.add_argument(
        "--cache", metavar="DIR", default="",
        help="where all cells ever run are kept (default ~/.cache/rfabric)",
    )  # fmt: skip
    verb.add_argument(
        "--until", metavar="SHARE", type=share, default=0.0,
        help="end before all seeds are run: drop who is told apart from the best, stop where the "
        "95 %% interval of all others is within so much of the best, such as 1%%",
    )  # fmt: skip
    verb.add_argument(
        "--by", metavar="COLUMN", default="step_s",
        help="the measure that --until looks at, the less the better (default %(default)s)",
    )  # fmt: skip


def best(verbs) -> None:
    """The words of `rfabric best`."""
    verb = add_verb(
        verbs,
        "best",
        "the best networks of a store, job by job, held against each other seed by seed",
        "rfabric best --minimise usd_per_step",
        "rfabric best --minimise step_s --where \"network_usd < 2e6 and fabric like 'rfabric%%'\"",
        module="sweeping",
    )
    which = verb.add_mutually_exclusive_group(required=True)
    which.add_argument("--minimise", metavar="COLUMN", default="", help="the less the better")
    which.add_argument("--maximise", metavar="COLUMN", default="", help="the more the better")
    verb.add_argument(
        "--where", metavar="SQL", default="true", help="only of cells for which this holds"
    )
    verb.add_argument(
        "--most", metavar="N", type=count, default=10, help="so many a job (default %(default)s)"
    )
    _store_option(verb)


def query(verbs) -> None:
    """The words of `rfabric query`."""
    verb = add_verb(
        verbs,
        "query",
        "ask a store in SQL; its one table is called cells, a row a cell",
        'rfabric query "select fabric, avg(step_s), count(*) from cells group by fabric"',
        'rfabric query "describe cells"',
        'rfabric query "from cells" --csv > cells.csv',
        module="sweeping",
    )
    verb.add_argument("sql", metavar="SQL", help="as DuckDB understands it")
    verb.add_argument("--csv", action="store_true", help="the answer as CSV on stdout")
    _store_option(verb)


def merge(verbs) -> None:
    """The words of `rfabric merge`."""
    verb = add_verb(
        verbs,
        "merge",
        "put the cells of several stores into one, each once",
        "rfabric merge shard-1 shard-2 --store all",
        module="sweeping",
    )
    verb.add_argument("stores", metavar="STORE", nargs="+", help="a store of the same rfabric")
    _store_option(verb)


def _store_option(verb: Parser) -> None:
    verb.add_argument(
        "--store", metavar="DIR", default=STORE, help="the store (default ./%(default)s)"
    )
