"""The settings of devices' network namespaces that are not the kernel's own."""

from collections.abc import Mapping
from types import MappingProxyType

OF_ALL: Mapping[str, str] = MappingProxyType(
    {"net.ipv6.conf.all.disable_ipv6": "1", "net.ipv6.conf.default.disable_ipv6": "1"}
)
"""Settings of every device; IPv6 would send solicitations and group reports of its own."""
OF_ROLES: Mapping[str, str] = MappingProxyType(
    {
        "net.ipv4.tcp_rmem": "4096 4194304 8388608",
        "net.ipv4.tcp_wmem": "4096 4194304 8388608",
        "net.ipv4.tcp_slow_start_after_idle": "0",
    }
)
"""The settings with which the testbed's own roles run.

Socket buffers hold a whole parameter vector, so that a message is one system call at each end and its
sender is not woken once per window. A connection that was idle keeps its congestion window: the
emulated links carry no other traffic for which it would have to slow down, and 200 workers that take
turns on two processors are idle most of the time.
"""
OF_PROGRAMS: Mapping[str, str] = MappingProxyType(
    {"net.ipv4.ip_unprivileged_port_start": "0", "net.ipv4.ping_group_range": "0 0"}
)
"""Settings of programs' devices: low ports and `ping` need no capability, and programs have none."""
