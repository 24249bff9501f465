"""A figure that a notebook shows, and that is drawn again in the format of any file."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.results.figures import style

if TYPE_CHECKING:
    import matplotlib.figure


class Figure:
    """A figure as the report draws it. A notebook shows it by itself."""

    def __init__(self, draw: style.Draw) -> None:
        self._draw = draw

    def save(self, path: str | Path) -> Path:
        """Write it as .svg, .png or .pdf, by the path's suffix, and return the path.

        Raises:
            TestbedError: the suffix is another, or the file cannot be written.
        """
        style.write(self._draw, [path := Path(path)])
        return path

    def matplotlib(self) -> "matplotlib.figure.Figure":
        """Draw it and return Matplotlib's figure, to change it."""
        return style.drawn(self._draw)

    def _repr_svg_(self) -> str:
        file = io.StringIO()
        with style.look():
            self.matplotlib().savefig(file, format="svg", metadata={"Date": None})
        return file.getvalue()
