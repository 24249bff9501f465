"""What every plan has, whatever its devices do: a network, and what its experiment says of that."""

from collections.abc import Sequence
from typing import Protocol

from testbed.experiment.deployment import Deployment
from testbed.network.links import Link
from testbed.network.topology import Network


class LinkedPlan(Protocol):
    """A plan of one run."""

    @property
    def spec(self) -> Deployment: ...
    @property
    def label(self) -> str: ...
    @property
    def links(self) -> Sequence[Link]: ...
    @property
    def network(self) -> Network: ...
    @property
    def asked_network(self) -> Network: ...
    @property
    def machines(self) -> Sequence[str]: ...
    @property
    def open_files(self) -> int: ...
    @property
    def memory(self) -> int: ...
