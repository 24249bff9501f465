"""``make links``: compare models of shared links with TCP on links that the kernel shapes.

Real connections send over a real star of namespaces with rates. A link that several flows share has
either a single queue, as the links of a run have, or fair queues (``testbed.network.fair_queues``). For
each flow, the time from its begin until its last byte has arrived is compared with two models:

- in order: each link carries one message after the other, first come first served, and a message is
  sent on when all of it has arrived (``testbed.clock.transfers``);
- fair: flows share the links of their routes max-min fairly (``testbed.clock.flows``).

Prints the relative errors, |model ÷ measured - 1|, of all flows of a case over all repetitions, and
what the fair model costs for many flows. Nothing is asserted.
"""

import argparse
import contextlib
import json
import math
import os
import selectors
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from testbed.clock.flows import Flows
from testbed.clock.transfers import Line
from testbed.network import building
from testbed.network.links import Link, Shape
from testbed.network.segments import wire_bytes
from testbed.network.topology import Network
from testbed.nodes.linux import inside_network, new_network
from testbed.nodes.user_namespace import enter_user_namespace
from testbed.runs.versions import commit, host

MBIT = 10**6
MODEL = 846_760
"""Bytes of a message: the parameters of the CNN of paper 001 in float32."""
PORT = 7077
PAUSE = 0.2
"""Seconds before a repetition, in which the links' token buckets become full again."""
TIMEOUT = 60.0
"""Seconds after which a case is given up."""
MANY = (1_000, 10_000)
"""Flows of which the model's cost is measured."""
Kind: TypeAlias = Literal["single", "fair"]


@dataclass(frozen=True, slots=True)
class Flow:
    """A message that is sent over a connection of its own.

    Attributes:
        sender, receiver: indices of devices in the case.
        size: in bytes.
        begins: seconds after the common begin.
    """

    sender: int
    receiver: int
    size: int = MODEL
    begins: float = 0.0


@dataclass(frozen=True, slots=True)
class Case:
    """A star of devices, and the flows between them, in the order in which they begin.

    Attributes:
        uplinks, downlinks: rates of the devices' links in bit/s; None for no limit.
    """

    name: str
    uplinks: Sequence[int | None]
    downlinks: Sequence[int | None]
    flows: Sequence[Flow]


def _into_one(
    name: str,
    uplinks: Sequence[int | None],
    sizes: Sequence[int] = (),
    begins: Sequence[float] = (),
) -> Case:
    """Return a case in which all others send to device 0, which has a downlink of 100 Mbit/s."""
    flows = [
        Flow(
            sender=i + 1,
            receiver=0,
            size=sizes[i] if sizes else MODEL,
            begins=begins[i] if begins else 0.0,
        )
        for i in range(len(uplinks))
    ]
    return Case(name, [None, *uplinks], [100 * MBIT] + [None] * len(uplinks), flows)


