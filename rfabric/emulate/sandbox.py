"""One run, one private world: its own processes, network, mounts and Open vSwitch; nothing of the
host is touched.

    outside (the CLI)                          inside (the worker is process 1 of the new pid
                                               namespace)
    launch(argv, run_dir) ---- setpriv/unshare ----> with Sandbox(run_dir, controller=[...]) as box:
    ...
      kill -9 of the CLI kills unshare, which kills      ovsdb-server, ovs-vswitchd, controller,
                                                         host shells
      process 1, and with it everything inside

The network namespace goes with its last process, the tmpfs with the mount namespace. What stays is
the run folder, with `run.state.json` (run id, pid, start time of that pid) as long as the run
lives: `clean` ends a run by its id.
"""

import ctypes
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from ..control.addresses import OFP_PORT
from ..control.seam import interpreter
from ..errors import RFabricError, RunError
from .processors import idlest, prefer, reserve

STATE_FILE = "run.state.json"
# one is hidden by a tmpfs inside; they exist, so no mount point is left over
COVERS = ("/dev/shm", "/mnt", "/media")
SCHEMAS = (
    "/usr/share/openvswitch/vswitch.ovsschema",
    "/usr/local/share/openvswitch/vswitch.ovsschema",
)
PACKAGES = {
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "mount": "mount",
    "ip": "iproute2",
    "tc": "iproute2",
    "mnexec": "mininet",
    "ovsdb-tool": "openvswitch-common",
    "ovsdb-server": "openvswitch-switch",
    "ovs-vswitchd": "openvswitch-switch",
    "ovs-vsctl": "openvswitch-switch",
    "ovs-ofctl": "openvswitch-common",
}
CLONE_NEWNET = 0x40000000  # linux/sched.h
# The user-space datapath allocates 32 packet buffers at every look at every port, and frees what it
# did not fill. glibc would give that memory back to the kernel each time.
MALLOC = {
    "GLIBC_TUNABLES": f"glibc.malloc.trim_threshold={1 << 30}:glibc.malloc.top_pad={64 << 20}"
}
DATAPATH = "ovs-vswitchd"
# of the world and its datapath: a packet that waits for the processor is late
NICE, NICE_DATAPATH = -5, -10
IDLE_MS = 24 * 3600 * 1000  # ms the datapath keeps what it learned about a flow that is silent
CTL_TIMEOUT = (
    # s that ovs-vsctl waits for ovs-vswitchd; for ever where nothing is said (ovs-vsctl(8),
    # OVS_CTL_TIMEOUT)
    30
)
PF_EXITING = 4  # include/linux/sched.h; the flags are field 9 of /proc/PID/stat
TCP_ESTABLISHED, TCP_LISTEN = "01", "0A"  # include/net/tcp_states.h
OPEN_FILES = 65536  # two sockets a lane, two files a host
ADMIN_PATHS = ("/usr/local/sbin", "/usr/sbin", "/sbin")

_libc = ctypes.CDLL(None, use_errno=True)


# --- outside: start, end and find runs ------------------------------------------------------------


def require() -> None:
    """Refuse, with the way out, where this process is not root or something is not installed
    (RFabricError).
    """
    if lacks := list(_lacks()):
        raise RFabricError("; ".join(lacks))
    interpreter()  # says what to install where there is neither Ryu nor os-ken


def _lacks() -> Iterator[str]:
    if os.geteuid() != 0:
        needs = "root (network namespaces, Open vSwitch)"
        yield f"emulation needs {needs}; run it with sudo, or use `rfabric simulate`"
    if missing := [program for program in PACKAGES if not which(program)]:
        packages = " ".join(sorted({PACKAGES[program] for program in missing}))
        yield f"missing programs: {', '.join(missing)}; install them: apt-get install {packages}"
    if find_spec("mininet") is None:
        yield (
            f"{sys.executable} has no mininet, which is Debian's package: apt-get install "
            f"mininet, and put rfabric in an environment of that Python: "
            "/usr/bin/python3 -m venv --system-site-packages FOLDER"
        )


