"""The verbs around this machine, and those for others' figures: what each takes."""

from ...control.addresses import LOOPBACK, OFP_PORT, REST_PORT, REST_URL
from ...schedulers import DEFAULT_CIRCUITS
from ...study.reproduce import REPRODUCTIONS, UNPUBLISHED
from .options import CIRCUITS, live_option, names, out_option, seed_option, set_option
from .parsing import Parser, count, file, port, time, whole


def doctor(verb: Parser) -> None:
    """Say what this host can emulate.

    sudo rfabric doctor
    rfabric doctor --json
    """
    out_option(verb)


def selftest(verb: Parser) -> None:
    """Check that packets here take as long as theory says (root).

    sudo rfabric selftest                 a quarter of an hour; exit code 1 where a bound is broken
    sudo rfabric selftest --hosts 64 --json
    sudo rfabric selftest --only fat-tree --only hold      three minutes
    sudo rfabric selftest --patience 1min                  half as long, flows of fewer packets
    """
    verb.takes("--hosts N", "hosts of each fabric (default %(default)s)", whole, default=16)
    verb.takes(
        "--only PART",
        "only this part: fat-tree, leaf-spine, rfabric, mixnet, rotor, or a rewire under flows: "
        "hold, drain, drop; may be given again",
        several=True,
    )
    verb.takes(
        "--patience TIME",
        "how long the packets of one fabric may take on the wall clock (default 2min for every 16 "
        "hosts)",
        time,
    )
    out_option(verb)


def drill(verb: Parser) -> None:
    """Inject faults into a live emulation: what each loses, how long recovery takes (root).

    sudo rfabric drill                             under 90 s; exit code 1 where a promise is broken
    sudo rfabric drill --only controller --only cable --json
    sudo rfabric drill --soak 5min --hosts 16              rewires under packets: what grows?
    """
    verb.takes("--hosts N", "hosts of the fabric (default %(default)s)", whole, default=8)
    verb.takes(
        "--only FAULT",
        "only this fault: controller, commit, standby, clock, disk, connection, cable, mute, half, "
        "switches, sender; may be given again",
        several=True,
    )
    verb.takes(
        "--soak TIME",
        "inject no faults, but rewire for this long; memory, descriptors, rules and namespaces "
        "must not grow",
        time,
        default=0.0,
    )
    out_option(verb)


def shell(verb: Parser) -> None:
    """Bring up a fabric with a prompt that has the commands of mn (root).

    sudo rfabric shell                                     8 hosts; `help`, Ctrl-D to leave
    sudo rfabric shell --topo rfabric,pods=2,tors=2,gpus=4 --traffic mine.csv
    echo 'h1 ping h5' | sudo rfabric shell
    """
    verb.takes(
        "--topo FABRIC", "the fabric (default %(default)s)", default="rfabric,pods=2,tors=2,gpus=2"
    )
    verb.takes(
        "--rate RATE",
        "the emulated rate of its fastest cable (default %(default)s)",
        default="20Mbit/s",
    )
    verb.takes("--traffic RECIPE", "a recipe or a trace file, whose phases `phase` plays")
    verb.takes(
        "--policy POLICY",
        f"who chooses the circuits of a `phase`: own, {names(CIRCUITS)} (default %(default)s)",
        default=DEFAULT_CIRCUITS,
    )
    out_option(verb)


def agent(verb: Parser) -> None:
    """Carry a part of an emulation; `rfabric emulate --on` starts it on each machine (root).

    rfabric emulate --on gpu1,gpu2 --rfabric-path "sudo /opt/rfabric/bin/rfabric agent"
    """


