"""The (first) server's process: it admits devices, runs its parameter server and writes the results."""

import contextlib
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from testbed.channel import Channel
from testbed.errors import RunError, StoppedError
from testbed.experiment.model_conflicts import layout_of
from testbed.messages.codec import send
from testbed.messages.reports import EventReported
from testbed.planning.data_check import check_data
from testbed.roles.server.wall_server import OTHERS_TIMEOUT
from testbed.roles.sharing import SETTINGS, SPILL
from testbed.run_endings import STATES, Ended, is_complete
from testbed.standalone import messages
from testbed.standalone.admission import Admission
from testbed.standalone.experiment_file import read
from testbed.standalone.run_account import RunAccount, make_directory
from testbed.training.settings import Settings
from testbed.training.slices import slices_of

PATIENCE = 600.0
"""Seconds within which the further servers, the evaluator and the first worker must be ready."""
SHARDS_TIMEOUT = OTHERS_TIMEOUT + 60.0
"""Seconds after the first server has finished within which the further ones must finish."""
EVALUATOR_TIMEOUT = 60.0
"""Seconds after training within which the evaluator must send its last result."""


_FAILED = signal.SIGUSR1
"""The signal from the thread that writes the results, if it cannot, or that misses a further server."""
_ENDING = (signal.SIGINT, signal.SIGTERM, _FAILED)


def serve(
    experiment: Path,
    results: Path,
    secret: bytes,
    ready: Callable[[], None],
    say: Callable[[str], None],
) -> int:
    """Carry out one run as its server; return the exit status.

    Args:
        ready: called once devices are admitted.
        say: called with each line to show.

    Raises:
        TestbedError: the experiment, its data, the results' folder or the port cannot be used.
    """
    session = messages.challenge()
    plan = read(experiment, messages.greeting_secret(secret, session))
    check_data(plan)
    directory = make_directory(results, plan)
    account = RunAccount(plan, directory, say)
    reports, writers = Channel.pair()
    server = threading.get_ident()

    def fail() -> None:
        signal.pthread_kill(server, _FAILED)

    settings = plan.settings
    sizes = [one.size for one in slices_of(settings, layout_of(plan.spec))]
    signal.signal(_FAILED, signal.SIG_IGN)
    try:
        admission = Admission(secret, session, settings, writers, sizes=sizes, losing=fail)
    except OSError as error:
        raise RunError(
            f"the server cannot listen at port {messages.PORT} ({error.strerror}): end the process "
            "that uses it"
        ) from error
    ready()
    further = "" if settings.servers == 1 else f"{settings.servers - 1} further servers, "
    say(
        f"{plan.spec.name}: {plan.label}, {settings.workers} workers, "
        f"{settings.training.updates:,} updates; waiting for {further}workers and the evaluator"
    )
    follow = threading.Thread(
        target=account.follow, args=(reports, admission.go, fail), daemon=True
    )
    follow.start()
    try:
        try:
            ended, status = _carry_out(plan.settings, admission, writers, account)
        finally:
            writers.end()  # after all reports that are on their way
            follow.join()
            reports.close()
        summary = account.close(ended)
    finally:
        admission.end()
    how: Ended = summary["ended"]
    return STATES[how].status if is_complete(how) else status


def _carry_out(
    settings: Settings, admission: Admission, writers: Channel, account: RunAccount
) -> tuple[Ended | None, int]:
    """Run the parameter server; return how the run ended, if that is known, and an exit status."""
    try:
        with _signals(), tempfile.TemporaryFile(dir=account.directory) as spill:
            if account.failure is not None:  # it failed before the signal had a handler
                return "failed", 1
            # Imported here: torch takes seconds, during which the devices can import it too.
            from testbed.roles.entry import load_alone

            run = load_alone({SETTINGS: asdict(settings), SPILL: [spill.fileno()]})
            admission.wait(PATIENCE)
            if run({"role": "server", "number": -1}, writers, (spill.fileno(),)):
                return "failed", 1
            admission.wait_for_shards(SHARDS_TIMEOUT)
            admission.wait_for_evaluator(EVALUATOR_TIMEOUT)
    except StoppedError as stopped:
        if stopped.number == _FAILED:
            return "failed", 1
        name = signal.Signals(stopped.number).name
        send(writers, EventReported("error", f"stopped by {name}"))
        return "interrupted", 128 + stopped.number
    except (RunError, OSError) as error:
        send(writers, EventReported("error", str(error)))
        return "failed", 1
    return None, 1


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Have SIGINT, SIGTERM and a failure of the results end the body; afterwards ignore them."""

    def stop(number: int, _: object) -> None:
        _ignore()
        raise StoppedError(number)

    for number in _ENDING:
        signal.signal(number, stop)
    try:
        yield
    finally:
        _ignore()


def _ignore() -> None:
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)
