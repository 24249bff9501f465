"""The sections that both kinds of experiment files have: devices, their links, and faults.

Planning reads only this, whether the machines run the testbed's own algorithms or programs of users.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

from testbed.experiment.device_links import DeviceLink
from testbed.experiment.sections.device_classes import DeviceClassSpec
from testbed.experiment.sections.devices import DevicesSpec
from testbed.experiment.sections.faults import FaultSpec
from testbed.experiment.sections.network import NetworkSpec, TrafficSpec
from testbed.experiment.sections.traffic_between import FlowSpec


class Deployment(Protocol):
    """The part of an experiment that does not depend on what its machines do."""

    @property
    def name(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def engine(self) -> Literal["emulation", "simulation"]: ...
    @property
    def clock(self) -> Literal["wall", "virtual"]: ...
    @property
    def devices(self) -> DevicesSpec: ...
    @property
    def network(self) -> NetworkSpec: ...
    @property
    def faults(self) -> Sequence[FaultSpec]: ...
    @property
    def traffic(self) -> TrafficSpec: ...
    @property
    def traffic_between(self) -> Sequence[FlowSpec]: ...
    @property
    def peers(self) -> Sequence[str]: ...
    def link_of(self, one: DeviceClassSpec | None) -> DeviceLink: ...
