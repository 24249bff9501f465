"""``python -m bench.costs``: what a message, a byte and an update cost a server on this host.

The server is the one that runs under the wall clock, in a thread; a worker asks it for parameters, and
pushes, over a connection on loopback. What counts is the processor time of the server's thread, in user
and system mode, and not what it waits. With a model of one parameter a question and its answer are two
messages of hardly a byte; with the file's model the answer has that model's bytes; and with a push in
addition an update is taken in. So the three costs of an exchange add up to what was measured. Prints
what each exchange takes, and a line ``costs:`` for experiment files.
"""

import argparse
import socket
import statistics
import threading
import time
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from testbed.channel import Channel
from testbed.experiment.load import load
from testbed.experiment.sections.timing import CostsSpec
from testbed.learning.data.catalogue import inputs_of
from testbed.planning.plan import plan
from testbed.roles.server.server_inputs import ServerInputs
from testbed.roles.server.wall_server import WallServer
from testbed.training import computation
from testbed.training.pushed_parts import PushedParts
from testbed.training.run_devices import PORT
from testbed.training.settings import FaultSettings, Settings
from testbed.updates import Layout
from testbed.wire.frames import HEADER, Kind, header, parse

SPEC = Path(__file__).parents[1] / "experiments" / "quickstart.yaml"
REPETITIONS, EXCHANGES = 7, 200
ENDLESS = 10**9
"""Updates that the server never reaches, and after which it would evaluate."""
_ANY = dict.fromkeys(Kind, 1 << 30)


@dataclass(frozen=True, slots=True)
class Exchange:
    """The cost of one question to a server, with a push before it or without.

    Attributes:
        seconds: of its processor: the median of the repetitions, and the least and the greatest.
        messages, size: the number and the bytes of all messages together.
    """

    seconds: tuple[float, float, float]
    messages: int
    size: int


def alone(settings: Settings) -> Settings:
    """Return the settings of a run with one worker and one server, which does not end."""
    network = replace(
        settings.network,
        server_addresses=["127.0.0.1"],
        shared_rates=(),
        routes=(),
        route_of=(),
        co_located=0,
    )
    training = settings.training.model_copy(update={"updates": ENDLESS})
    evaluation = settings.spec.evaluation.model_copy(update={"every": ENDLESS})
    spec = settings.spec.model_copy(update={"training": training, "evaluation": evaluation})
    return replace(settings, workers=1, spec=spec, network=network, faults=FaultSettings(()))


class Worker:
    """The worker of a server in a thread of this process."""

    def __init__(self, settings: Settings, layout: Layout) -> None:
        report, theirs = Channel.pair()
        half = computation.server_half(settings, layout, np.zeros(layout.total, np.float32))
        self._server = WallServer(ServerInputs(settings, half, layout, theirs))
        self._thread = threading.Thread(target=self._server.serve, daemon=True)
        self._thread.start()
        threading.Thread(target=_read, args=(report,), daemon=True).start()
        self._connection = _connected()
        secret = bytes.fromhex(settings.network.secret)
        self._connection.sendall(header(Kind.HELLO, 0, length=len(secret)) + secret)
        self._receive()
        parts = PushedParts.of_run(settings, layout)
        gradient = np.random.default_rng(1).normal(0, 1e-3, layout.total).astype(np.float32)
        update = computation.worker_half(settings, layout, 0).compress(gradient)
        (self._encoded,) = parts.encode(update)

    def _receive(self) -> tuple[int, int]:
        """Receive a message; return the number in its header, and its bytes."""
        head = parse(_exactly(self._connection, HEADER.size), _ANY)
        _exactly(self._connection, head.length)
        return head.number, HEADER.size + head.length

    def _exchange(self, base: int | None) -> tuple[int, int]:
        """Ask, after a push if there is a base version; return the version, and all bytes."""
        message = header(Kind.PULL)
        if base is not None:
            encoded = self._encoded
            head = header(Kind.PUSH, base, encoding=encoded.encoding, loss=1.0, length=encoded.size)
            message = b"".join((head, *encoded.body, message))
        self._connection.sendall(message)
        version, size = self._receive()
        return version, size + len(message)

    def measure(self, *, pushes: bool) -> Exchange:
        """Measure exchanges, with pushes or without."""
        clock = time.pthread_getcpuclockid(self._thread.ident or 0)
        version, _ = self._exchange(None)
        found, sizes = [], 0
        for repetition in range(1 + REPETITIONS):
            before = time.clock_gettime(clock)
            for _ in range(EXCHANGES):
                version, size = self._exchange(version if pushes else None)
                sizes += size if repetition else 0
            found.append((time.clock_gettime(clock) - before) / EXCHANGES)
        del found[0]  # it warms up
        seconds = statistics.median(found), min(found), max(found)
        return Exchange(seconds, 2 + pushes, round(sizes / (REPETITIONS * EXCHANGES)))


