"""What the servers of one run have reported, put together; a run's only server is one of them.

Aggregators report as servers do, with indices after those of the servers: they listen, end and finish,
and devices are connected to them; they have no updates, parameters and evaluations of their own.

A run's version is the lowest of its servers' versions. Its time begins when the first server begins;
a server that begins later reports times by its own beginning, which are moved here.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from testbed.messages.reports import FinalParameters, ServerFinished, TrainingBegun
from testbed.training.slices import Slice, whole

_BYTES = "payload_bytes", "message_bytes"


class Servers:
    """The servers of one run, or the coordinator of its peers, by index.

    Attributes:
        pushed: payload and message bytes of the pushes that each server has reported, and of those from
            the worker on its machine, if there is one.
        over_links: message bytes of those of them that came over links.
    """

    def __init__(
        self,
        cut: Sequence[Slice],
        aggregators: int = 0,
        local: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        """Start without reports.

        Args:
            cut: what each server holds of the parameters; of peers the evaluated one holds all.
            local: the worker on the machine of each server that has one there.
        """
        self._cut = cut
        self.count = count = len(cut)
        self._serving = count + aggregators
        self.pushed = [
            dict.fromkeys((*_BYTES, *(f"local_{name}" for name in _BYTES if index in local)), 0)
            for index in range(count)
        ]
        self.over_links = [0] * count
        self._local = local
        self._listening: set[int] = set()
        self._connected = [0] * self._serving
        self._began: dict[int, float] = {}
        self._versions = [0] * count
        self._ended: set[int] = set()
        self._parameters = [bytearray() for _ in range(count)]
        self._finished: dict[int, ServerFinished] = {}
        self._given_up: set[int] = set()

    def listens(self, server: int) -> bool:
        """Record that a server listens; return True if all do."""
        self._listening.add(server)
        return len(self._listening) == self._serving

    def connected(self, server: int, devices: int) -> int:
        """Record a server's number of devices; return how many are connected to all their servers."""
        self._connected[server] = devices
        if self._serving > self.count:
            return sum(self._connected[self.count :])
        return min(self._connected)

    def begins(self, report: TrainingBegun) -> bool:
        """Record when training began at a server; return True unless another one began before."""
        self._began[report.server] = report.host_time
        return next(iter(self._began)) == report.server

    def lateness(self, server: int) -> float:
        """Return the seconds by which a server began after the first one."""
        return (
            self._began[server] - next(iter(self._began.values())) if server in self._began else 0.0
        )

    def restored(self, server: int) -> None:
        """Set a restored server's start of training: it reports times since the run's."""
        self._began[server] = next(iter(self._began.values()))

    def had(self, rows: npt.NDArray[np.void], server: int) -> None:
        """Count a server's rows of ``UPDATE``, now or in an earlier session of the run."""
        near = rows["worker"] == self._local.get(server, -1)
        for name in _BYTES:
            self.pushed[server][name] += int(rows[name].sum())
            if server in self._local:
                self.pushed[server][f"local_{name}"] += int(rows[name][near].sum())
        self.over_links[server] += int(rows["message_bytes"][~near].sum())

    def take(self, rows: npt.NDArray[np.void], server: int) -> npt.NDArray[np.void]:
        """Count a server's rows of ``UPDATE``; return them with times since the run began to train."""
        self.had(rows, server)
        late = self.lateness(server)
        if not late:
            return rows
        rows = rows.copy()
        rows["time"] += late
        rows["host_time"] += late
        return rows

    def reached(self, server: int, version: int) -> int:
        """Record a server's version; return the run's."""
        self._versions[server] = version
        return min(self._versions)

    def ends(self, server: int) -> bool:
        """Record that training has ended at a server; return True if it has at all."""
        self._ended.add(server)
        return len(self._ended) == self._serving

    @property
    def have_ended(self) -> bool:
        """True if training has ended at all servers, which aggregators may still have to hear of."""
        return self._ended.issuperset(range(self.count))

    def give_up(self, aggregator: int) -> bool:
        """Expect no report of an aggregator any more; return True if training has ended at all."""
        self._given_up.add(aggregator)
        return self.ends(aggregator)

    def add_parameters(self, report: FinalParameters) -> None:
        """Take a part of a server's final parameters."""
        self._parameters[report.server][report.start :] = report.raw

    @property
    def parameters(self) -> npt.NDArray[np.float32]:
        """All final parameters that were reported, float32, (|Θ|,)."""
        return whole([np.frombuffer(one, np.float32) for one in self._parameters], self._cut)

    def finishes(self, report: ServerFinished) -> bool:
        """Record a server's last report; return True if all have finished."""
        self._finished[report.server] = report
        return len(self._finished.keys() | self._given_up) == self._serving

    @property
    def version(self) -> int:
        """The run's version at the end, of servers that have finished."""
        return min(self._finished[server].version for server in range(self.count))

    def of_aggregators(self) -> dict[int, dict[str, int]]:
        """Return what each aggregator that has finished received of its devices, and what was late.

        They are given by their indices as roles that serve.
        """
        return {
            index: {
                "payload_bytes": report.payload_bytes,
                "message_bytes": report.message_bytes,
                "late": report.late or 0,
            }
            for index, report in sorted(self._finished.items())
            if index >= self.count
        }