def cases() -> list[Case]:
    """Return the cases of the table."""
    return [
        *(_into_one(f"{n} into 100 Mbit/s", [None] * n) for n in (1, 2, 4, 8, 16, 64)),
        _into_one(
            "6 uplinks of 5 to 160 Mbit/s into 100",
            [rate * MBIT for rate in (5, 10, 20, 40, 80, 160)],
        ),
        _into_one(
            "5 of 0.2 to 3.4 MB into 100 Mbit/s",
            [None] * 5,
            sizes=[MODEL * quarters // 4 for quarters in (1, 2, 4, 8, 16)],
        ),
        _into_one(
            "8 into 100 Mbit/s, one every 50 ms", [None] * 8, begins=[0.05 * i for i in range(8)]
        ),
        Case(
            "2 hops: 3 share 45 Mbit/s, 1 of them 30",
            [None, 45 * MBIT, None, None, None],
            [30 * MBIT, None, None, None, None],
            [Flow(1, 0), Flow(1, 3), Flow(1, 4), Flow(2, 0)],
        ),
        Case(
            "8 uplinks of 20 Mbit/s, to 4 shards of 30 each",
            [None] * 4 + [20 * MBIT] * 8,
            [30 * MBIT] * 4 + [None] * 8,
            [Flow(4 + worker, shard, MODEL // 4) for worker in range(8) for shard in range(4)],
        ),
    ]


# -- the models: when each flow has arrived, in seconds after the common begin


def in_order(case: Case) -> list[float]:
    """First come first served, link by link."""
    up, down = [Line(rate) for rate in case.uplinks], [Line(rate) for rate in case.downlinks]
    at_core = [up[flow.sender].send(flow.begins, flow.size) for flow in case.flows]
    arrived = [math.nan] * len(at_core)
    for i in sorted(range(len(at_core)), key=lambda i: (at_core[i], i)):
        arrived[i] = down[case.flows[i].receiver].send(at_core[i], case.flows[i].size)
    return arrived


def fair(case: Case) -> list[float]:
    """Max-min fair sharing."""
    rates = [math.inf if rate is None else rate for rate in (*case.uplinks, *case.downlinks)]
    flows = Flows(rates, range(len(rates)))
    arrived = [math.nan] * len(case.flows)

    def end_until(time: float) -> None:
        while (ending := flows.next_end()) is not None and ending[0] <= time:
            flows.end(*ending)
            arrived[ending[1]] = ending[0]

    for flow in case.flows:
        end_until(flow.begins)
        route = flow.sender, len(case.uplinks) + flow.receiver
        flows.begin(flow.begins, route, 8 * wire_bytes(flow.size))
    end_until(math.inf)
    return arrived


# -- real connections


@contextlib.contextmanager
def _network(case: Case, queues: Kind) -> Iterator[tuple[list[int], list[str]]]:
    """Build the links; yield the devices' network namespaces, as descriptors, and their addresses."""
    with contextlib.ExitStack() as opened:
        core, *devices = (new_network() for _ in range(1 + len(case.uplinks)))
        for namespace in (core, *devices):
            opened.callback(os.close, namespace)
        links = [
            Link(f"device-{i}", i, Shape(up), Shape(down))
            for i, (up, down) in enumerate(zip(case.uplinks, case.downlinks, strict=True))
        ]
        namespaces = {link.node: fd for link, fd in zip(links, devices, strict=True)}
        fair = {
            (i, upwards): [
                (f"device-{flow.sender}", f"device-{flow.receiver}")
                for flow in case.flows
                if (flow.sender if upwards else flow.receiver) == i
            ]
            for i, link in enumerate(links)
            for upwards in (True, False)
            if (link.uplink if upwards else link.downlink).rate is not None
        }
        shared = {way: pairs for way, pairs in fair.items() if len(pairs) > 1}
        with inside_network(core):
            wanted = building.Queues(fair=shared if queues == "fair" else {})
            building.build(Network(tuple(links)), namespaces, wanted)
        yield devices, [link.address for link in links]


def measure(case: Case, queues: Kind, repetitions: int) -> list[list[float]]:
    """Return for each repetition the seconds that each flow took."""
    with _network(case, queues) as (namespaces, addresses):
        return [_repetition(case, namespaces, addresses) for _ in range(repetitions)]


def _repetition(case: Case, namespaces: Sequence[int], addresses: Sequence[str]) -> list[float]:
    """Connect, and let all flows send."""
    with contextlib.ExitStack() as opened:
        listeners, senders, receivers = {}, [], []
        for i in {flow.receiver for flow in case.flows}:
            with inside_network(namespaces[i]):
                server = socket.create_server((addresses[i], PORT), backlog=128)
            listeners[i] = opened.enter_context(server)
        for flow in case.flows:
            with inside_network(namespaces[flow.sender]):
                sender = socket.create_connection((addresses[flow.receiver], PORT), TIMEOUT)
            senders.append(opened.enter_context(sender))
            receiver, _ = listeners[flow.receiver].accept()
            receivers.append(opened.enter_context(receiver))
        time.sleep(PAUSE)
        return _transfer(case, senders, receivers)


def _transfer(
    case: Case, senders: Sequence[socket.socket], receivers: Sequence[socket.socket]
) -> list[float]:
    """Send what each flow has; return the seconds that each took."""
    data = memoryview(bytes(max(flow.size for flow in case.flows)))
    unsent = [flow.size for flow in case.flows]
    missing = list(unsent)
    seconds = [math.nan] * len(missing)
    buffer = bytearray(1 << 20)
    with selectors.DefaultSelector() as selector:

        def send(number: int) -> None:
            with contextlib.suppress(BlockingIOError):
                while unsent[number]:
                    unsent[number] -= senders[number].send(data[: unsent[number]])
                selector.unregister(senders[number])

        for number, receiver in enumerate(receivers):
            senders[number].setblocking(False)
            selector.register(receiver, selectors.EVENT_READ, number)
        began, begun = time.monotonic(), 0
        while any(missing):
            now = time.monotonic() - began
            if now > TIMEOUT:
                raise SystemExit(f"links: {case.name}: not all has arrived in {TIMEOUT:g} s")
            while begun < len(senders) and case.flows[begun].begins <= now:
                selector.register(senders[begun], selectors.EVENT_WRITE, begun)
                send(begun)
                begun += 1
            pause = case.flows[begun].begins - now if begun < len(senders) else 1.0
            for key, events in selector.select(pause):
                if events & selectors.EVENT_WRITE:
                    send(key.data)
                    continue
                missing[key.data] -= receivers[key.data].recv_into(buffer)
                if not missing[key.data]:
                    seconds[key.data] = time.monotonic() - began - case.flows[key.data].begins
                    selector.unregister(key.fileobj)
    return seconds


# -- the tables


def errors(
    model: Callable[[Case], Sequence[float]], case: Case, measured: Sequence[Sequence[float]]
) -> tuple[float, float]:
    """Return the median and the greatest relative error of a model over all flows and repetitions."""
    modelled = [time - flow.begins for time, flow in zip(model(case), case.flows, strict=True)]
    found = [
        abs(time / real - 1)
        for repetition in measured
        for time, real in zip(modelled, repetition, strict=True)
    ]
    return statistics.median(found), max(found)


def cost(count: int, *, distinct: bool) -> float:
    """Return the seconds of the host per flow that the fair model takes for many that share a link.

    Half of the flows begin before the first one ends; then one begins whenever one ends.

    Args:
        distinct: True if every flow has an uplink with a rate of its own, so that no two are alike.
    """
    shared = count * MBIT
    rates = [shared, *((1 + 3 * i / count if distinct else 10) * MBIT for i in range(count))]
    flows = Flows(rates, [0])
    began = time.process_time()
    for i in range(count // 2):
        flows.begin(0.0, (1 + i, 0), 8 * MODEL * (1 + i % 7 / 7))
    for i in range(count // 2, count):
        ending = flows.next_end()
        assert ending is not None
        flows.end(*ending)
        flows.begin(ending[0], (1 + i, 0), 8 * MODEL * (1 + i % 7 / 7))
    while (ending := flows.next_end()) is not None:
        flows.end(*ending)
    return (time.process_time() - began) / count


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all cases and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.links", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5, help="of each case (5)")
    parser.add_argument("--json", type=Path, help="write all times to this file")
    options = parser.parse_args(arguments)
    enter_user_namespace()
    print("relative error of the time that a flow takes, median and worst")
    print(f"{'':48}{'single queue':^36}{'fair queues':>16}")
    print(f"{'':48}{'in order':>16}{'fair':>16}{'fair':>20}")
    record: dict[str, Any] = {"host": host(), "commit": commit(), "cases": []}
    for case in cases():
        single, queued = (measure(case, q, options.repetitions) for q in ("single", "fair"))
        columns = (
            errors(in_order, case, single),
            errors(fair, case, single),
            errors(fair, case, queued),
        )
        cells = [f"{median:.1%} {worst:>7.1%}" for median, worst in columns]
        print(f"{case.name:48}{cells[0]:>16}{cells[1]:>16}{cells[2]:>20}", flush=True)
        record["cases"].append(asdict(case) | {"single": single, "fair": queued})
    print("\nprocessor time of the fair model per flow, flows that share one link")
    for count in MANY:
        alike, distinct = (1e6 * cost(count, distinct=one) for one in (False, True))
        print(
            f"{count:>6,} flows: {alike:,.0f} µs with equal uplinks, {distinct:,.0f} µs with distinct"
        )
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
