"""The data, and a network with one hidden layer in plain NumPy.

The app reads scikit-learn's data file without importing scikit-learn: Flower starts a process for
each message to a client, and the import would add 90 MiB and a second to each of them.
"""

from importlib.metadata import distribution

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Digits = tuple[Floats, NDArray[np.int64]]

TRAINING_SAMPLES = 1437


def load_digits() -> Digits:
    """Read the 1,797 images of 8 × 8 pixels and their labels, in a fixed random order."""
    path = distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
    table = np.random.default_rng(0).permutation(np.loadtxt(str(path), delimiter=","))
    return (table[:, :-1] / 16).astype(np.float32), table[:, -1].astype(np.int64)


def training_part(index: int, count: int) -> Digits:
    """Return the share of the training samples that client `index` of `count` holds."""
    images, labels = load_digits()
    return images[index:TRAINING_SAMPLES:count], labels[index:TRAINING_SAMPLES:count]


def test_part() -> Digits:
    """Return the samples that no client holds."""
    images, labels = load_digits()
    return images[TRAINING_SAMPLES:], labels[TRAINING_SAMPLES:]


def new_model(hidden: int, seed: int) -> list[Floats]:
    """Draw the weights and biases of both layers."""
    random = np.random.default_rng(seed)
    return [
        random.normal(0, 0.18, (64, hidden)).astype(np.float32),
        np.zeros(hidden, np.float32),
        random.normal(0, (2 / hidden) ** 0.5, (hidden, 10)).astype(np.float32),
        np.zeros(10, np.float32),
    ]


def forward(model: list[Floats], images: Floats) -> tuple[Floats, Floats]:
    """Return the hidden layer's output and the probability of each digit."""
    w1, b1, w2, b2 = model
    hidden = np.maximum(images @ w1 + b1, 0)
    scores = hidden @ w2 + b2
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, exponentials / exponentials.sum(axis=1, keepdims=True)


def train(model: list[Floats], data: Digits, epochs: int, rate: float, batch: int) -> None:
    """Run stochastic gradient descent on the model in place."""
    images, labels = data
    w1, b1, w2, b2 = model
    for _ in range(epochs):
        for start in range(0, len(images), batch):
            x, y = images[start : start + batch], labels[start : start + batch]
            hidden, error = forward(model, x)
            error[np.arange(len(y)), y] -= 1
            error /= len(y)
            hidden_error = (error @ w2.T) * (hidden > 0)
            w2 -= rate * hidden.T @ error
            b2 -= rate * error.sum(axis=0)
            w1 -= rate * x.T @ hidden_error
            b1 -= rate * hidden_error.sum(axis=0)


def evaluate(model: list[Floats], data: Digits) -> tuple[float, float]:
    """Return the mean cross-entropy and the accuracy, a fraction."""
    images, labels = data
    _, probabilities = forward(model, images)
    loss = -np.log(probabilities[np.arange(len(labels)), labels] + 1e-12).mean()
    return float(loss), float((probabilities.argmax(axis=1) == labels).mean())
