"""A figure that a notebook shows, and that is drawn again in the format of any file."""

from pathlib import Path
from typing import TYPE_CHECKING

from testbed.results.figures import paper
from testbed.results.figures.chart import Chart

if TYPE_CHECKING:
    import matplotlib.figure


class Figure:
    """A figure as the report draws it. A notebook shows it by itself."""

    def __init__(self, chart: Chart) -> None:
        self._chart = chart

    def save(self, path: str | Path) -> Path:
        """Write it as .svg, .png or .pdf, by the path's suffix, and return the path.

        Raises:
            TestbedError: the suffix is another, or the file cannot be written.
        """
        return paper.write(self._chart, Path(path))

    def matplotlib(self) -> "matplotlib.figure.Figure":
        """Draw it and return Matplotlib's figure, to change it."""
        return paper.figure(self._chart)

    def _repr_svg_(self) -> str:
        return paper.as_svg(self._chart)
