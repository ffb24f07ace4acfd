"""The verbs around this machine, and those for others' figures: what each takes."""

from ...study.reproduce import JOINT, REPRODUCTIONS
from .options import add_verb, out_option, seed_option, set_option
from .parsing import count, file, port, time


def doctor(verbs) -> None:
    """The words of `rfabric doctor`."""
    verb = add_verb(
        verbs, "doctor", "what this host can emulate",
        "sudo rfabric doctor",
        "rfabric doctor --json",
        module="host",
    )  # fmt: skip
    out_option(verb)


def selftest(verbs) -> None:
    """The words of `rfabric selftest`."""
    verb = add_verb(
        verbs,
        "selftest",
        "do packets here take the seconds that theory says? (root)",
        (
            "sudo rfabric selftest                                  some minutes; exit code 1 "
            "where a bound is broken"
        ),
        "sudo rfabric selftest --hosts 64 --json",
        "sudo rfabric selftest --only fat-tree --only hold      under two minutes",
        module="host",
    )
    verb.add_argument(
        "--hosts", metavar="N", type=count, default=16, help="of each fabric (default %(default)s)"
    )
    verb.add_argument(
        "--only",
        action="append",
        metavar="PART",
        default=[],
        help="one of fat-tree, leaf-spine, rfabric, mixnet, rotor, or a rewire under flows: hold, "
        "drain, drop (repeatable)",
    )
    out_option(verb)


def drill(verbs) -> None:
    """The words of `rfabric drill`."""
    verb = add_verb(
        verbs,
        "drill",
        "what a fault loses, and how soon all is well again: on a live emulation (root)",
        (
            "sudo rfabric drill                                     under 90 s; exit code 1 where "
            "a promise is broken"
        ),
        "sudo rfabric drill --only controller --only cable --json",
        "sudo rfabric drill --soak 5min --hosts 16              rewires under packets: what grows?",
        module="host",
    )
    verb.add_argument(
        "--hosts", metavar="N", type=count, default=8, help="of the fabric (default %(default)s)"
    )
    verb.add_argument(
        "--only",
        action="append",
        metavar="FAULT",
        default=[],
        help="one of controller, commit, clock, disk, connection, cable, mute, half, switches, "
        "sender (repeatable)",
    )
    verb.add_argument(
        "--soak",
        metavar="TIME",
        type=time,
        default=0.0,
        help="no faults, but rewires for so long: memory, descriptors, rules and namespaces must "
        "stay as they are",
    )
    out_option(verb)


def shell(verbs) -> None:
    """The words of `rfabric shell`."""
    verb = add_verb(
        verbs,
        "shell",
        "a prompt on a fabric that is up, in the words of mn (root)",
        "sudo rfabric shell                                     8 hosts; `help`, Ctrl-D to leave",
        "sudo rfabric shell --topo rfabric,pods=2,tors=2,gpus=4 --traffic mine.csv",
        "echo 'h1 ping h5' | sudo rfabric shell",
        module="host",
    )
    verb.add_argument(
        "--topo", metavar="FABRIC", default="rfabric,pods=2,tors=2,gpus=2",
        help="the fabric (default %(default)s)",
    )  # fmt: skip
    verb.add_argument(
        "--rate", metavar="RATE", default="20Mbit/s",
        help="of its fastest cable, as emulated (default %(default)s)",
    )  # fmt: skip
    verb.add_argument(
        "--traffic", metavar="RECIPE", default="", help="a recipe or trace file, for `phase`"
    )
    verb.add_argument(
        "--policy", metavar="POLICY", default="own",
        help="who chooses the circuits of a `phase` (default %(default)s)",
    )  # fmt: skip
    out_option(verb)


def agent(verbs) -> None:
    """The words of `rfabric agent`."""
    add_verb(
        verbs,
        "agent",
        "carry a part of an emulation: what `rfabric emulate --on` starts on each machine (root)",
        'rfabric emulate --on gpu1,gpu2 --rfabric-path "sudo /opt/rfabric/bin/rfabric agent"',
        module="host",
    )


