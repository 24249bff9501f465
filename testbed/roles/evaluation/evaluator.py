"""The evaluator: a device that only observes, and measures every version that it is sent.

It pushes nothing and asks for nothing: the server (or the evaluated peer) sends it parameters when an
evaluation is due, at once or, if the evaluator is late, from a queue. Its results go to the
orchestrator over the host, not over the emulated network; the server only receives a FINISHED, after
which it no longer needs to keep those parameters.
"""

import socket
import time

from testbed.channel import Channel
from testbed.learning.data.datasets import Dataset
from testbed.learning.learner import Learner
from testbed.messages.codec import send
from testbed.messages.reports import VersionEvaluated
from testbed.roles.evaluation.slices import evaluate_slices
from testbed.roles.transport.greeting import Identity, connect
from testbed.roles.transport.receiving import receive_exactly, receive_header
from testbed.telemetry.board import DeviceLine
from testbed.training.settings import Settings
from testbed.updates import as_bytes
from testbed.wire import WireError
from testbed.wire.frames import Kind, header


def evaluate(
    settings: Settings, dataset: Dataset, learner: Learner, report: Channel, line: DeviceLine
) -> None:
    """Evaluate what the server sends until it says STOP."""
    if settings.servers > 1:
        evaluate_slices(settings, dataset, learner, report, line)
        return
    images = dataset.test_images[: settings.data.evaluation_images]
    labels = dataset.test_labels[: settings.data.evaluation_images]
    parameters = as_bytes(learner.parameters)
    accepts = {Kind.PARAMETERS: len(parameters), Kind.STOP: 0}

    def listen(connection: socket.socket) -> None:
        connected = time.monotonic()
        while True:
            head = receive_header(connection, accepts)
            version = head.number
            if head.kind is Kind.STOP:
                return
            if head.length != len(parameters):
                raise WireError(f"parameters of {head.length} bytes, expected {len(parameters)}")
            receive_exactly(connection, parameters)
            accuracy, loss, measured = learner.evaluate(images, labels)
            send(report, VersionEvaluated(version, accuracy, loss, connected, measured))
            line.look()
            connection.sendall(header(Kind.FINISHED, version))

    while True:
        greeted = connect(settings, Identity(settings.evaluator), learner.layout.total)
        with greeted.connection as connection:
            try:
                listen(connection)
                line.done()
                return
            except (ConnectionError, TimeoutError):
                if settings.faults.server_absence is None:
                    raise  # otherwise the server may have been killed, and comes back
