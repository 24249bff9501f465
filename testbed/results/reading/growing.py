"""Follow a journal that a run still writes, without reading its earlier rows again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed.results.reading.journals import whole
from testbed.untrusted_text import LARGEST_TABLE, read_file


class GrowingJournal:
    """The complete batches of an Arrow stream that another process appends to."""

    def __init__(self, path: Path) -> None:
        """Follow the ``.arrows`` file at a path, which may not be there yet."""
        self._path = path
        self._file: tuple[int, int] | None = None
        self._offset = 0
        self._schema: Any = None

    def changed(self) -> bool:
        """Return True if the file is another one now, of which ``batches`` yields all rows.

        A run replaces it when its server goes back to a checkpoint.
        """
        try:
            status = self._path.lstat()
        except OSError:
            return False
        found = (status.st_dev, status.st_ino)
        if found == self._file:
            return False
        self._file, self._offset, self._schema = found, 0, None
        return True

    def batches(self) -> Iterator[Any]:
        """Yield the ``pyarrow.RecordBatch`` objects since the last call.

        Raises:
            NoRunError: it is no file that a run writes.
        """
        import pyarrow as pa

        try:
            with whole(self._path):
                source = pa.BufferReader(read_file(self._path, LARGEST_TABLE, self._offset))
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
                    batch.validate(full=True)
            except (EOFError, pa.ArrowException, OSError):  # the rest is not written yet
                return
            self._offset = start + source.tell()
            if batch is not None:
                yield batch
