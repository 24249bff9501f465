"""``faults.jsonl``: a line for the beginning of every fault and another for its end."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.telemetry.json_text import json_text
from testbed.telemetry.text_files import begin_with


class FaultLog:
    """Appends records of faults.

    Attributes:
        count: number of records.
        rules: the places of the rules that have struck, in the experiment file's list, from 0.
    """

    def __init__(self, directory: Path, kept: Sequence[str]) -> None:
        """Replace the file by the lines of the earlier one that are kept."""
        self._file = begin_with(directory / "faults.jsonl", kept)
        self._struck: dict[str, set[str]] = {}
        self.count = 0
        self.rules: set[int] = set()
        for line in kept:
            self._note(json.loads(line))

    def append(self, record: Mapping[str, Any]) -> None:
        """Append a record, with the names of its devices."""
        self._file.write(json_text(record) + "\n")
        self._file.flush()
        self._note(record)

    def _note(self, record: Mapping[str, Any]) -> None:
        self.count += 1
        if record["phase"] == "begin":
            self.rules.add(record["rule"])
            kind = "away" if record.get("away") else record["fault"]
            self._struck.setdefault(kind, set()).update(record["devices"])

    @property
    def struck(self) -> dict[str, int]:
        """The number of different devices that each kind of fault has struck."""
        return {kind: len(devices) for kind, devices in self._struck.items()}

    def close(self) -> None:
        """Close the file."""
        self._file.close()
