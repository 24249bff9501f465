"""The chart of labels per device: for each worker a bar of its training images, stacked by label."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from testbed.results.figures.chart import Axis, Chart, Panel, Plot, Series
from testbed.results.reading.curves import Curve

COLOURS = (
    "#4E79A7", "#F28E2B", "#59A14F", "#E15759", "#EDC948",
    "#B07AA1", "#76B7B2", "#FF9DA7", "#9C755F", "#BAB0AC",
)  # fmt: skip
"""The colours of labels, or of ranges of them where there are more."""
FEW = 40
"""The most devices that are in the order of their numbers: of more, colours would be noise."""


def chart(curves: Sequence[Curve]) -> Chart | None:
    """Make a plot for each different partition of the curves' first runs; None if none has a record."""
    different: dict[bytes, tuple[list[str], npt.NDArray[np.int64]]] = {}
    for curve in curves:
        counts = curve.runs[0].image_counts
        if counts.size:
            key = repr(counts.shape).encode() + counts.tobytes()
            different.setdefault(key, ([], counts))[0].append(curve.name)
    if not different:
        return None
    several = len(different) > 1
    plots = [
        _plot(counts, ", ".join(names) if several else "") for names, counts in different.values()
    ]
    seeds = any(len(curve.runs) > 1 for curve in curves)
    remarks = ("Of several seeds, the first.",) if seeds else ()
    return Chart(tuple(plots), min(2, len(plots)), remarks)


def _plot(counts: npt.NDArray[np.int64], title: str) -> Plot:
    """Stack the images of devices, by their numbers; of many, those with one most frequent label."""
    devices, order = len(counts), np.arange(len(counts))
    label = "worker"
    if devices > FEW:
        order = np.lexsort((-counts.sum(axis=1), counts.argmax(axis=1)))
        label = "workers, by their most frequent label"
    x = Axis(label, whole=True, low=-0.5, high=devices - 0.5)
    names = tuple(f"worker {i}" for i in order.tolist())
    return Plot(x, (Panel(Axis("training images", low=0.0), _stack(counts[order], names)),), title)


def _stack(counts: npt.NDArray[np.int64], names: tuple[str, ...]) -> tuple[Series, ...]:
    """Return a series for each label; of more labels than colours for each of equal ranges of them."""
    devices, labels = counts.shape
    edges = np.arange(devices + 1) - 0.5  # so that a bar stands at its device's number
    found = []
    ranges = np.array_split(np.arange(labels), min(labels, len(COLOURS)))
    for colour, own in zip(COLOURS, ranges, strict=False):
        heights = counts[:, own].sum(axis=1).astype(np.float64)
        name = f"label {own[0]}" if len(own) == 1 else f"labels {own[0]} to {own[-1]}"
        # The last step ends where the last bar does.
        y, texts = np.append(heights, heights[-1]), (*names, names[-1])
        found.append(Series(name, edges, y, colour, "stack", texts=texts))
    return tuple(found)
