"""Which hosts the devices of a plan are on."""

from dataclasses import replace

import pytest

from testbed.errors import SpecError
from testbed.orchestrator.hosts.agents_of_hosts import HOME
from testbed.orchestrator.hosts.hosts_file import HostsFile
from testbed.orchestrator.hosts.spread import placed, problem_of
from tests.metrics.running import planned


def test_a_worker_on_the_machine_of_a_server_stays_at_home() -> None:
    devices = {"workers": 6, "servers": 3, "placement": "co-located"}
    plan = planned(devices=devices)
    assert problem_of(plan) is None
    file = HostsFile("10.0.0.1", ())
    # Without servers on their machines worker-2 and worker-3 would be on b.
    place = placed(file, plan, {HOME: 2, "b": 2, "c": 2})
    assert place == {"worker-3": "b", "worker-4": "c", "worker-5": "c"}
    named = replace(file, place={"worker-2..5": "b"})
    with pytest.raises(SpecError, match="worker-2 is on the machine of server-2, and stays"):
        placed(named, plan, {HOME: 2, "b": 2})
