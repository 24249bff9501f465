"""Charts of ingress over time, of ingress by worker, and of staleness."""

from collections.abc import Sequence

import numpy as np

from testbed import number_text as q
from testbed.results.figures import fault_strip
from testbed.results.figures.chart import HEIGHT, LOW, NONE, Axis, Chart, Panel, Plot, Series
from testbed.results.reading.curves import Curve
from testbed.results.reading.ingress import KINDS, IngressOverTime, merged_remarks

_BARS = 60
"""Maximum number of bars, so that a histogram of staleness is legible with hundreds of workers."""
KIND_COLOURS = dict(
    zip(
        KINDS,
        (
            "#0072B2",
            "#E69F00",
            "#009E73",
            "#D55E00",
            "#CC79A7",
            "#56B4E9",
            "#7F7F7F",  # black would vanish on a dark page
            "#0072B2",
        ),
        strict=True,
    )
)


def over_time(curves: Sequence[Curve], ingress: Sequence[IngressOverTime]) -> Chart:
    """Make a plot for each curve: bytes per second, the kinds stacked, with faults below.

    Every plot has axes of its own: runs take different times, and rates differ a hundredfold.
    """
    what = "the programs" if all(curve.of_programs for curve in curves) else "training"
    height = HEIGHT if len(curves) == 1 else LOW
    plots = []
    for i, (curve, own) in enumerate(zip(curves, ingress, strict=True)):
        bins = len(next(iter(own.rates.values()), ()))
        edges = own.start + own.width * np.arange(bins + 1.0)
        stack = tuple(
            Series(KINDS[kind], edges, np.append(own.rates[kind], own.rates[kind][-1:]),
                   KIND_COLOURS[kind], "stack")
            for kind in KINDS if kind in own.rates
        )  # fmt: skip
        y = Axis("PS ingress", "B/s", low=0)
        main = Panel(y, stack, height=height, nothing="" if stack else "no ingress")
        x = Axis(f"seconds since {what} began", low=edges[0], high=edges[-1] if bins else 1)
        strip = fault_strip.strip([(i, curve)], "time") if stack else ()
        plots.append(Plot(x, (main, *strip), curve.title))
    remarks = merged_remarks([curve.title for curve in curves], ingress)
    return Chart(tuple(plots), min(2, len(curves)), remarks)


def by_worker(curves: Sequence[Curve], ingress: Sequence[IngressOverTime]) -> Chart:
    """Make each curve's cumulative distribution of a worker's ingress, relative to the mean."""
    series = []
    for i, (curve, own) in enumerate(zip(curves, ingress, strict=True)):
        count = len(own.workers)
        mean = f", mean {q.as_bytes(float(own.worker_bytes.mean()))}" if count else ""
        told = [
            f"{who}: {q.as_bytes(size)}"
            for who, size in zip(own.workers, own.worker_bytes, strict=True)
        ]
        series.append(
            Series(
                f"{curve.title}{mean}",
                np.concatenate([own.worker_shares[:1], own.worker_shares]),
                100 * np.arange(count + 1.0) / count if count else NONE,
                i,
                "steps",
                texts=(*told[:1], *told),
            )
        )
    shares = np.concatenate([one.x for one in series])
    # Workers that send nearly the same are not drawn as if they differed.
    margin = 0.05 * np.ptp(shares) if len(shares) else 0.0
    low, high = min(0.9, *(shares - margin)), max(1.1, *(shares + margin))
    x = Axis("ingress from a worker ÷ mean of the run's workers", low=low, high=high)
    y = Axis("workers with at most this (%)", low=0, high=101)
    panel = Panel(y, tuple(series), nothing="" if len(shares) else "no update yet")
    return Chart(
        (Plot(x, (panel,)),), 1, merged_remarks([curve.title for curve in curves], ingress)
    )


def staleness(curves: Sequence[Curve]) -> Chart:
    """Make the curves' histograms of staleness, as outlines, so that they can be told apart.

    The updates of all seeds of a curve are taken together, and all histograms have bars of one width.
    """
    of_curves = [np.concatenate([run.staleness for run in curve.runs]) for curve in curves]
    largest = max((int(one.max()) for one in of_curves if len(one)), default=0)
    width = max(1, -(-(largest + 1) // _BARS))
    series = []
    for i, (curve, updates) in enumerate(zip(curves, of_curves, strict=True)):
        shares = 100 * np.bincount(updates // width) / max(1, len(updates))
        x = np.append(0, np.arange(len(shares) + 1.0) * width) if len(shares) else NONE
        y = np.concatenate([[0], shares, [0]]) if len(shares) else NONE
        series.append(Series(curve.title, x, y, i, "steps"))
    per = f" per {width} of staleness" if width > 1 else ""
    nothing = "" if any(len(one.x) for one in series) else "no update yet"
    panel = Panel(Axis(f"updates (%){per}", low=0), tuple(series), nothing=nothing)
    return Chart((Plot(Axis("staleness (updates)", whole=True, low=0), (panel,)),))
