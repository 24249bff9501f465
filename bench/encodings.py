"""``python -m bench.encodings``: measure the bytes and the time that each encoding takes.

The updates are those that workers push: the largest entries of gradients of the CNN on the bundled
digits, after some training, selected in each tensor and over the whole model. Prints the tables of
``docs/encodings.md``. Sizes are means over the updates, times medians; sizes depend on the host only
through the last digit of a gradient.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from math import lgamma, log
from typing import Any, get_args

import numpy as np

from testbed.algorithms import ALGORITHMS
from testbed.algorithms.interface import Conditions
from testbed.encoding_choice import EncodingChoice, Indices, Values
from testbed.learning.data.batches import Batches
from testbed.learning.data.datasets import load
from testbed.learning.learner import Learner
from testbed.learning.models import initialise
from testbed.random_streams import stream
from testbed.updates import DenseUpdate, FloatVector, Layout, SparseUpdate, Update
from testbed.wire.encodings import Codec
from testbed.wire.values import VALUE_CODINGS, Int8, ValueCoding

STEPS = 300
"""Steps of plain SGD before the first gradient that is used."""
UPDATES = 20
RATIOS = (0.1, 0.01, 0.001)
SCOPES = ("tensor", "model")
REPEATS = 30
ONE = Conditions(learning_rate=0.1, workers=1, batch_size=10, updates=1)


def gradients() -> tuple[Layout, list[FloatVector]]:
    """Return successive gradients of mini-batches of 10, taken while training goes on."""
    dataset = load("digits")
    learner = Learner("cnn", 10)
    learner.parameters[:] = initialise("cnn", "paper", stream(1, "initial"))
    everything = np.arange(len(dataset.train_images))
    batches = Batches(dataset, everything, 10, stream(1, "batches", 0))
    found = []
    for step in range(STEPS + UPDATES):
        gradient, _ = learner.gradient(*batches.next())
        if step >= STEPS:
            found.append(gradient.copy())
        learner.parameters -= np.float32(0.1) * gradient
    return learner.layout, found


def largest(layout: Layout, gradient: FloatVector, ratio: float, scope: str) -> SparseUpdate:
    """Return the update that a Comp-ASGD worker pushes for a gradient."""
    algorithm = ALGORITHMS["comp-asgd"]
    fields = {"name": "comp-asgd", "ratio": ratio, "scope": scope}
    options = algorithm.options_type.model_validate(fields)
    update = algorithm.worker(options, layout, ONE).compress(gradient)
    assert isinstance(update, SparseUpdate)
    return update


def limit(total: int, count: int) -> float:
    """Return the least mean bits per index of any code for ``count`` indices out of ``total``."""
    ways = lgamma(total + 1) - lgamma(count + 1) - lgamma(total - count + 1)
    return ways / log(2) / count


def body_bytes(codec: Codec, updates: Sequence[Update]) -> float:
    """Return the mean length of an encoded body."""
    return statistics.mean(sum(map(len, codec.encode(update)[1])) for update in updates)


def microseconds(call: Callable[[], object]) -> float:
    """Return the median time of a call."""
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return 1e6 * statistics.median(times)


def row(*cells: object) -> None:
    """Print one row of a table."""
    print("| " + " | ".join(str(cell) for cell in cells) + " |")


def heading(*cells: str) -> None:
    """Print the heading of a table; all columns but the first are numbers."""
    print()
    row(*cells)
    row("---", *["---:"] * (len(cells) - 1))


def choose(**fields: Any) -> EncodingChoice:
    """Make an encoding choice from the keys of an experiment file."""
    return EncodingChoice.model_validate(fields)


def index_table(layout: Layout, updates: dict[tuple[float, str], list[SparseUpdate]]) -> None:
    """Print the bits per index of each coding, next to the limit."""
    names = [name for name in get_args(Indices) if name != "uint32"]
    heading("c, scope", "entries", "limit", "uint32", *names)
    for (ratio, scope), some in updates.items():
        count = len(some[0].indices)
        bits = [
            8 * body_bytes(Codec(choose(indices=name), layout.sizes), some) / count - 32
            for name in names
        ]
        cells = [f"{b:.2f}" for b in (limit(layout.total, count), 32, *bits)]
        row(f"{ratio:g}, {scope}", f"{count:,}", *cells)


def value_table(layout: Layout, updates: dict[tuple[float, str], list[SparseUpdate]]) -> None:
    """Print the bytes per entry of each type of values, with and without zstd, next to plain."""
    heading("c, scope", "plain", *[f"{v}{z}" for v in get_args(Values) for z in ("", " + zstd")])
    for (ratio, scope), some in updates.items():
        count = len(some[0].indices)
        choices = [choose(indices="uint32")]
        for values in get_args(Values):
            choices += choose(values=values), choose(values=values, compression="zstd")
        sizes = [body_bytes(Codec(choice, layout.sizes), some) / count for choice in choices]
        row(f"{ratio:g}, {scope}", *[f"{size:.2f}" for size in sizes])


def time_table(layout: Layout, some: SparseUpdate, dense: DenseUpdate) -> None:
    """Print the times to encode and decode one sparse and one dense update."""
    heading("encoding", "bytes", "encode µs", "decode µs")
    fields: list[dict[str, Any]] = [{"indices": name} for name in get_args(Indices)]
    fields += [{"values": name} for name in get_args(Values) if name != "float32"]
    fields += [{"compression": "zstd"}, {"values": "int8", "compression": "zstd"}]
    whole = [{"values": name} for name in get_args(Values)] + [{"compression": "zstd"}]
    for update, kinds in ((some, fields), (dense, whole)):
        for kind in kinds:
            codec = Codec(choose(**kind), layout.sizes)
            encoding, pieces = codec.encode(update)
            body = memoryview(b"".join(pieces))
            name = ", ".join(kind.values()) + (", dense" if update is dense else "")
            encode = microseconds(partial(codec.encode, update))
            decode = microseconds(partial(codec.decode, encoding, body))
            row(name, f"{len(body):,}", f"{encode:.0f}", f"{decode:.0f}")


def error_table(sparse: Sequence[FloatVector], dense: Sequence[FloatVector]) -> None:
    """Print the root mean square of the rounding error over that of the values."""
    heading("values", "bits", "error, c = 0.01", "error, dense")
    codings: list[tuple[str, ValueCoding]] = [
        (name, coding) for name, coding in VALUE_CODINGS.items() if name in ("float16", "bfloat16")
    ]
    codings += [(f"int8, blocks of {n}", Int8(n)) for n in (32, 64, 128, 256)]
    for name, coding in codings:
        errors = []
        for vectors in (sparse, dense):
            lost = [v - coding.decode(coding.encode(v)) for v in vectors]
            squares = [float(np.sum(x.astype(np.float64) ** 2)) for x in (*lost, *vectors)]
            errors.append((sum(squares[: len(lost)]) / sum(squares[len(lost) :])) ** 0.5)
        bits = 8 * coding.size(1 << 16) / (1 << 16)
        row(name, f"{bits:.3f}", *[f"{error:.2e}" for error in errors])


def main() -> None:
    """Measure and print all tables."""
    argparse.ArgumentParser(prog="python -m bench.encodings", description=__doc__).parse_args()
    layout, found = gradients()
    updates = {
        (ratio, scope): [largest(layout, gradient, ratio, scope) for gradient in found]
        for ratio in RATIOS
        for scope in SCOPES
    }
    print(f"{layout.total:,} parameters in tensors of {', '.join(map(str, layout.sizes))}")
    print("\nBits per index, float32 values:")
    index_table(layout, updates)
    print("\nBytes per entry, indices auto:")
    value_table(layout, updates)
    some = updates[0.01, "tensor"]
    print("\nRounding, root mean square over that of the values:")
    error_table([u.values for u in some], found)
    print(f"\nTimes of one update of {len(some[0].indices):,} entries, and of dense ones:")
    time_table(layout, some[0], DenseUpdate(found[0]))


if __name__ == "__main__":
    main()