def control(verbs) -> None:
    """The words of `rfabric control`."""
    verb = add_verb(
        verbs,
        "control",
        "run the controller of a fabric under Ryu or os-ken",
        "rfabric control                                        the fabric: read from switches",
        "rfabric control --topo rfabric,pods=2,delay=25ms --port 8081",
        "rfabric control mine.py --topo fat-tree,k=4 --sdn os-ken",
        "rfabric control --topo rfabric --standby --port 8081 --ofp-port 6654",
        "rfabric control --topo rfabric,pods=2 --live           and a page that follows it",
        "rfabric control --host 0.0.0.0 --tls cert=rest.crt,key=rest.key --log json",
        module="host",
    )
    verb.add_argument(
        "app",
        metavar="APP",
        nargs="?",
        default="",
        help="a file like controller/ocs.py (default: what the fabric needs)",
    )
    verb.add_argument(
        "--topo", metavar="FABRIC", default="", help=("the fabric; default: read from the switches")
    )
    verb.add_argument(
        "--host", default="", help="REST address (default 127.0.0.1); any but loopback needs tokens"
    )
    verb.add_argument("--port", type=port, default=0, help="REST port (default 8080)")
    verb.add_argument(
        "--tokens",
        metavar="FILE",
        default="",
        help="lines NAME TOKEN, mode 600; made if absent (default ~/.config/rfabric/tokens)",
    )
    verb.add_argument(
        "--name", metavar="HOSTS", default="", help="names by which clients call this host"
    )
    tls = "cert=FILE,key=FILE[,ca=FILE]"
    verb.add_argument(
        "--tls", metavar=tls, default="", help="HTTPS; with ca, clients must show certificates"
    )
    verb.add_argument("--ofp-tls", metavar=tls, default="", help="the same for OpenFlow")
    verb.add_argument(
        "--ofp-host", default="127.0.0.1", help="OpenFlow address (default %(default)s)"
    )
    verb.add_argument("--ofp-port", type=port, default=6653, help="(default %(default)s)")
    verb.add_argument(
        "--sdn", choices=("ryu", "os-ken"), default="", help="default: Ryu where it is installed"
    )
    verb.add_argument(
        "--log", choices=("text", "json"), default="", help="how log lines are written"
    )
    verb.add_argument(
        "--journal",
        metavar="DIR",
        default="",
        help="where epochs, plans and pairs are kept for the next start (default "
        "$XDG_STATE_HOME/rfabric, ~/.local/state/rfabric; root: /var/lib/rfabric)",
    )
    verb.add_argument(
        "--no-journal", dest="journal", action="store_const", const="none",
        help="keep nothing: the next start begins anew",
    )  # fmt: skip
    verb.add_argument(
        "--standby", action="store_const", const="1", default="",
        help="wait while another controller of this fabric lives, then take over",
    )  # fmt: skip
    verb.add_argument(
        "--live", metavar="PORT", nargs="?", type=port, const=0,
        help="serve a page on loopback that follows circuits, rewires and link rates; its address "
        "goes to stderr (default: a free port)",
    )  # fmt: skip


def ocs(verbs) -> None:
    """The words of `rfabric ocs`."""
    verb = add_verb(
        verbs,
        "ocs",
        "show and change the cross-connects of an OCS under a running controller",
        "rfabric ocs show                                       every port of every OCS",
        "rfabric ocs connect a1 1A-2B 2A-1B                     one commit, one result",
        "rfabric ocs disconnect a1 1-2                          1-2: both ways, 1A-2B and 2A-1B",
        "rfabric ocs gnmi --listen 127.0.0.1:9339               the same by gNMI, until Ctrl-C",
        module="host",
    )
    verb.add_argument("order", metavar="ORDER", choices=("show", "connect", "disconnect", "gnmi"),
                      help="show, connect, disconnect, or gnmi: serve it")  # fmt: skip
    verb.add_argument("ocs", metavar="OCS", nargs="?", default="", help="its name, for example a1")
    verb.add_argument("connects", metavar="CONNECT", nargs="*", help="1A-2B, or 1-2 for both ways")
    verb.add_argument(
        "--url", default="http://127.0.0.1:8080", help="the controller (default %(default)s)"
    )
    verb.add_argument("--tokens", metavar="FILE", default="", help="its first token is sent")
    verb.add_argument("--ca", metavar="FILE", default="", help="who signed the controller's cert")
    verb.add_argument(
        "--listen", metavar="HOST:PORT", default="127.0.0.1:9339",
        help="of gnmi (default %(default)s); any host but loopback needs --tls",
    )  # fmt: skip
    verb.add_argument(
        "--tls", metavar="cert=FILE,key=FILE[,ca=FILE]", default="",
        help="of gnmi; with ca, clients must show certificates",
    )  # fmt: skip


def clean(verbs) -> None:
    """The words of `rfabric clean`."""
    verb = add_verb(
        verbs, "clean", "remove what broken runs left, or end one by its id",
        "rfabric clean",
        "rfabric clean emulation-4711-9f3a",
        module="host",
    )  # fmt: skip
    verb.add_argument(
        "run_id", metavar="RUN", nargs="?", help=("the id of a run to end, even if it is alive")
    )
    out_option(verb)