def which(program: str) -> str | None:
    """Where `program` is, also in the administrators' directories that a user's PATH lacks."""
    return shutil.which(
        program, path=os.pathsep.join((os.environ.get("PATH", os.defpath), *ADMIN_PATHS))
    )


def launch(
    argv: Sequence[str], run_dir: str | Path, env: Mapping[str, str] | None = None, **popen
) -> subprocess.Popen:
    """Start `argv` as process 1 of a private world; it dies with the thread that calls this.

    It has a session of its own, so that Ctrl-C reaches the caller alone, who then decides (see
    `end`). Writes the state file of the run. `popen`: stdin, stdout, text... as for
    `subprocess.Popen`.
    """
    require()
    run_dir = Path(run_dir).resolve()
    command = [
        "setpriv",
        "--pdeathsig",
        "KILL",
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--net",
        "--mount",
        "--ipc",
        "--",
        *argv,
    ]
    surroundings = dict(os.environ if env is None else env)
    surroundings["PATH"] = os.pathsep.join((surroundings.get("PATH", os.defpath), *ADMIN_PATHS))
    process = subprocess.Popen(command, env=surroundings, start_new_session=True, **popen)
    state = {
        "run_id": run_dir.name,
        "pid": process.pid,
        "pid_start_ticks": _start_ticks(process.pid),
    }
    _write(run_dir / STATE_FILE, json.dumps(state) + "\n")
    return process


def end(process: subprocess.Popen, run_dir: str | Path, patience: float = 0.0) -> int:
    """End a launched run: wait `patience` s, then kill its world; remove the state file.

    Returns the exit code.
    """
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        # unshare; --kill-child takes process 1 along, and with it the whole pid namespace
        process.kill()
        process.wait()
    (Path(run_dir) / STATE_FILE).unlink(missing_ok=True)
    return process.returncode


def process_1(run_dir: str | Path) -> int:
    """Process 1 of a launched run, by its number outside; RunError where it has gone."""
    pid = json.loads((Path(run_dir) / STATE_FILE).read_text())["pid"]
    try:
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    except (OSError, IndexError):
        raise RunError(f"run {Path(run_dir).name} has ended") from None


def world_of(pid: int | str) -> str:
    """The process namespace a process lives in; '' where it has gone."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def inhabitants(world: str) -> list[int]:
    """The processes that live in a process namespace, by their numbers outside."""
    return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and world_of(pid) == world]


def runs(root: str | Path) -> dict[str, bool]:
    """Run ids below `root` that have a state file, and whether each is alive (False: stale, its
    world is gone).
    """
    return {state["run_id"]: _alive(state) for state in _states(root).values()}


def clean(root: str | Path, run_id: str | None = None) -> list[str]:
    """Forget stale runs below `root`; with `run_id`, end that run even if it lives.

    Returns the ids of both. RFabricError where no unfinished run has that id.
    """
    states = _states(root)
    chosen = {
        path: s
        for path, s in states.items()
        if (s["run_id"] == run_id if run_id else not _alive(s))
    }
    if run_id and not chosen:
        known = ", ".join(sorted(s["run_id"] for s in states.values())) or "none"
        raise RFabricError(
            f"no unfinished run {run_id!r} in {root}; unfinished runs there: {known}"
        )
    for path, state in chosen.items():
        _kill_world(state)
        path.unlink(missing_ok=True)
    return [state["run_id"] for state in chosen.values()]


def _states(root: str | Path) -> dict[Path, dict]:
    """What runs of ours wrote: what anybody else did must not decide what is killed."""
    files = sorted(Path(root).glob(f"*/{STATE_FILE}"))
    return {path: _state(path) for path in files if _is_ours(path)}


def _is_ours(path: Path) -> bool:
    return not (path.is_symlink() or path.parent.is_symlink()) and (
        path.stat().st_uid == os.geteuid()
    )


def _state(path: Path) -> dict:
    """What a file says; where it is broken it is of no process that runs."""
    try:
        state = json.loads(path.read_text())
        pid, ticks = int(state["pid"]), int(state["pid_start_ticks"])
    except (ValueError, KeyError, TypeError, OSError):
        pid, ticks = 0, -1
    return {"run_id": path.parent.name, "pid": pid, "pid_start_ticks": ticks}


def _alive(state: dict) -> bool:
    return state["pid"] > 1 and _start_ticks(state["pid"]) == state["pid_start_ticks"]


def _kill_world(state: dict) -> None:
    """Kill the recorded process if it is still the same one; a reused pid is left alone."""
    if state["pid"] <= 1:
        return
    try:
        pidfd = os.pidfd_open(state["pid"])
    except OSError:
        return
    try:
        # checked after the pidfd was taken, so the signal cannot hit another process
        if _alive(state):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            for _ in range(200):
                if not _alive(state):
                    return
                time.sleep(0.02)
            raise RunError(
                f"run {state['run_id']}: process {state['pid']} does not end; look at it with ps"
            )
    finally:
        os.close(pidfd)


def _start_ticks(pid: int) -> int:
    """When `pid` started, in clock ticks since boot (field 22 of /proc/PID/stat); 0 where it is
    gone or a zombie.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(path.name + ".new")
        beside.write_text(text)
        beside.replace(path)
    except OSError as error:
        raise RFabricError(
            f"cannot write {path}: {error.strerror}; choose another run folder"
        ) from error