def _read(report: Channel) -> None:
    """Read what the server reports, as the orchestrator would."""
    while report.receive() is not None:
        pass


def _connected() -> socket.socket:
    deadline = time.monotonic() + 10
    while True:
        try:
            return socket.create_connection(("127.0.0.1", PORT), timeout=60)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray(count)
    rest = memoryview(data)
    while rest:
        received = connection.recv_into(rest)
        if not received:
            raise SystemExit("the server has closed the connection")
        rest = rest[received:]
    return bytes(data)


def _measured(settings: Settings, layout: Layout, pushes: bool) -> Exchange:
    return Worker(settings, layout).measure(pushes=pushes)


def costs(small: Exchange, large: Exchange, push: Exchange, parameters: int) -> CostsSpec:
    """Return the costs that add up to three exchanges: of one parameter, of all, and with a push."""
    byte = max(0.0, (large.seconds[0] - small.seconds[0]) / (large.size - small.size))
    message = (small.seconds[0] - small.size * byte) / small.messages
    rest = push.seconds[0] - push.messages * message - push.size * byte
    return CostsSpec.model_construct(message=message, byte=byte, apply=max(0.0, rest / parameters))


def main() -> None:
    """Measure, and print the line."""
    parser = argparse.ArgumentParser(prog="python -m bench.costs", description=__doc__)
    parser.add_argument("spec", nargs="?", type=Path, default=SPEC, help="default: quickstart")
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="as --set takes them")
    options = parser.parse_args()
    spec = load(options.spec, options.changes)
    settings = plan(spec)[0].settings
    algorithm = settings.algorithm
    if computation.protocol(settings) != "pull" or getattr(algorithm, "wait_for", None):
        raise SystemExit(
            f"{algorithm.name} waits for several workers, and here is one: "
            "write `algorithms=[asgd]` after the file"
        )
    settings = alone(settings)
    layout = computation.learner(settings, inputs_of(spec.dataset.choice)).layout
    asked = (
        ("a question, one parameter", Layout(("one",), (1,)), False),
        ("a question, the model", layout, False),
        ("a push and a question", layout, True),
    )
    found = []
    for what, of, pushes in asked:
        with get_context("fork").Pool(1) as pool:  # each server has the port to itself
            one = pool.apply(_measured, (settings, of, pushes))
        found.append(one)
        middle, least, most = (1e6 * seconds for seconds in one.seconds)
        print(f"{what:26}{one.size:>12,} bytes {middle:9.1f} us  ({least:.1f} to {most:.1f})")
    of_each = costs(found[0], found[1], found[2], layout.total)
    print(
        f"costs: {{message: {1e6 * of_each.message:.3g}us, byte: {1e9 * of_each.byte:.2g}ns, "
        f"apply: {1e9 * of_each.apply:.2g}ns}}"
    )


if __name__ == "__main__":
    main()
