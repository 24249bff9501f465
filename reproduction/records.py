"""The records of the runs of a folder of pages.

The pages are made of nothing but records, so that a person who has the pages can make them again, and
add a run to them without having the others.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from reproduction import record_files
from reproduction.record import Record, Unshown, engine, record_of
from reproduction.runs import Folder, Identity, Needed, identity
from reproduction.series import Series
from testbed.experiment.combinations import text_of
from testbed.results.reading.recorded_run import RecordedRun


class Records:
    """The records in a folder of pages: at most one for each run and engine.

    Raises:
        TestbedError: they cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self._root = folder / "records"
        self._records = record_files.read(self._root)
        self._keys = {name: _key(record) for name, record in self._records.items()}

    def take(
        self,
        runs: Iterable[Needed],
        folder: Folder,
        suffix: str = "",
        diagnostics: Collection[str] | None = None,
        unshown: Unshown = lambda _spec: (),
    ) -> None:
        """Record the newest complete run of each identity and engine, in place of an earlier record.

        Args:
            suffix: distinguishes the names of a scale's records.
            diagnostics: the names of those that are recorded; all if it is not given.

        Raises:
            TestbedError: they cannot be written.
        """
        known = {key: name for name, key in self._keys.items()}
        newest: dict[str, RecordedRun] = {}
        for one in runs:
            for run in folder.of(one.identity):
                if len(run.evaluations):
                    by = engine(run)
                    name = f"{_stem(one.series)}{suffix}-seed{one.seed}-{by}"
                    newest.setdefault(known.get((one.identity, by), name), run)
        for name, run in newest.items():
            self._records[name] = record = record_of(run, diagnostics, unshown)
            self._keys[name] = _key(record)
        if self._records:
            record_files.write(self._root, self._records)

    def serves(self, key: Identity, engine: str) -> bool:
        """Return True if a record serves as the run; an emulation's engine needs measured bytes."""
        return any(engine == "simulation" or not one.simulated for one in self.of(key))

    def of(self, key: Identity) -> Sequence[Record]:
        """Return the records of a run, those of emulations first."""
        found = [self._records[name] for name, (known, _) in self._keys.items() if known == key]
        return sorted(found, key=lambda record: record.simulated)

    def number(self, record: Record) -> int:
        """Return the number of a run in the table of all."""
        return list(self._keys.values()).index(_key(record)) + 1


def _key(record: Record) -> tuple[Identity, str]:
    """Return what tells a record from the others: the run's identity, and its engine."""
    return identity(record.spec), record.result.engine


def _stem(series: Series) -> str:
    """Return the beginning of a record's name: file, algorithm and the line's own values."""
    values = [f"{key}-{text_of(value)}" for key, value in series.values.items()]
    parts = (series.study.experiment.stem, series.label, *values)
    return "-".join(re.sub(r"[^\w.+-]+", "-", part) for part in parts)


def keep(runs: Mapping[str, RecordedRun], folder: Path) -> None:
    """Write the records of runs by their names into a folder.

    Raises:
        TestbedError: they cannot be written.
    """
    record_files.write(folder, {name: record_of(run) for name, run in runs.items()})
