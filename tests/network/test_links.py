"""The addresses of links: no two links share a network, and all networks are within the block."""

import ipaddress

from testbed.network.links import MOST_LINKS, PREFIX_LENGTH, Link


def test_every_link_has_a_network_of_its_own() -> None:
    links = [Link(f"device-{i}", i) for i in (0, 1, 2, 255, 256, MOST_LINKS - 1)]
    networks = [
        ipaddress.IPv4Network(f"{link.router_address}/{PREFIX_LENGTH}", strict=True)
        for link in links
    ]
    assert len(set(networks)) == len(links)
    for link, network in zip(links, networks, strict=True):
        assert ipaddress.ip_address(link.address) in network
        assert network.subnet_of(ipaddress.IPv4Network("10.77.0.0/16"))


def test_interface_names_and_macs_are_valid_for_the_kernel() -> None:
    link = Link("x", MOST_LINKS - 1)
    assert len(link.interface) <= 15
    assert link.router_mac != link.mac
    # Locally administered, not multicast.
    assert int(link.router_mac.split(":")[0], 16) & 0b11 == 0b10
