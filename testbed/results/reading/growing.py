"""Follow a journal that a run still writes, without reading its earlier rows again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any


class GrowingJournal:
    """The complete batches of an Arrow stream that another process appends to."""

    def __init__(self, path: Path) -> None:
        """Follow the stream at a path, which may not be there yet.

        Args:
            path: the journal's ``.arrows`` file.
        """
        self._path = path
        self._file: tuple[int, int] | None = None
        self._offset = 0
        self._schema: Any = None

    def changed(self) -> bool:
        """Return True if the file is another one now, of which ``batches`` yields all rows.

        A run replaces it when its server goes back to a checkpoint.
        """
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return False
        found = (status.st_dev, status.st_ino)
        if found == self._file:
            return False
        self._file, self._offset, self._schema = found, 0, None
        return True

    def batches(self) -> Iterator[Any]:
        """Yield the ``pyarrow.RecordBatch`` objects since the last call."""
        import pyarrow as pa

        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                source = pa.BufferReader(file.read())
        except FileNotFoundError:  # the run has ended: its rows are in a Parquet file now
            return
        start = self._offset
        while True:
            try:
                message = pa.ipc.read_message(source)
                if self._schema is None:
                    self._schema = pa.ipc.read_schema(message)
                    batch = None
                else:
                    batch = pa.ipc.read_record_batch(message, self._schema)
            except (EOFError, pa.ArrowInvalid, OSError):  # the rest is not written yet
                return
            self._offset = start + source.tell()
            if batch is not None:
                yield batch