def control(verb: Parser) -> None:
    """Run the controller of a fabric under Ryu or os-ken.

    rfabric control                                the fabric is read from the switches that connect
    rfabric control --topo rfabric,pods=2,delay=25ms --port 8081
    rfabric control mine.py --topo fat-tree,k=4 --sdn os-ken
    rfabric control --topo rfabric --standby --port 8081 --ofp-port 6654
    rfabric control --topo rfabric,pods=2 --live           and a page that follows it
    rfabric control --host 0.0.0.0 --tls cert=rest.crt,key=rest.key --log json
    """
    verb.takes(
        "app APP",
        "an app file such as controller/ocs.py (default: the one that the fabric needs)",
        nargs="?",
    )
    verb.takes("--topo FABRIC", "the fabric (default: read from the switches that connect)")
    verb.takes(
        "--host HOST", f"REST address (default {LOOPBACK}); any other than loopback needs tokens"
    )
    verb.takes("--port PORT", f"REST port (default {REST_PORT})", port, default=0)
    verb.takes(
        "--tokens FILE",
        "lines NAME TOKEN, mode 600; created if absent (default ~/.config/rfabric/tokens)",
    )
    verb.takes("--name HOSTS", "names by which clients may address this host")
    tls = "cert=FILE,key=FILE[,ca=FILE]"
    verb.takes(f"--tls {tls}", "serve HTTPS; with ca, clients must show certificates")
    verb.takes(f"--ofp-tls {tls}", "use TLS for OpenFlow; with ca, switches must show certificates")
    verb.takes("--ofp-host OFP_HOST", "OpenFlow address (default %(default)s)", default=LOOPBACK)
    verb.takes("--ofp-port OFP_PORT", "OpenFlow port (default %(default)s)", port, default=OFP_PORT)
    verb.takes(
        "--sdn", "the framework (default: Ryu where it is installed)", choices=("ryu", "os-ken")
    )
    verb.takes("--log", "how log lines are written", choices=("text", "json"))
    verb.takes(
        "--journal DIR",
        "where epochs, plans and pairs are kept for the next start (default "
        "$XDG_STATE_HOME/rfabric, ~/.local/state/rfabric; root: /var/lib/rfabric)",
    )
    verb.takes(
        "--no-journal",
        "keep nothing; the next start begins anew",
        action="store_const",
        dest="journal",
        const="none",
    )
    verb.takes(
        "--standby",
        "wait while another controller of this fabric is alive, then take over",
        action="store_const",
        const="1",
        default="",
    )
    live_option(verb, "circuits, rewires and link rates")


def ocs(verb: Parser) -> None:
    """Show and change the cross-connects of an OCS under a running controller.

    rfabric ocs show                                       every port of every OCS
    rfabric ocs connect a1 1A-2B 2A-1B                     one commit, one result
    rfabric ocs disconnect a1 1-2                          1-2: both ways, 1A-2B and 2A-1B
    rfabric ocs gnmi --listen 127.0.0.1:9339               the same over gNMI, until Ctrl-C
    """
    verb.takes(
        "order ORDER",
        "show, connect or disconnect circuits; gnmi serves them over gNMI",
        choices=("show", "connect", "disconnect", "gnmi"),
    )
    verb.takes("ocs OCS", "the name of the OCS, such as a1", nargs="?")
    verb.takes("connects CONNECT", "1A-2B, or 1-2 for both directions", default=None, nargs="*")
    verb.takes("--url URL", "the controller (default %(default)s)", default=REST_URL)
    verb.takes("--tokens FILE", "send the first token of this file")
    verb.takes("--ca FILE", "the CA that signed the controller's certificate")
    verb.takes(
        "--listen HOST:PORT",
        "where gnmi listens (default %(default)s); any host other than loopback needs --tls",
        default="127.0.0.1:9339",
    )
    verb.takes(
        "--tls cert=FILE,key=FILE[,ca=FILE]",
        "TLS for gnmi; with ca, clients must show certificates",
    )


def clean(verb: Parser) -> None:
    """Remove what broken runs left behind, or end a run by its id.

    rfabric clean
    rfabric clean emulation-4711-9f3a
    """
    verb.takes(
        "run_id RUN", "the id of a run to end, even if it is still alive", default=None, nargs="?"
    )
    out_option(verb)


def bench(verb: Parser) -> None:
    """Measure how fast the simulator is here, beside SimGrid where it is installed.

    rfabric bench                                          a few minutes
    rfabric bench --case mix --case web-k8 --patience 60s
    rfabric bench --patience 0 --json                      without SimGrid
    rfabric bench --case planning-64-all-to-all            circuit planning, beside networkx
    rfabric bench --case planning-128-joint         a scheduler that asks the fabric
    rfabric bench --case curve --up-to 262144       each stage of a run, from 64 GPUs up
    """
    verb.takes("--case NAME", "only this case; may be given again", several=True)
    verb.takes(
        "--up-to GPUS",
        "the largest job of the curve; 262144 takes minutes and GBs more (default %(default)s)",
        count,
        default=65536,
    )
    verb.takes(
        "--patience TIME",
        "CPU time for each run of SimGrid, 0 for none (default %(default)s)",
        default="20s",
    )
    verb.takes("--out DIR", "where the tables go (default ./%(default)s)", default="bench")


