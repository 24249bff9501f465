"""Lists of the entries that services return, for tests to look at."""

from collections.abc import Sequence

from testbed.messages.reports import Suspected, Welcomed
from testbed.telemetry.update_rows import UpdateRow
from testbed.training.service_entries import Diagnosed, Entry, EvaluationPoint, UpdateEntry


class Notes:
    """The entries of one run, in lists by their kinds.

    Attributes:
        rows, versions: the rows, and the versions that they led to.
        noticed: what happened to whom, how long it was silent (0 if it is welcomed), the time, and the
            version.
        diagnoses: the version, and the values.
        evaluations: the versions that are to be evaluated.
    """

    def __init__(self) -> None:
        self.rows: list[UpdateRow] = []
        self.versions: list[int] = []
        self.noticed: list[tuple[str, int, float, float, int]] = []
        self.diagnoses: list[tuple[float, ...]] = []
        self.evaluations: list[int] = []

    def take(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            match entry:
                case UpdateEntry(row, version):
                    self.rows.append(row)
                    self.versions.append(version)
                case Suspected(worker, silent, time, version):
                    self.noticed.append(("suspected", worker, silent, time, version))
                case Welcomed(worker, time, version):
                    self.noticed.append(("welcomed", worker, 0.0, time, version))
                case Diagnosed(values, version):
                    self.diagnoses.append((version, *values))
                case EvaluationPoint(version):
                    self.evaluations.append(version)
