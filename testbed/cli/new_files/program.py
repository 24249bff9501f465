"""Federated averaging of a logistic regression: a server, and clients with data of their own."""

import json
import math
import random
import socket
import sys
from typing import TextIO

ROUNDS, SIZE, SAMPLES, RATE = 20, 32, 60, 0.02
Sample = tuple[list[float], int]


def dot(one: list[float], other: list[float]) -> float:
    """Return the sum of the products."""
    return sum(a * b for a, b in zip(one, other, strict=True))


def samples(count: int, seed: int) -> list[Sample]:
    """Draw points, and on which side of a plane that all devices share each of them is."""
    plane = random.Random("plane")
    normal = [plane.gauss(0, 1) for _ in range(SIZE)]
    draw = random.Random(seed)
    points = [[draw.gauss(0, 1) for _ in range(SIZE)] for _ in range(count)]
    return [(point, int(dot(normal, point) > 0)) for point in points]


def trained(weights: list[float], data: list[Sample]) -> list[float]:
    """Return the weights after one pass over a client's data."""
    for point, label in data:
        error = 1 / (1 + math.exp(-dot(weights, point))) - label
        weights = [w - RATE * error * x for w, x in zip(weights, point, strict=True)]
    return weights


def serve() -> None:
    """Send the weights to all clients and take the mean of what they return, round by round."""
    test = samples(1000, seed=-1)
    weights = [0.0] * SIZE
    with socket.create_server(("", 8000)) as listener:
        clients: list[TextIO] = []
        count = 1
        while len(clients) < count:  # each client says how many they are
            clients.append(listener.accept()[0].makefile("rw"))
            count = int(clients[-1].readline())
    for number in range(1, ROUNDS + 1):
        for client in clients:
            print(json.dumps(weights), file=client, flush=True)
        received = [json.loads(client.readline()) for client in clients]
        weights = [math.fsum(column) / len(column) for column in zip(*received, strict=True)]
        right = sum((dot(weights, point) > 0) == label for point, label in test)
        print(f"round={number} accuracy={right / len(test):.4f}", flush=True)


def train(server: str, index: int, count: int) -> None:
    """Train on data of one's own, from the weights that come, until the server has ended."""
    data = samples(SAMPLES, seed=index)
    with socket.create_connection((server, 8000)) as connection, connection.makefile("rw") as file:
        print(count, file=file, flush=True)
        for line in file:
            print(json.dumps(trained(json.loads(line), data)), file=file, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        train(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