def datapath() -> str:
    """`kernel` where Open vSwitch has its module, else `user`."""
    return "kernel" if Path("/sys/module/openvswitch").is_dir() else "user"


# --- inside: Open vSwitch and the controller of one run -------------------------------------------


class Sandbox:
    """The inside of a private world: lo up, private OVS directories, ovsdb-server, ovs-vswitchd,
    and named children.

    `check()` raises RunError naming the first child that died and the end of its log. Logs go to
    `run_dir/logs`.
    """

    def __init__(
        self,
        run_dir: str | Path,
        controller: Sequence[str] | None = None,
        controller_port: int = OFP_PORT,
    ):
        self.run_dir = Path(run_dir).resolve()
        self.controller = controller
        self.controller_port = controller_port
        self.children: dict[str, subprocess.Popen] = {}

    def __enter__(self) -> "Sandbox":
        if os.getpid() != 1:
            raise RFabricError(
                "Sandbox opens inside a world made by launch(); process 1 is expected here"
            )
        try:
            self._prepare()
            self._start_ovs()
            if self.controller:
                self.start("controller", self.controller)
                self.wait_port(self.controller_port, "controller", 30.0)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _prepare(self) -> None:
        signal.signal(signal.SIGTERM, _terminated)  # process 1 ignores what it has no handler for
        _raise_open_files()
        prefer(1, NICE)
        self._choose_processor()
        run(["mount", "--make-rprivate", "/"])
        self.private = _cover(self.run_dir)
        run(["mount", "-t", "tmpfs", "-o", "mode=0755,size=64m", "rfabric", str(self.private)])
        run(["mount", "-t", "sysfs", "sysfs", "/sys"])  # /sys/class/net of this namespace
        run(["ip", "link", "set", "lo", "up"])
        for scope in ("all", "default"):  # no router solicitations on emulated cables
            sysctl(f"net/ipv6/conf/{scope}/disable_ipv6", 1, optional=True)
        self.logs = self.run_dir / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        for variable in ("OVS_RUNDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"):
            os.environ[variable] = str(self.private)
        os.environ["OVS_LOGDIR"] = str(self.logs)
        os.environ.setdefault("OVS_CTL_TIMEOUT", str(CTL_TIMEOUT))

    def _choose_processor(self) -> None:
        """One for the user-space datapath; the kernel's needs none, and of a single one there is
        nothing to share.
        """
        self.processors = os.sched_getaffinity(0)
        shared = len(self.processors) > 1 and datapath() == "user"
        self.reserved = idlest(self.processors) if shared else None

    def reserve(self) -> None:
        """Give the datapath its processor, and all else in this world the others: when the network
        is up, for bringing it up takes them all.
        """
        if self.reserved is not None:
            reserve(self.children[DATAPATH].pid, self.reserved, self.processors)

    def share(self) -> None:
        """Let the datapath run wherever the kernel thinks best: somebody else is where it was."""
        if self.reserved is not None:
            self.reserved = None
            os.sched_setaffinity(self.children[DATAPATH].pid, self.processors)

    def _start_ovs(self) -> None:
        schema = next((s for s in SCHEMAS if os.path.exists(s)), None)
        if schema is None:
            raise RFabricError(
                f"no Open vSwitch schema at {' or '.join(SCHEMAS)}; apt-get "
                "install openvswitch-switch"
            )
        database, sock = self.private / "conf.db", self.private / "db.sock"
        run(["ovsdb-tool", "create", str(database), schema])
        self.start(
            "ovsdb-server", ["ovsdb-server", str(database), f"--remote=punix:{sock}", "--no-chdir"]
        )
        self.wait("ovsdb-server", sock.exists, 15.0)
        # One thread each for upcalls and revalidation: the packets of a user-space datapath need
        # the cores. What opening the lanes has taught the datapath lasts: with the default of 10 s
        # the first packets of a collective stood still for it.
        settings = (
            "other_config:n-handler-threads=1", "other_config:n-revalidator-threads=1",
            f"other_config:max-idle={IDLE_MS}",
        )  # fmt: skip
        run(["ovs-vsctl", "--no-wait", "init", "--", "set", "Open_vSwitch", ".", *settings])
        self.start_datapath()

    def start_datapath(self) -> None:
        """Start ovs-vswitchd, with the bridges that the database has: none at first."""
        words = ["ovs-vswitchd", f"unix:{self.private / 'db.sock'}", "--no-chdir"]
        for left in self.private.glob("ovs-vswitchd.*.ctl"):  # of one that was killed
            left.unlink()
        self.start(DATAPATH, words, dict(os.environ, **MALLOC))
        prefer(self.children[DATAPATH].pid, NICE_DATAPATH)
        self.wait(DATAPATH, lambda: any(self.private.glob("ovs-vswitchd.*.ctl")), 15.0)

    def start(
        self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None
    ) -> subprocess.Popen:
        """Start a child whose death ends the run; its output goes to `logs/NAME.log`."""
        with open(self.logs / f"{name}.log", "wb") as log:
            try:
                child = subprocess.Popen(
                    list(argv),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=env,
                    start_new_session=True,
                )
            except OSError as error:
                raise RFabricError(f"cannot start {name} ({argv[0]}): {error.strerror}") from error
        self.children[name] = child
        return child

    def kill(self, name: str) -> None:
        """kill -9 of a child, whose death then ends nothing."""
        child = self.children.pop(name)
        child.kill()
        child.wait()

    def check(self) -> None:
        """Raise RunError when a child died; cheap enough for every turn of an event loop."""
        for name, child in self.children.items():
            code = child.poll()
            if code is not None or _is_dying(child.pid):
                how = (
                    "died"
                    if code is None
                    else f"was killed by signal {-code}"
                    if code < 0
                    else f"exited with {code}"
                )
                raise RunError(f"{name} {how} in mid-run; its last lines:\n{self.tail(name)}")

    def tail(self, name: str, lines: int = 8) -> str:
        """The last lines of a child's log."""
        text = (self.logs / f"{name}.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def wait_port(self, port: int, name: str, timeout: float) -> None:
        """Until something listens on 127.0.0.1:`port`, or RunError when child `name` dies or
        `timeout` s pass.
        """
        self.wait(name, lambda: _listens(port), timeout)

    def wait(self, name: str, ready: Callable[[], object], timeout: float) -> None:
        """Until `ready()`, or RunError when child `name` dies or `timeout` s pass."""
        limit = time.monotonic() + timeout
        while not ready():
            self.check()
            if time.monotonic() > limit:
                raise RunError(
                    f"{name} is not ready after {timeout:g} s; its last lines:\n{self.tail(name)}"
                )
            time.sleep(0.02)

    def close(self) -> None:
        """Kill the children.

        A polite end would save nothing: database and datapath are private and on tmpfs.
        """
        for child in self.children.values():
            if child.poll() is None:
                child.kill()
        for child in self.children.values():
            child.wait()
        self.children.clear()


class Namespace:
    """The network namespace of a process, kept by its file descriptor, or that of a descriptor
    `fd` that somebody opened; `with namespace:` moves this thread into it.

    Sockets made inside belong to it for ever, also after the thread went back.
    """

    def __init__(self, pid: int | None, fd: int = -1):
        flags = os.O_RDONLY | os.O_CLOEXEC
        self.fd = fd if pid is None else os.open(f"/proc/{pid}/ns/net", flags)

    def __enter__(self) -> "Namespace":
        self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        _setns(self.fd)
        return self

    def __exit__(self, *_) -> None:
        _setns(self._home)
        os.close(self._home)

    def close(self) -> None:
        """Let go of it; it ends with its last process and socket."""
        os.close(self.fd)


def _setns(fd: int) -> None:
    if _libc.setns(fd, CLONE_NEWNET) != 0:  # os.setns came with Python 3.12
        code = ctypes.get_errno()
        raise RunError(f"cannot enter a network namespace: {os.strerror(code)}")


def run(argv: Sequence[str], text: str | None = None) -> str:
    """Run a program to its end and return what it printed; a failure is a RunError that says what
    it said.
    """
    done = subprocess.run(list(argv), input=text, capture_output=True, text=True)
    if done.returncode != 0:
        raise RunError(
            f"{' '.join(argv)[:200]} failed: {(done.stderr or done.stdout).strip()[:600]}"
        )
    return done.stdout


def sysctl(key: str, value: object, optional: bool = False) -> None:
    """Set one sysctl of the network namespace this thread is in; `optional` where older kernels do
    not have it. RunError where it cannot be set.
    """
    try:
        Path("/proc/sys", key).write_text(f"{value}\n")
    except OSError as error:
        if not optional:
            raise RunError(f"cannot set {key} to {value}: {error.strerror}") from error


def _cover(run_dir: Path) -> Path:
    """The directory to hide under the private tmpfs: not one that holds the run folder, this
    program or Python.
    """
    needed = [run_dir, Path.cwd(), Path(sys.prefix).resolve(), Path(__file__).resolve()]
    for candidate in map(Path, COVERS):
        if candidate.is_dir() and not any(candidate in (path, *path.parents) for path in needed):
            return candidate
    raise RFabricError(
        f"the run needs one of {', '.join(COVERS)} for its private files; put "
        "the run folder elsewhere"
    )


def _raise_open_files() -> None:
    """Allow this process OPEN_FILES, or as many as it may have."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, max(hard, OPEN_FILES)))
    except ValueError:  # a container's root may not raise the hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, OPEN_FILES), hard))


def _is_dying(pid: int) -> bool:
    """Whether a process is on its way out: closing hundreds of packet sockets takes seconds until
    it can be waited for.
    """
    try:
        return bool(
            int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[6]) & PF_EXITING
        )
    except OSError:
        return True


def established(port: int) -> int:
    """How many connections of this namespace a server at TCP `port` has accepted or will."""
    return _sockets(port).count(TCP_ESTABLISHED)


def _listens(port: int) -> bool:
    return TCP_LISTEN in _sockets(port)


def _sockets(port: int) -> list[str]:
    """The states of all sockets of this namespace at TCP `port`; read from /proc, so that nothing
    connects to it.
    """
    states = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = [line.split() for line in Path(table).read_text().splitlines()[1:]]
        except OSError:
            continue
        states += [row[3] for row in rows if int(row[1].rpartition(":")[2], 16) == port]
    return states


def _terminated(*_) -> None:
    raise SystemExit(1)
