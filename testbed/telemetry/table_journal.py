"""One table of a run directory, written row by row: an Arrow stream, and Parquet at the run's end.

A stream needs no footer to be read, so a run that is killed leaves its rows. A resumed run begins its
streams anew with the rows that it keeps.
"""

import io
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


class Journal:
    """Rows that are appended to an Arrow stream and end as a Parquet file.

    Attributes:
        rows: number of rows so far.
    """

    def __init__(
        self, directory: Path, name: str, schema: pa.Schema, kept: pa.Table | None = None
    ) -> None:
        """Start a journal, or continue an earlier one.

        Args:
            kept: the rows of the earlier journal, which is replaced; None if there must be none.
        """
        self._stream_path = directory / f"{name}.arrows"
        self._parquet_path = directory / f"{name}.parquet"
        self._schema = schema
        if kept is not None:
            self._begin_with(kept)
            self._parquet_path.unlink(missing_ok=True)
            return
        self._begin(self._stream_path.open("xb", buffering=0))
        self._flush()

    def _begin(self, file: io.FileIO) -> None:
        self._file = file
        self._encoded = io.BytesIO()
        self._writer = pa.ipc.new_stream(self._encoded, self._schema)
        self.rows = 0

    def _begin_with(self, kept: pa.Table) -> None:
        # Complete before it replaces the stream: at any moment one of the two files has the rows.
        partial = self._stream_path.with_suffix(".partial")
        self._begin(partial.open("wb", buffering=0))
        if kept.num_rows:
            self._writer.write_table(kept.select(self._schema.names).cast(self._schema))
            self.rows = kept.num_rows
        self._flush()
        partial.replace(self._stream_path)

    def rewrite(self, change: Callable[[pa.Table], pa.Table]) -> pa.Table:
        """Replace all rows by those that ``change`` makes of the present rows; return the new ones."""
        self._writer.close()
        self._flush()
        self._file.close()
        rows = change(self._read())
        self._begin_with(rows)
        return rows

    def append(self, columns: Mapping[str, object]) -> None:
        """Append rows given by columns; they are in the file when this returns.

        Raises:
            OSError: there is no room for them; the file ends with the earlier rows.
        """
        batch = pa.record_batch(dict(columns), schema=self._schema)
        self._writer.write_batch(batch)
        self._flush()
        self.rows += batch.num_rows

    def _flush(self) -> None:
        """Write all that is encoded, or nothing: a batch cut short would hide the later ones."""
        data = memoryview(self._encoded.getvalue())
        self._encoded.seek(0)
        self._encoded.truncate()
        end = self._file.tell()
        try:
            while data:
                data = data[self._file.write(data) :]  # a disk that fills up takes a part
        except OSError:
            self._file.truncate(end)
            self._file.seek(end)
            if end == 0:  # the schema is written with the first rows, and once by each writer
                self._writer = pa.ipc.new_stream(self._encoded, self._schema)
            raise

    def close(self) -> None:
        """End the stream and replace it by the Parquet file.

        Raises:
            OSError: there is no room for both; the stream stays, and readers accept it as well.
        """
        self._writer.close()
        self._flush()
        self._file.close()
        partial = self._parquet_path.with_suffix(".partial")
        try:
            pq.write_table(self._read(), partial)
            partial.replace(self._parquet_path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        self._stream_path.unlink()

    def _read(self) -> pa.Table:
        """Return the rows of the stream, which must have ended."""
        with pa.ipc.open_stream(str(self._stream_path)) as reader:
            return reader.read_all()
