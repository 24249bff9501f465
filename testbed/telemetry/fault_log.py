"""``faults.jsonl``: a line for the beginning of every fault and another for its end."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.telemetry.json_text import json_text
from testbed.telemetry.text_files import begin_with


class FaultLog:
    """Appends records of faults.

    Attributes:
        count: number of records.
    """

    def __init__(self, directory: Path, kept: Sequence[str]) -> None:
        """Replace the file by the lines of the earlier one that are kept."""
        self._file = begin_with(directory / "faults.jsonl", kept)
        self.count = len(kept)

    def append(self, record: Mapping[str, Any]) -> None:
        """Append a record, with the names of its devices."""
        self._file.write(json_text(record) + "\n")
        self._file.flush()
        self.count += 1

    def close(self) -> None:
        """Close the file."""
        self._file.close()