def validate(verb: Parser) -> None:
    """Compare the phase model with measurements in a folder, or with what nccl-tests printed.

    rfabric validate ../data
    rfabric validate all_reduce_perf.log              the output of nccl-tests, as it is
    rfabric validate ../data --rows                   every row: measurement, model, error
    rfabric validate ../data --json
    rfabric validate ../data --leave-one-out          each system by constants fitted on the others,
                                                      and the targets beside what is reached
    rfabric validate ../data --experiment on-policy   why a target is missed: its cause changed;
                                                      also deepep, experts
    rfabric validate ../data --blind 0123456789ab     only the model that was frozen under this hash
    rfabric validate ../data --residuals new.csv      the table behind the intervals of predictions
    """
    verb.takes(
        "folder DIR",
        "a folder with models/, measured/, weight_sync/, rl_measured/ or rl_logs/; or a file of "
        "nccl-tests' output",
    )
    verb.takes("--rows", "print one line for each measured point")
    verb.takes(
        "--leave-one-out",
        "predict each system with constants fitted on all others (collectives between servers, "
        "weight syncs, times to first token); print first the target errors beside those that are "
        "reached, there and on rows that nothing was fitted on",
    )
    verb.takes(
        "--experiment NAME",
        "what the rows of a miss do when its likely cause is changed, and nothing else: on-policy "
        "(steps of Qwen3-30B-A3B), deepep (two servers) or experts (training of mixtures)",
        default=None,
    )
    verb.takes(
        "--blind HASH",
        "judge only the model under this hash (every run prints its own); nothing is compared if "
        "formulas, constants or catalogs have changed since",
        default=None,
    )
    verb.takes(
        "--residuals FILE",
        "only write how far measurements lie from predictions, by kind: the table in "
        "rfabric/compute/residuals.csv, behind every `80 %% within`",
        file,
        default=None,
    )


def validate_run(verb: Parser) -> None:
    """Compare a recipe's predicted phases with those your job logged.

    rfabric validate-run train.log --traffic grpo-64       verl, slime, NeMo-RL, ROLL, AReaL
    rfabric validate-run tensorboard_log/ --traffic mine.yaml --json
    """
    verb.takes(
        "log LOG",
        "a console log, JSON lines or a CSV of metrics; a file or folder of TensorBoard, wandb "
        "(offline) or MLflow, also mlflow.db[/RUN]",
    )
    verb.takes(
        "--traffic RECIPE", "the recipe of that job (`rfabric import` makes one)", required=True
    )
    set_option(verb)
    seed_option(verb)


def reproduce(verb: Parser) -> None:
    """Rerun published experiments: the paper's figure, ours, their ratio, and why they differ.

    rfabric reproduce weave                                a few minutes
    rfabric reproduce weave --seed 3 --json
    rfabric reproduce weave --experiment billing           test the likely cause of a miss
    rfabric reproduce joint                                no paper: what asking the fabric gains
    rfabric reproduce days                                 no paper: two weeks of jobs
    rfabric reproduce joint --experiment forecasts         no paper: what not knowing costs
    """
    verb.takes(
        "paper PAPER",
        f"{names(REPRODUCTIONS)}; joint: three jobs on four fabrics, scheduled apart from the "
        "network and together with it, beside a bound; days: jobs that come and go for two weeks "
        "and share nodes by what each fabric answers",
        choices=(*REPRODUCTIONS, *UNPUBLISHED),
    )
    verb.takes("--markdown", "print the table in Markdown")
    verb.takes(
        "--experiment NAME",
        "instead of the rows, run the experiment that tests the likely cause of a miss; an "
        "unknown NAME lists those of PAPER",
    )
    seed_option(verb)


def completion(verb: Parser) -> None:
    """Print a shell's completion of verbs, options, fabrics, recipes and policies.

    eval "$(rfabric completion bash)"                      in ~/.bashrc
    rfabric completion zsh > ~/.zfunc/_rfabric             a folder of $fpath
    rfabric completion fish > ~/.config/fish/completions/rfabric.fish
    """
    verb.takes("shell SHELL", "bash, zsh or fish", choices=("bash", "zsh", "fish"))


def man(verb: Parser) -> None:
    """Print the manual page of rfabric and all its verbs.

    rfabric man | man -l -
    rfabric man -o rfabric.1                               for ~/.local/share/man/man1
    """
    verb.takes("-o --output FILE", "write it to a file instead of stdout", file)
