"""The work of ``make bench`` on Flower's simulation engine; a program for ``bench.peers``.

Each of the clients gets the parameters of AdaComp's CNN, takes some steps on mini-batches of 10, and
sends the parameters back; the server app takes their mean. A round is a message to each client and its
answer. Clients compute with this testbed's own learner, so that only what is around the gradient
differs. Flower's actors find this module by its name, so it is imported, and not run by ``-m``.
"""

import argparse
import json
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from testbed.learning.data.batches import Batches
from testbed.learning.data.datasets import Dataset, load
from testbed.learning.learner import Learner
from testbed.learning.models import initialise
from testbed.random_streams import stream

BATCH = 10
RATE = np.float32(0.05)


@cache
def learner() -> Learner:
    """Return this process's learner: an actor of Flower computes for many clients."""
    return Learner("cnn", BATCH)


@cache
def dataset(path: str) -> Dataset:
    """Return the training images, read once by each process."""
    return load(path, "standardised", None, 1)


@cache
def batches(path: str, clients: int, client: int) -> Batches:
    """Return the mini-batches of a client: every image belongs to one."""
    images = dataset(path)
    shard = np.arange(client, len(images.train_labels), clients)
    return Batches(images, shard, BATCH, stream(1, "batches", client))


def trained(parameters: npt.NDArray[np.float32], config: ConfigRecord) -> npt.NDArray[np.float32]:
    """Return parameters, float32, (|Θ|,), after a client's steps of SGD."""
    own, path = learner(), str(config["path"])
    drawn = batches(path, int(config["clients"]), int(config["client"]))
    np.copyto(own.parameters, parameters)
    for _ in range(int(config["steps"])):
        gradient, _ = own.gradient(*drawn.next())
        own.parameters -= RATE * gradient
    return own.parameters.copy()


def client_app() -> ClientApp:
    """Return the app that each client runs for a message."""
    app = ClientApp()

    @app.train()  # type: ignore[untyped-decorator, unused-ignore] # Flower is not installed here
    def train(message: Message, context: Context) -> Message:
        (parameters,) = message.content["parameters"].to_numpy_ndarrays()
        found = trained(parameters, message.content["config"])
        content = RecordDict({"parameters": ArrayRecord(numpy_ndarrays=[found])})
        return Message(content, reply_to=message)

    return app


def server_app(path: str, clients: int, steps: int, rounds: int, seconds: list[float]) -> ServerApp:
    """Return the app that sends each client the parameters, and takes the mean of what comes back."""
    app = ServerApp()

    @app.main()  # type: ignore[untyped-decorator, unused-ignore]
    def main(grid: Grid, context: Context) -> None:
        parameters = initialise("cnn", "paper", stream(1, "initial"))
        while len(nodes := sorted(grid.get_node_ids())) < clients:
            time.sleep(0.1)
        for _ in range(rounds):
            began = time.monotonic()
            record = ArrayRecord(numpy_ndarrays=[parameters])
            messages = [
                Message(
                    RecordDict(
                        {
                            "parameters": record,
                            "config": ConfigRecord(
                                {"path": path, "clients": clients, "client": i, "steps": steps}
                            ),
                        }
                    ),
                    dst_node_id=node,
                    message_type="train",
                )
                for i, node in enumerate(nodes)
            ]
            replies = [
                one.content["parameters"].to_numpy_ndarrays()[0]
                for one in grid.send_and_receive(messages)
                if not one.has_error()
            ]
            if len(replies) < clients:
                raise SystemExit(f"flower: {len(replies)} of {clients} clients answered")
            parameters = np.mean(replies, axis=0, dtype=np.float32)
            seconds.append(time.monotonic() - began)

    return app


def main() -> None:
    """Run the rounds; print a JSON line with the gradient steps per second of all but the first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", type=Path, help="a folder of idx files")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--steps", type=int, default=1, help="gradient steps for each message")
    parser.add_argument("--rounds", type=int, default=3, help="the first is not counted")
    parser.add_argument("--processors", type=float, default=1.0, help="of each of Flower's actors")
    options = parser.parse_args()
    seconds: list[float] = []
    path = str(options.dataset.resolve())
    backend: dict[str, Any] = {
        "client_resources": {"num_cpus": options.processors, "num_gpus": 0.0},
        "init_args": {"include_dashboard": False, "log_to_driver": False},
    }
    run_simulation(
        server_app(path, options.clients, options.steps, options.rounds, seconds),
        client_app(),
        num_supernodes=options.clients,
        backend_config=backend,
    )
    if len(seconds) < options.rounds:
        raise SystemExit("flower: the rounds did not end")
    made = options.clients * options.steps * (options.rounds - 1)
    print(json.dumps({"steps_per_second": made / sum(seconds[1:]), "first_round": seconds[0]}))