def bench(verbs) -> None:
    """The words of `rfabric bench`."""
    verb = add_verb(
        verbs,
        "bench",
        ("how fast the simulator is on this machine, beside SimGrid where that is installed"),
        "rfabric bench                                          a few minutes",
        "rfabric bench --case mix --case web-k8 --patience 60s",
        "rfabric bench --patience 0 --json                      without SimGrid",
        "rfabric bench --case planning-64-all-to-all            circuit planning, beside networkx",
        "rfabric bench --case planning-128-joint         a scheduler's, the fabric asked",
        module="host",
    )
    verb.add_argument(
        "--case",
        metavar="NAME",
        action="append",
        default=[],
        help="only this one; may be given again",
    )
    verb.add_argument(
        "--patience", metavar="TIME", default="20s",
        help="CPU time for each run of SimGrid, 0 for none (default %(default)s)",
    )  # fmt: skip
    verb.add_argument(
        "--out", metavar="DIR", default="bench", help="where the tables go (default ./%(default)s)"
    )


def validate(verbs) -> None:
    """The words of `rfabric validate`."""
    verb = add_verb(
        verbs,
        "validate",
        "the phase model against measurements in a folder",
        "rfabric validate ../data",
        "rfabric validate ../data --rows                        every row: measured, model, error",
        "rfabric validate ../data --json",
        (
            "rfabric validate ../data --leave-one-out               each system by constants "
            "fitted on the others"
        ),
        (
            "rfabric validate ../data --blind 0123456789ab          only the model that was frozen "
            "under this hash"
        ),
        module="modelling",
    )
    verb.add_argument(
        "folder",
        metavar="DIR",
        help=("holds models/, measured/, weight_sync/, rl_measured/ or rl_logs/"),
    )
    verb.add_argument("--rows", action="store_true", help="one line a measured point")
    verb.add_argument(
        "--leave-one-out",
        action="store_true",
        help=(
            "collectives between servers, weight syncs and first tokens alone: fit the constants "
            "again, and predict each system by those fitted on all others"
        ),
    )
    verb.add_argument(
        "--blind",
        metavar="HASH",
        help=(
            "judge the model under this hash alone (every run prints its own): nothing is "
            "compared where formulas, constants or catalogs were changed since"
        ),
    )


def validate_run(verbs) -> None:
    """The words of `rfabric validate-run`."""
    verb = add_verb(
        verbs,
        "validate-run",
        "a recipe's predicted phases against those your job logged",
        "rfabric validate-run train.log --traffic grpo-64       verl, slime, NeMo-RL, ROLL",
        "rfabric validate-run tensorboard_log/ --traffic mine.yaml --json",
        module="modelling",
    )
    verb.add_argument(
        "log",
        metavar="LOG",
        help="a console log, JSON lines, or a CSV of metrics; a file "
        "or folder of TensorBoard, wandb (offline) or MLflow, mlflow.db[/RUN]",
    )
    verb.add_argument(
        "--traffic", metavar="RECIPE", required=True,
        help="the recipe of that job (`rfabric import` makes one)",
    )  # fmt: skip
    set_option(verb)
    seed_option(verb)


def reproduce(verbs) -> None:
    """The words of `rfabric reproduce`."""
    verb = add_verb(
        verbs,
        "reproduce",
        ("published experiments run again: paper, ours, ratio, and why they differ"),
        "rfabric reproduce weave                                a few minutes",
        "rfabric reproduce weave --seed 3 --json",
        "rfabric reproduce weave --experiment billing           what a likely cause does",
        "rfabric reproduce joint                                in no paper: what asking the "
        "fabric gains",
        module="reproducing",
    )
    verb.add_argument(
        "paper", metavar="PAPER", choices=(*REPRODUCTIONS, JOINT),
        help=f"{', '.join(REPRODUCTIONS)}; or {JOINT}: three jobs on four fabrics, scheduled apart "
        "from the network and together with it, beside a bound",
    )  # fmt: skip
    verb.add_argument("--markdown", action="store_true", help="print the table for a page")
    verb.add_argument(
        "--experiment",
        metavar="NAME",
        default="",
        help="run what tells the likely cause of a miss in place of the rows; an unknown NAME "
        "lists those of PAPER",
    )
    seed_option(verb)


def completion(verbs) -> None:
    """The words of `rfabric completion`."""
    verb = add_verb(
        verbs,
        "completion",
        "what a shell needs to complete verbs, options, fabrics, recipes and policies",
        'eval "$(rfabric completion bash)"                      in ~/.bashrc',
        "rfabric completion zsh > ~/.zfunc/_rfabric             a folder of $fpath",
        "rfabric completion fish > ~/.config/fish/completions/rfabric.fish",
        module="shells",
    )
    verb.add_argument(
        "shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish"
    )


def man(verbs) -> None:
    """The words of `rfabric man`."""
    verb = add_verb(
        verbs,
        "man",
        "the manual page of rfabric and all its verbs",
        "rfabric man | man -l -",
        "rfabric man -o rfabric.1                               for ~/.local/share/man/man1",
        module="shells",
    )
    verb.add_argument("-o", "--output", metavar="FILE", type=file, help="write it here instead")
