"""The links that samples of counters are of: each host's agent sends those of its own, in parts."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from testbed.network.building import DEVICE_INTERFACE
from testbed.orchestrator.hosts.agents_of_hosts import HOME
from testbed.planning.plans import AnyPlan
from testbed.telemetry.run_log import RunLog


class SampledLinks:
    """Logs the samples of one run's links.

    A link is sampled at its node; that of a device whose ingress is counted, or of a router, at the
    router above.
    """

    def __init__(
        self, plan: AnyPlan, log: RunLog, by_host: Mapping[str, Sequence[int]] | None
    ) -> None:
        """Expect each host's first link first.

        Args:
            by_host: the places in the plan of the links that each host's agent samples, in their order;
                None if there is one host.
        """
        at_router = {*plan.counted, *plan.network.routers}
        self._log = log
        self._names = [link.node for link in plan.links]
        self._interfaces = [
            link.interface if link.node in at_router else DEVICE_INTERFACE for link in plan.links
        ]
        self._by_host = {HOME: range(len(plan.links))} if by_host is None else by_host
        self._next: Counter[str] = Counter()

    def take(self, host: str, rows: npt.NDArray[np.void]) -> Sequence[int]:
        """Log the next part of a host's sample; return the places of its links in the plan."""
        own, first = self._by_host[host], self._next[host]
        places = own[first : first + len(rows)]
        self._next[host] = (first + len(rows)) % max(1, len(own))
        self._log.counters(
            [self._names[one] for one in places], [self._interfaces[one] for one in places], rows
        )
        return places
