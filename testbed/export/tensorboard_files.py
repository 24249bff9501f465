"""Event files of TensorBoard, a folder for each run under its id.

All values of one step are one event: ``SummaryWriter`` would write each by itself, and take five times
as long. Its scalars are floats of 32 bits.
"""

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.utils.tensorboard.summary import hparams

from testbed.export.exported_run import ExportedRun, ValueTable
from testbed.export.run_folder import digest_in, renewed, writable


class TensorBoardFiles:
    """A log directory of TensorBoard."""

    def __init__(self, folder: Path) -> None:
        self._folder = writable(folder)

    @property
    def hint(self) -> str:
        """A line that says how to open the runs."""
        return f"to see them: tensorboard --logdir {self._folder}"

    def digest_of(self, run: ExportedRun) -> str | None:
        """Return the digest with which a run was exported."""
        return digest_in(self._folder / run.folder)

    def write(self, run: ExportedRun, figures: Sequence[Path]) -> str:
        """Write a run's event file."""
        with renewed(self._folder / run.folder, run) as folder:
            # TensorBoard takes a file with this part in its name, and reads such files by their time.
            with (folder / f"events.out.tfevents.{int(run.began)}.testbed").open("wb") as file:
                writer = RecordWriter(file)
                _write_all(writer, run, figures)
            return str(folder)


def _write_all(writer: RecordWriter, run: ExportedRun, figures: Sequence[Path]) -> None:
    began = run.began
    writer.write(Event(wall_time=began, file_version="brain.Event:2").SerializeToString())
    results = {f"result/{name}": value for name, value in run.results.items()}
    # The first says which options there are. TensorBoard reads it of one run alone, and would not show
    # what only another has; without it, TensorBoard collects the options and figures of all runs.
    _, *of_this_run = hparams(run.options, results)  # type: ignore[no-untyped-call]
    for summary in of_this_run:
        writer.write(Event(wall_time=began, summary=summary).SerializeToString())
    for table in run.tables:
        for step in table.steps:
            _write_curves(writer, table, step, began)
    ended = began + max((float(table.time[-1]) for table in run.tables), default=0.0)
    final = [Summary.Value(tag=name, simple_value=value) for name, value in results.items()]
    final += [_image(path) for path in figures if path.suffix == ".png"]
    writer.write(Event(wall_time=ended, summary=Summary(value=final)).SerializeToString())


def _write_curves(writer: RecordWriter, table: ValueTable, step: str, began: float) -> None:
    """Write an event for each row, with the values that are finite numbers."""
    columns = [(table.tag(name, step), values.tolist()) for name, values in table.values.items()]
    known = np.isfinite(np.array(list(table.values.values()))).T.tolist()
    times = (began + table.time).tolist()
    for row, at in enumerate(table.steps[step].tolist()):
        values = [
            Summary.Value(tag=tag, simple_value=column[row])
            for (tag, column), finite in zip(columns, known[row], strict=True)
            if finite
        ]
        if values:
            event = Event(wall_time=times[row], step=at, summary=Summary(value=values))
            writer.write(event.SerializeToString())


def _image(path: Path) -> Summary.Value:
    data = path.read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=data)
    return Summary.Value(tag=f"figures/{path.stem}", image=image)
