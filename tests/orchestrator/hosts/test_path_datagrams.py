"""Doctor measures UDP between two hosts; filters of nftables drop it, or its fragments."""

import struct
from typing import Any

import pytest
from pyroute2 import IPRoute
from pyroute2.nftables.expressions import genex, verdict
from pyroute2.nftables.main import NFTables

from testbed.network.underlay import PORT
from testbed.nodes.linux import inside_network
from testbed.orchestrator.hosts.host_paths import measured
from testbed.orchestrator.hosts.hosts_examination import ExaminedWay
from testbed.orchestrator.hosts.inquiries import (
    MeasurePath,
    OpenPath,
    PathMeasured,
    PathOpened,
    ask,
)
from testbed.orchestrator.hosts.path_datagrams import SHORT_ONES
from testbed.orchestrator.hosts.secured_connection import SecuredConnection
from tests.network.test_underlay import ADDRESSES, joined_hosts
from tests.orchestrator.hosts.test_host_paths import answered_at
from tests.orchestrator.hosts.test_secured_connection import SECRET, proven
from tests.traffic.isolation import isolated, real

FRAGMENTS = (1, 6, 1, 0x1FFF)
"""Where a packet has its place among fragments, and the least and greatest one of later fragments."""
TUNNELS = (2, 2, PORT, PORT)


def dropping(base: int, offset: int, first: int, last: int) -> NFTables:
    """Drop packets that come to the current namespace, by two bytes of a header, until it is closed."""
    found = NFTables(nfgen_family=2)
    found.table("add", kwarg={"name": "drops", "flags": 2})
    chain = {"hook": "prerouting", "type": "filter", "policy": 1}
    found.chain("add", table="drops", name="drops", **chain)
    ends: dict[str, Any] = {
        name: {"attrs": [("NFTA_DATA_VALUE", struct.pack(">H", end))]}
        for name, end in (("from_data", first), ("to_data", last))
    }
    compared = (
        genex("payload", {"dreg": 1, "base": base, "offset": offset, "len": 2}),
        genex("range", {"sreg": 1, "op": 0, **ends}),
    )
    found.rule("add", table="drops", chain="drops", expressions=[compared, verdict(0)])
    return found


@real
@pytest.mark.exercises("namespaces")
def test_doctor_finds_a_network_that_drops_udp_or_fragments_of_it() -> None:
    def body() -> None:
        hosts = joined_hosts()
        caller, called = proven(SECRET, SECRET)
        assert isinstance(caller, SecuredConnection)
        assert isinstance(called, SecuredConnection)
        thread = answered_at(hosts[1], called)

        def way() -> ExaminedWay:
            port = ask(caller, OpenPath(ADDRESSES[1]), PathOpened).port
            with inside_network(hosts[0]):
                found: PathMeasured = measured(MeasurePath(*ADDRESSES, port, 0.1, PORT), SECRET)
            return ExaminedWay("a", "b", found)

        def dropped_at(host: int, what: tuple[int, int, int, int]) -> ExaminedWay:
            with inside_network(hosts[host]):
                rule = dropping(*what)
            found = way()
            rule.close()
            return found

        whole = way()
        assert whole.finding.state == "ok", whole.finding
        assert whole.measured is not None
        assert [one["port"] for one in whole.measured.datagrams] == [PORT, PORT]

        cut = dropped_at(1, FRAGMENTS)
        assert cut.measured is not None
        there, back = cut.measured.datagrams
        assert (there["arrived"], there["short_arrived"]) == (0, SHORT_ONES)
        assert back["arrived"] > 0
        assert cut.finding.state == "missing"
        assert "let fragments of UDP through" in cut.finding.remedy

        with inside_network(hosts[0]), IPRoute() as netlink:
            own = {"vxlan_id": 1, "vxlan_port": PORT, "vxlan_local": ADDRESSES[0]}
            netlink.link("add", ifname="tunnel", kind="vxlan", **own)
            (index,) = netlink.link_lookup(ifname="tunnel")
            netlink.link("set", index=index, state="up")
        none = dropped_at(1, TUNNELS)
        assert none.measured is not None
        there, back = none.measured.datagrams
        assert (there["arrived"], there["short_arrived"], there["port"]) == (0, 0, PORT)
        assert (
            back["arrived"] > 0 and back["port"] != PORT
        )  # the kernel has it, for a run's tunnels
        assert none.finding.state == "missing"
        assert none.finding.remedy == f"no UDP arrives at b: let it through to port {PORT}"
        assert (
            f"a run has port {PORT}, and {back['port']} was measured in its place"
            in none.finding.found
        )
        caller.socket.close()
        thread.join(20)

    isolated(body)
