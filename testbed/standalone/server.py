"""The server's process: admits the others, is the parameter server, writes the results."""

import contextlib
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from testbed.channel import Channel
from testbed.errors import RunError
from testbed.planning.data import check_data
from testbed.roles.sharing import SETTINGS, SPILL
from testbed.standalone import messages
from testbed.standalone.account import OVER, Account, make_directory
from testbed.standalone.admission import Admission
from testbed.standalone.experiment import read
from testbed.training.settings import Settings

PATIENCE = 600.0
"""Seconds that the evaluator and the first worker may take to come."""
EVALUATOR_TIMEOUT = 60.0
"""Seconds that the evaluator has to tell its last result after training."""


_FAILED = signal.SIGUSR1
"""What the thread that writes the results sends when it cannot."""
_ENDING = (signal.SIGINT, signal.SIGTERM, _FAILED)


class _StoppedError(BaseException):
    """A signal says that the run should end; nothing in between may take it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def serve(
    experiment: Path,
    results: Path,
    secret: bytes,
    ready: Callable[[], None],
    say: Callable[[str], None],
) -> int:
    """Carry one run out as its server; returns the exit status.

    Args:
        ready: called once devices are admitted.
        say: told a line for everything worth one.

    Raises:
        TestbedError: the experiment, its data or the results' folder cannot be used; nobody came.
    """
    session = messages.challenge()
    plan = read(experiment, messages.greeting_secret(secret, session))
    check_data(plan)
    directory = make_directory(results, plan)
    account = Account(plan, directory, say)
    reports, writers = Channel.pair()
    try:
        admission = Admission(secret, session, plan.settings, writers)
    except OSError as error:
        raise RunError(f"port {messages.PORT} cannot be listened at: {error.strerror}") from error
    ready()
    say(
        f"{plan.spec.name}: {plan.label}, {plan.settings.workers} workers, "
        f"{plan.settings.training.updates:,} updates; waiting for workers and the evaluator"
    )
    signal.signal(_FAILED, signal.SIG_IGN)
    server = threading.get_ident()
    follow = threading.Thread(
        target=account.follow,
        args=(reports, admission.go, lambda: signal.pthread_kill(server, _FAILED)),
        daemon=True,
    )
    follow.start()
    try:
        try:
            ended, status = _carry_out(plan.settings, admission, writers, account)
        finally:
            writers.send(OVER)  # behind everything that is on its way
            follow.join()
            reports.close()
        summary = account.close(ended)
    finally:
        admission.end()
    return 0 if summary["ended"] == "completed" else status


def _carry_out(
    settings: Settings, admission: Admission, writers: Channel, account: Account
) -> tuple[str | None, int]:
    """Be the parameter server; returns how it ended, if that is known, and an exit status for it."""
    complaint = {"level": "error", "number": None}
    try:
        with _signals(), tempfile.TemporaryFile(dir=account.directory) as spill:
            if account.failure is not None:  # before it could be told by a signal
                return "failed", 1
            # Imported here: torch takes seconds, in which the devices can do the same.
            from testbed.roles.entry import load_alone

            run = load_alone({SETTINGS: settings.to_json(), SPILL: spill.fileno()})
            admission.wait(PATIENCE)
            if run({"role": "server", "number": -1}, writers, (spill.fileno(),)):
                return "failed", 1
            admission.wait_for_evaluator(EVALUATOR_TIMEOUT)
    except _StoppedError as stopped:
        if stopped.number == _FAILED:
            return "failed", 1
        name = signal.Signals(stopped.number).name
        writers.send(complaint | {"event": f"stopped by {name}"})
        return "interrupted", 128 + stopped.number
    except (RunError, OSError) as error:
        writers.send(complaint | {"event": str(error)})
        return "failed", 1
    return None, 1


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Let SIGINT and SIGTERM end the body; afterwards what is left is short, and is done to its end."""

    def stop(number: int, _: object) -> None:
        _ignore()
        raise _StoppedError(number)

    for number in _ENDING:
        signal.signal(number, stop)
    try:
        yield
    finally:
        _ignore()


def _ignore() -> None:
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)
