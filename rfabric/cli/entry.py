"""`rfabric VERB ...`: results go to stdout, talk to stderr.

Exit codes: 0 done; 1 a run broke or could not keep pace; 2 bad input; 130 Ctrl-C; 143 told to end.
"""

import argparse
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from ..errors import PaceError, RFabricError, RunError
from .collecting import uncollected

BROKE, BAD_INPUT, INTERRUPTED, PIPE_CLOSED = 1, 2, 130, 141
log = logging.getLogger(__name__)
NAME = 200  # characters of a file's name that are shown
# numpy's, whose threads wait busily for products as small as ours: a tenth of a short command, and
# in a sweep as many in each process as there are processors; sums depend on how many there are
BLAS = "OPENBLAS", "MKL"


class Ended(Exception):
    """A signal told the process to end."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    _open_closed()
    if sys.stdout is None:
        return _say("error: stdout is closed; send it somewhere, such as >/dev/null", BAD_INPUT)
    try:
        with _signals():
            return _run(arguments)
    except BrokenPipeError:  # who read our stdout has gone, as `head` does
        _forget_stdout()
        return PIPE_CLOSED
    except KeyboardInterrupt as error:
        return _say(f"interrupted; {_left(error)}", INTERRUPTED)
    except Ended as signal_name:
        code = 128 + signal.Signals[str(signal_name)]
        return _say(f"ended by {signal_name}; {_left(signal_name)}", code)
    except (PaceError, RunError) as error:
        return _say(f"error: {error}", BROKE)
    except RFabricError as error:
        return _say(f"error: {error}", BAD_INPUT)
    except OSError as error:  # stdout on a full disk, a name that no file can have
        if error.filename is None:
            _forget_stdout()
            return _say(f"error: cannot write to stdout: {error.strerror or error}", BAD_INPUT)
        where = str(error.filename)[:NAME]
        return _say(f"error: cannot read or write {where}: {error.strerror}", BAD_INPUT)


def _open_closed() -> None:
    """What of stdin, stdout and stderr who called has closed is /dev/null, here and in processes
    that come: no file or socket is to get its number.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115  it stays open
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def _left(error: BaseException) -> str:
    """What a verb that was ended has left, as it noted on what ended it."""
    return "; ".join(getattr(error, "__notes__", ())) or "nothing of the run is left"


def _run(arguments: Sequence[str] | None) -> int:
    for library in BLAS:
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    with uncollected():
        from .arguments import parse  # here Ctrl-C ends it in words: it takes part of a second

    try:
        args = parse(sys.argv[1:] if arguments is None else arguments)
        _log(args)
        if args.defaults:
            log.info("defaults of %s: %s", args.defaults, args.added or "none that count here")
        _note_renamed(args)
        code = args.run(args) or 0
    except SystemExit:  # --help, --version
        sys.stdout.flush()
        raise
    sys.stdout.flush()
    return code


def _forget_stdout() -> None:
    """What could not be written is not tried again as Python ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _note_renamed(args: argparse.Namespace) -> None:
    """A verb has a new name, and was called by its old one."""
    if args.verb != args.verb_name and not args.quiet:
        now = f"`{args.verb}` is called `{args.verb_name}` now"
        _say(f"note: {now}; the old name goes with the next version", 0)


def _log(args: argparse.Namespace) -> None:
    level = (
        logging.ERROR
        if args.quiet
        else (logging.WARNING, logging.INFO, logging.DEBUG)[min(args.verbose, 2)]
    )
    logging.basicConfig(level=level, stream=sys.stderr, format="rfabric: %(message)s")


def _say(message: str, code: int) -> int:
    with contextlib.suppress(OSError):
        print(f"rfabric: {message}", file=sys.stderr)
    return code


@contextlib.contextmanager
def _signals():
    """SIGTERM and SIGHUP unwind like Ctrl-C does, so that runs are cleaned up."""

    def end(number: int, _) -> NoReturn:
        raise Ended(signal.Signals(number).name)

    told = [signal.SIGTERM, signal.SIGHUP]
    heeded = [number for number in told if signal.getsignal(number) != signal.SIG_IGN]  # nohup
    try:
        old = {number: signal.signal(number, end) for number in heeded}
    except ValueError:  # not in the main thread: whoever runs us there has the signals
        old = {}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
