"""Conflicts of background traffic with the rest of the file."""

from collections.abc import Sequence

from testbed.device_names import is_server, server_names, worker_name
from testbed.experiment.contents import Contents
from testbed.experiment.problems import did_you_mean
from testbed.experiment.program_contents import AnyContents
from testbed.experiment.sections.section import Conflict, Section
from testbed.experiment.sections.traffic_between import MOST_FLOWS

_KEY = "traffic_between"


def of_traffic_between(contents: AnyContents, devices: Sequence[str]) -> list[Conflict]:
    """Return the conflicts of the flows with the devices.

    Args:
        devices: the names of the devices that may send and receive.
    """
    if not contents.traffic_between:
        return []
    if len(contents.traffic_between) > MOST_FLOWS:
        count = len(contents.traffic_between)
        return [((_KEY,), f"there are {count:,} flows, and at most {MOST_FLOWS:,} can be")]
    found: list[Conflict] = []
    for i, flow in enumerate(contents.traffic_between):
        unknown = [
            ((_KEY, i, key), _no_device(contents, name, devices))
            for key, name in (("from", flow.from_), ("to", flow.to))
            if name not in devices
        ]
        found += unknown
        if not unknown and flow.from_ == flow.to:
            text = f"'{flow.to}' sends to itself, which crosses no link: name another device"
            found.append(((_KEY, i, "to"), text))
    return found


def _no_device(contents: AnyContents, name: str, devices: Sequence[str]) -> str:
    if contents.peers and is_server(name):
        return f"'{contents.peers[0]}' has no server: name workers, which are its peers"
    workers = [one for one in devices if one.startswith("worker-")]
    others = [one for one in devices if one not in workers]
    last = f" to {workers[-1]}" if len(workers) > 1 else ""
    known = f"{', '.join(others)}{' and ' if others else ''}{workers[0]}{last}"
    return f"there is no device '{name}': there are {known}{did_you_mean(name, devices)}"


def of_flows(contents: Contents) -> list[Conflict]:
    """Return the conflicts of the flows of an experiment with algorithms."""
    servers = () if contents.peers else server_names(contents.devices.servers)
    workers = [worker_name(i) for i in range(contents.devices.workers)]
    found = of_traffic_between(contents, (*servers, *workers))
    machines = zip(servers, workers[: contents.devices.co_located], strict=False)
    beside = {frozenset(pair) for pair in machines}
    found += [
        ((_KEY, i), f"{flow.from_} and {flow.to} are on one machine, and no link is between them")
        for i, flow in enumerate(contents.traffic_between)
        if frozenset((flow.from_, flow.to)) in beside
    ]
    if contents.traffic_between and beside and contents.clock == "virtual":
        text = (
            "under the virtual clock background traffic does not follow the trace of a machine with a "
            f"server: give the link a rate, or take {_KEY} out"
        )
        classes = [
            (("devices", "classes", i), one) for i, one in enumerate(contents.devices.classes)
        ]
        sections: list[tuple[tuple[str | int, ...], Section]] = [(("network",), contents.network)]
        found += [
            ((*path, "trace"), text)
            for path, one in (*sections, *classes)
            if getattr(one, "trace", None) is not None
        ]
    return found
