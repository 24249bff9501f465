"""Figures for a paper: one column wide, SVG and PNG, the same bytes from the same runs.

Matplotlib's objects are used without pyplot, so that nothing is drawn on a screen and no figure is
kept alive. A run keeps its colour, marker and dashes in every figure; the three differ together, so
that neither colour blindness nor a black-and-white print merges two curves.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from testbed.errors import TestbedError
from testbed.results.finding import distinct_names
from testbed.results.quantities import as_bytes
from testbed.results.reading import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Measure: TypeAlias = Literal["payload", "message", "wire"]

# Okabe and Ito's palette, its yellow left out (too pale for a line) and its black last.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.5, 1.2, 1.5)), "--")
_MARKED = 8
"""Markers on each curve, however many evaluations it has."""
_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib: the same letters on every host
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#d9d9d9",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.6,
    "svg.hashsalt": "testbed",  # otherwise the ids in an SVG are random
    "svg.fonttype": "path",
    "text.parse_math": False,  # a dollar in a name is a dollar
}
_INCHES = (3.4, 2.6)


def write_figures(runs: Sequence[Run], directory: Path) -> list[Path]:
    """Write accuracy versus wire ingress and versus iteration, SVG and PNG; return the paths.

    Raises:
        NoRunError: a journal cannot be read.
        TestbedError: the directory cannot be written to.
    """
    paths = [
        directory / f"accuracy-versus-{axis}.{suffix}"
        for axis in ("ingress", "iteration")
        for suffix in ("svg", "png")
    ]
    for path in paths:
        write_figure(runs, path, against="wire" if "ingress" in path.stem else "iteration")
    return paths


def write_figure(
    runs: Sequence[Run], path: Path, against: Measure | Literal["iteration"] = "wire"
) -> Path:
    """Write accuracy versus ingress (log axis) or iteration, in the format of the path's suffix.

    Args:
        runs: their curves are drawn in this order; one without an evaluation only has its name.
        path: ends in ``.svg``, ``.png`` or ``.pdf``.
        against: which bytes the x axis counts, or ``iteration``.

    Raises:
        NoRunError: a journal cannot be read.
        TestbedError: the suffix is another, or the file cannot be written.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    if path.suffix not in {".svg", ".png", ".pdf"}:
        raise TestbedError(f"{path} cannot be drawn: let its name end in .svg, .png or .pdf")
    date = {".svg": "Date", ".pdf": "CreationDate"}.get(path.suffix)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=_INCHES, layout="constrained")
        _draw(figure, runs, against)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=300, metadata={date: None} if date else {})
        except OSError as error:
            raise TestbedError(f"the figure {path} cannot be written: {error.strerror}") from error
    return path


def _draw(figure: "Figure", runs: Sequence[Run], against: Measure | Literal["iteration"]) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes = figure.subplots()
    for i, (name, run) in enumerate(zip(distinct_names(runs), runs, strict=True)):
        label = name if run.ended == "completed" else f"{name} ({run.ended})"
        _curve(axes, i, label, run, against)
    drawn = any(len(line.get_xdata()) for line in axes.lines)  # type: ignore[arg-type]
    if against == "iteration":
        axes.set_xlabel("iteration (updates applied)")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
        axes.set_xlim(left=0)
    else:
        axes.set_xlabel(f"PS ingress, {against} bytes")
        if drawn:
            axes.set_xscale("log")
            _label_bytes(axes)
            axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("test accuracy (%)")
    if drawn:
        bottom, top = axes.get_ylim()
        axes.set_ylim(max(bottom, 0), min(top, 101))
        axes.margins(x=0.02)
    else:
        axes.set_ylim(0, 100)
        axes.text(0.5, 0.5, "no evaluation yet", ha="center", transform=axes.transAxes)
    if runs:
        # Above the curves: no corner of theirs is free in every experiment.
        figure.legend(
            *axes.get_legend_handles_labels(),
            loc="outside upper center",
            ncols=min(len(runs), 3),
            columnspacing=1.2,
        )


def _curve(axes: "Axes", i: int, label: str, run: Run, against: str) -> None:
    curve = run.curve
    x = curve.iteration if against == "iteration" else getattr(curve, f"{against}_bytes")
    # The evaluation before any push has no place on a log axis (greetings would take up most of
    # it); one that is not a number, nowhere.
    shown = np.isfinite(curve.accuracy) & ((curve.iteration > 0) | (against == "iteration"))
    every = max(1, int(shown.sum()) // _MARKED)
    axes.plot(
        x[shown],
        curve.accuracy[shown],
        label=label,
        color=COLOURS[i % len(COLOURS)],
        marker=_MARKERS[i % len(_MARKERS)],
        linestyle=_DASHES[i % len(_DASHES)],
        markevery=(i % every, every),  # staggered, so that markers of close curves do not hide
    )


def _label_bytes(axes: "Axes") -> None:
    """Ticks at decades, and between them where the curves span fewer than three."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    low, high = axes.get_xlim()
    decades = np.log10(high / low)
    steps = (1.0,) if decades >= 3 else (1.0, 3.0) if decades >= 1.5 else (1.0, 2.0, 5.0)
    axes.xaxis.set_major_locator(LogLocator(subs=steps))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _short(x)))


def _short(count: float) -> str:
    """``1e6`` as ``1 MB``: like ``as_bytes``, without zeros after the point."""
    number, unit = as_bytes(count).split()
    return f"{float(number):g} {unit}"
