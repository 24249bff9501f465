"""Decentralised training on the handwritten digits with Hivemind: peers without a server.

Each peer trains on its own samples. When the peers together have seen BATCHES_PER_ROUND batches,
they find each other through the distributed hash table, average their gradients directly, and
step. A peer needs the address of another peer to join, and the address contains a key that is new
in each run; so peer 0 hands its address out on a TCP port.
"""

import os
import socket
import threading
import time

import hivemind
import torch
from sklearn.datasets import load_digits
from torch import nn

INDEX = int(os.environ["TESTBED_INDEX"])
COUNT = int(os.environ["TESTBED_COUNT"])
ADDRESS = os.environ["TESTBED_ADDRESS"]
ROUNDS = int(os.environ.get("ROUNDS", "10"))
FIRST_PEER = "server"
PORT, RENDEZVOUS_PORT = 40000, 40001
BATCH = 32
TRAINING_SAMPLES = 1437


def serve(addresses: str) -> None:
    """Send the addresses of this peer to every connection, in a thread."""
    server = socket.create_server(("", RENDEZVOUS_PORT))

    def answer() -> None:
        while True:
            connection, _ = server.accept()
            with connection:
                connection.sendall(addresses.encode())

    threading.Thread(target=answer, daemon=True).start()


def ask() -> list[str]:
    """Return the addresses of the first peer, once it has started."""
    while True:
        try:
            with socket.create_connection((FIRST_PEER, RENDEZVOUS_PORT)) as connection:
                return connection.makefile().read().split()
        except ConnectionRefusedError:
            time.sleep(0.5)


def main() -> None:
    """Train until the peers have made ROUNDS common steps; print the accuracy after each."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(digits.data, dtype=torch.float32)[order] / 16
    labels = torch.tensor(digits.target)[order]
    mine = torch.arange(INDEX, TRAINING_SAMPLES, COUNT)

    dht = hivemind.DHT(
        host_maddrs=[f"/ip4/{ADDRESS}/tcp/{PORT}"],
        initial_peers=[] if INDEX == 0 else ask(),
        start=True,
    )
    if INDEX == 0:
        serve("\n".join(str(address) for address in dht.get_visible_maddrs()))

    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = hivemind.Optimizer(
        dht=dht,
        run_id="digits",
        params=model.parameters(),
        optimizer=lambda params: torch.optim.Adam(params, lr=0.01),
        batch_size_per_step=BATCH,
        target_batch_size=BATCH * 8 * COUNT,
        matchmaking_time=5.0,
        averaging_timeout=30.0,
    )
    generator = torch.Generator().manual_seed(INDEX)
    while optimizer.local_epoch < ROUNDS:
        before = optimizer.local_epoch
        chosen = mine[torch.randint(len(mine), (BATCH,), generator=generator)]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[chosen]), labels[chosen]).backward()
        optimizer.step()
        if optimizer.local_epoch != before:
            with torch.no_grad():
                scores = model(images[TRAINING_SAMPLES:])
            loss = nn.functional.cross_entropy(scores, labels[TRAINING_SAMPLES:]).item()
            hits = (scores.argmax(1) == labels[TRAINING_SAMPLES:]).float().mean().item()
            print(f"round={optimizer.local_epoch} accuracy={hits:.4f} loss={loss:.4f}", flush=True)
        time.sleep(0.1)
    optimizer.shutdown()
    dht.shutdown()


if __name__ == "__main__":
    main()
