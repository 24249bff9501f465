"""Workers and a server with real sockets: their pulls, encodings and answers.

The workers' own code runs in threads against a server on loopback. A run of one worker is
deterministic, so its final parameters can be compared bit by bit.
"""

import socket
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from testbed.algorithms.worker_half import WorkerHalf
from testbed.channel import Channel
from testbed.learning.data.datasets import Dataset, load
from testbed.learning.learner import Learner
from testbed.learning.models import initialise
from testbed.messages.reports import REPORTS, EventReported, ServerListening, UpdatesApplied
from testbed.nodes.computing_turns import ComputingTurns
from testbed.random_streams import stream
from testbed.roles import connections
from testbed.roles.evaluation.evaluator_process import evaluate
from testbed.roles.server.server_inputs import ServerInputs
from testbed.roles.server.wall_server import WallServer
from testbed.roles.transport import greeting
from testbed.roles.transport.greeting import Identity
from testbed.roles.turn_taking import TurnTaking
from testbed.roles.worker.worker_process import work
from testbed.telemetry.state_board import DeviceLine
from testbed.telemetry.update_rows import UPDATE
from testbed.training import computation
from testbed.training.pushed_parts import PushedParts
from testbed.training.settings import Settings
from testbed.training.times import Times
from testbed.updates import FloatVector, SparseUpdate, Update
from tests.roles.worker.test_faults_after_pushes import no_faults
from tests.settings import SIMPLE, with_changes

UPDATES = 25


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return load("digits")


def settings(algorithm: dict[str, Any], **changes: Any) -> Settings:
    fields = {
        "algorithm": algorithm,
        "updates": UPDATES,
        "evaluate_every": 1000,
        "evaluation_images": 10,
    }
    return with_changes(SIMPLE, **fields | changes)


class Ran:
    """A finished run: its final parameters, and the payload bytes of each update."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, dataset: Dataset, chosen: Settings) -> None:
        with socket.create_server(("", 0)) as free:
            port = free.getsockname()[1]
        for module in (connections, greeting):
            monkeypatch.setattr(module, "PORT", port)
        learners = [
            Learner(chosen.spec.model.name, chosen.training.batch_size)
            for _ in range(chosen.workers + 2)
        ]
        initial = initialise(
            chosen.spec.model.name, chosen.spec.model.initialisation, stream(chosen.seed, "initial")
        )
        layout = learners[0].layout
        self.half = computation.server_half(chosen, layout, initial.copy())
        report, theirs = Channel.pair()
        server = WallServer(ServerInputs(chosen, self.half, layout, theirs))
        serving = threading.Thread(target=self._serve, args=(server, theirs), daemon=True)
        serving.start()
        assert REPORTS.receive(report) == ServerListening()
        turns = ComputingTurns(1)
        times, pushed = Times.of(chosen), PushedParts.of_run(chosen, layout)
        parts = computation.parts(chosen, dataset.train_labels)

        def take_turns(n: int) -> TurnTaking:
            return TurnTaking(learners[n + 1], (learners[0],), turns)

        workers = [
            threading.Thread(
                target=work,
                args=(
                    *(chosen, Identity(n), dataset, parts[n], take_turns(n), pushed, times, None),
                    *(DeviceLine.unread(), no_faults(n)),
                ),
                daemon=True,
            )
            for n in range(chosen.workers)
        ]
        evaluated, of_evaluator = Channel.pair()
        evaluator = threading.Thread(
            target=evaluate,
            args=(chosen, dataset, learners[-1], pushed.cut, of_evaluator, DeviceLine.unread()),
            daemon=True,
        )
        for thread in (evaluator, *workers):
            thread.start()
        rows = b""
        events = []
        while received := REPORTS.receive(report):
            rows += received.raw if isinstance(received, UpdatesApplied) else b""
            if isinstance(received, EventReported):
                events.append(received.text)
        for thread in (serving, evaluator, *workers):
            thread.join(20)
            assert not thread.is_alive()
        for channel in (report, evaluated, of_evaluator):
            channel.close()
        assert events == []
        self.parameters: FloatVector = self.half.parameters
        self.payload: npt.NDArray[np.uint32] = np.frombuffer(rows, UPDATE)["payload_bytes"]
        assert len(self.payload) == chosen.training.updates

    @staticmethod
    def _serve(server: WallServer, theirs: Channel) -> None:
        try:
            server.serve()
        finally:
            theirs.close()


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, dataset: Dataset) -> Callable[..., Ran]:
    def run(algorithm: dict[str, Any], **changes: Any) -> Ran:
        return Ran(monkeypatch, dataset, settings(algorithm, **changes))

    return run


ADACOMP = {"name": "adacomp", "ratio": 0.01}


@pytest.mark.parametrize("algorithm", [{"name": "asgd"}, ADACOMP], ids=["asgd", "adacomp"])
def test_exact_encodings_and_pulls_change_no_bit(
    ran: Callable[..., Ran], algorithm: dict[str, Any]
) -> None:
    plain = ran(algorithm, encoding={"indices": "uint32"})
    changed = ran(algorithm, pulls="changed")
    waiting = {"distribution": "constant", "mean": "2ms"}
    zstd = ran(algorithm, pulls="changed", encoding={"compression": "zstd"}, waiting=waiting)
    assert np.isfinite(plain.parameters).all()
    assert plain.parameters.tobytes() == changed.parameters.tobytes()
    assert plain.parameters.tobytes() == zstd.parameters.tobytes()
    if algorithm is ADACOMP:
        assert plain.payload.max() > changed.payload.max() > zstd.payload.max()


def test_a_worker_half_learns_what_the_encoding_lost(
    ran: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[Update, Update]] = []
    monkeypatch.setattr(
        WorkerHalf, "lost", lambda self, update, received: told.append((update, received))
    )
    ran(ADACOMP, encoding={"values": "float32"})
    assert told == []
    ran(ADACOMP, encoding={"values": "bfloat16"})
    assert len(told) >= UPDATES
    for update, received in told:
        assert isinstance(update, SparseUpdate)
        assert isinstance(received, SparseUpdate)
        assert received.indices is update.indices
        bits = received.values.view(np.uint32)
        assert not (bits & 0xFFFF).any()
        assert np.allclose(received.values, update.values, rtol=2**-8, atol=0)
        assert (received.values != update.values).any()


def test_lossy_encodings_round_an_update_and_no_more(ran: Callable[..., Ran]) -> None:
    # Only the first update: later ones hold other entries, as rounding moves some over the threshold.
    exact = ran(ADACOMP, updates=1)
    for values, tolerance in (("float16", 5e-4), ("bfloat16", 4e-3), ("int8", 1e-2)):
        lossy = ran(ADACOMP, encoding={"values": values}, updates=1)
        moved = np.linalg.norm(exact.parameters - initial(exact))
        apart = np.linalg.norm(lossy.parameters - exact.parameters)
        assert 0 < apart < tolerance * moved, values


def initial(run: Ran) -> FloatVector:
    start: FloatVector = initialise("mlp", "paper", stream(1, "initial"))
    assert start.shape == run.parameters.shape
    return start
