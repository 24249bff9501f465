"""The table of what each class of devices sent: a row for every class of a run.

The members of a class are in the run's manifest; the numbers come from its journal of pushes, also
for a run that is still going or was cut off.
"""

from dataclasses import dataclass

import numpy as np

from testbed import number_text as q
from testbed.results.reading.recorded_run import RecordedRun

HEADINGS = (
    "class",
    "devices",
    "updates sent",
    "applied",
    "dropped",
    "share",
    "staleness",
    "payload",
)


@dataclass(frozen=True, slots=True)
class ClassRow:
    """One class of one run.

    Attributes:
        name: the class's name.
        devices: number of its devices.
        sent: updates that reached the server, or a peer's steps; a late worker's report that it has
            finished does not count.
        applied, dropped: number of those updates.
        share: of all classes' updates sent, 0 to 1; None if there are none.
        staleness_mean: of the updates applied; None if there are none.
        payload_bytes: of the updates sent.
    """

    name: str
    devices: int
    sent: int
    applied: int
    dropped: int
    share: float | None
    staleness_mean: float | None
    payload_bytes: int

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text, a cell for each of ``HEADINGS``."""
        return (
            self.name,
            q.as_count(self.devices),
            q.as_count(self.sent),
            q.as_count(self.applied),
            q.as_count(self.dropped),
            q.UNKNOWN if self.share is None else f"{q.as_decimal(100 * self.share, 2)} %",
            q.as_decimal(self.staleness_mean, 1),
            q.as_bytes(self.payload_bytes),
        )


def class_rows(run: RecordedRun) -> tuple[ClassRow, ...]:
    """Return a row for each class of a run, in the order of its file.

    None if all devices are alike, or if they push to aggregators: those pushes are on no record.

    Raises:
        NoRunError: its journal has another format.
    """
    classes = run.manifest.classes
    if not classes:
        return ()
    columns = {
        name: run.pushes.column(name).to_numpy(zero_copy_only=False)
        for name in ("worker", "applied", "staleness", "payload_bytes", "server")
    }
    if (columns["worker"] >= run.manifest.workers).any():
        return ()
    applied, payload = columns["applied"].astype(bool), columns["payload_bytes"]
    # A push to several servers is one push: that to the first counts.
    first = columns["server"] == 0
    applied, sent = applied & first, (applied | (payload > 0)) & first
    rows = []
    for kind in classes:
        own = np.isin(columns["worker"], kind.devices)
        took = own & applied
        staleness = columns["staleness"][took]
        rows.append(
            ClassRow(
                name=kind.name,
                devices=len(kind.devices),
                sent=int((own & sent).sum()),
                applied=int(took.sum()),
                dropped=int((own & sent & ~applied).sum()),
                share=float((own & sent).sum() / sent.sum()) if sent.any() else None,
                staleness_mean=float(staleness.mean()) if len(staleness) else None,
                payload_bytes=int(payload[own].sum()),
            )
        )
    return tuple(rows)
