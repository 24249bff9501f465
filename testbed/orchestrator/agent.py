"""The agent: the process that owns a run's namespaces, links and control groups.

It stands between the orchestrator, which stays an ordinary process of the user's, and the nodes. It
enters a user namespace where that is needed, lives in the core's network namespace, builds the
network while the fork server loads its libraries, and takes everything down when it is told to or
when the orchestrator is gone:

- the orchestrator dies: the agent's channel ends, it kills the nodes and removes the control group;
- the agent dies: the kernel kills the fork server, and with it, as the first process of their pid
  namespace, every node; the network has no process left and goes too;
- the fork server dies: the nodes go with it, and the agent says so and ends.

Only control groups need anybody's hand, so that they are what a SIGKILL of both leaves behind, empty;
``testbed clean`` removes those.
"""

import importlib
import os
import selectors
import signal
import sys
import time
import traceback
from typing import Any

from testbed.channel import Channel
from testbed.errors import HostError, TestbedError
from testbed.nodes import control_group, fork_server, linux
from testbed.nodes.user_namespace import enter_user_namespace

COUNTER_PERIOD = 0.25
"""Seconds between two readings of the ingress counter."""


class Agent:
    """Serves one run's requests; see ``serve``."""

    def __init__(self, control: Channel, report: Channel, load: dict[str, Any]) -> None:
        self._control = control
        self._fork_server_process, self._fork_server = _fork_fork_server(control, report, load)
        report.close()
        self._group = control_group.create()
        self._networks: dict[str, int] = {}
        self._observation: Any = None
        self._extras: Any = None
        self._usage: Any = None
        self._selector = selectors.DefaultSelector()

    def serve(self) -> None:
        """Serve until the orchestrator closes its end or the fork server ends."""
        self._selector.register(self._control, selectors.EVENT_READ)
        self._selector.register(self._fork_server, selectors.EVENT_READ)
        next_reading = next_sample = 0.0
        while True:
            due = max(0.0, min(next_reading, next_sample) - time.monotonic())
            for key, _ in self._selector.select(due if self._observation else None):
                message = key.fileobj.receive()  # type: ignore[union-attr]
                if key.fileobj is self._control:
                    if message is None or "finish" in message.fields:
                        return
                    self._handle(message.fields)
                elif message is None:
                    self._control.send({"failed": "the fork server ended"})
                    return
                else:
                    if "started" in message.fields and self._usage:
                        self._usage.started(message.fields["started"], message.fields["process"])
                    self._control.send(message.fields)
            if self._observation and time.monotonic() >= next_reading:
                self._read_counter()
                next_reading = time.monotonic() + COUNTER_PERIOD
            if self._observation and time.monotonic() >= next_sample:
                self._sample_counters()
                next_sample = time.monotonic() + self._observation.period

    def _handle(self, request: dict[str, Any]) -> None:
        match request:
            case {"network": plan}:
                self._build_network(plan)
                self._control.send({"network": "built"})
            case {"start": device, "role": role}:
                descriptors = [self._network_of(device)]
                if self._group:
                    members = self._group.child(device).members_file
                    descriptors.append(os.open(members, os.O_WRONLY | os.O_CLOEXEC))
                self._fork_server.send({"start": device, "role": role}, descriptors=descriptors)
                for fd in descriptors[1:]:
                    os.close(fd)
            case {"freeze": device}:
                if self._group:
                    self._group.child(device).freeze()
                else:
                    self._signal(device, signal.SIGSTOP)
            case {"thaw": device}:
                self._thaw(device)
            case {"kill": device}:
                self._signal(device, signal.SIGKILL)
                self._thaw(device)  # a frozen process of cgroup v1 dies only once it is thawed
            case {"read": "counter"}:
                self._read_counter()
            case {"stop": "traffic"}:
                self._control.send({"traffic": self._observation.stop()} | self._egress())
                self._sample_counters()
                self._control.send({"sampled": "the last time"})
            case _:
                raise ValueError(f"unknown request {request}")

    def _network_of(self, device: str) -> int:
        """A device's network; one with nothing in it if it is no part of the emulated network."""
        if device not in self._networks:
            self._networks[device] = linux.new_network()
        return self._networks[device]

    def _signal(self, device: str, number: int) -> None:
        self._fork_server.send({"signal": int(number), "device": device})

    def _thaw(self, device: str) -> None:
        if self._group:
            self._group.child(device).thaw()
        else:
            self._signal(device, signal.SIGCONT)

    def _build_network(self, plan: dict[str, Any]) -> None:
        # Imported once the fork server is off: none of it should be in the nodes' memory.
        from testbed.network import star
        from testbed.network.addresses import Link, Shape
        from testbed.orchestrator.observation import Counted, Observation

        links = [
            Link(
                item["device"],
                item["index"],
                Shape(**item["uplink"]),
                Shape(**item["downlink"]),
            )
            for item in plan["links"]
        ]
        star.prepare_core()
        for link in links:
            self._networks[link.device] = linux.new_network()
        star.build(links, self._networks, plan["counted"], plan["uncounted"])
        counted = Counted(plan["observed"], plan["counted"], plan["uncounted"])
        self._observation = Observation(plan["traffic"], links, counted, self._networks)
        if plan["traffic"].get("metrics"):
            from testbed.orchestrator.extras import Extras
            from testbed.orchestrator.usage import Usage

            self._usage = Usage(self._fork_server_process)
            self._extras = Extras(links, counted, self._networks, self._observation, self._usage)

    def _read_counter(self) -> None:
        self._control.send({"counter": self._observation.read_ingress()} | self._egress())

    def _egress(self) -> dict[str, Any]:
        return self._extras.egress() if self._extras else {}

    def _sample_counters(self) -> None:
        complaint = self._observation.complaint()
        if complaint:
            self._control.send({"warning": complaint})
        for rows in self._observation.sample():
            self._control.send({"sampled": "counters"}, rows)
        if self._extras:
            for rows in self._extras.uplinks():
                self._control.send({"sampled": "uplinks"}, rows)
            self._control.send({"extras": self._extras.sample()})

    def take_down(self) -> None:
        """End every node, then remove what the kernel does not remove by itself."""
        if self._observation:
            self._observation.abandon()
        try:
            if self._group:
                for child in self._group.path.glob("*/"):
                    control_group.ControlGroup(child, self._group.version).thaw()
        finally:
            os.kill(self._fork_server_process, signal.SIGKILL)
            # Returns only when every process of the pid namespace is gone.
            os.waitpid(self._fork_server_process, 0)
            if self._group:
                self._group.remove()


def _fork_fork_server(
    control: Channel, report: Channel, load: dict[str, Any]
) -> tuple[int, Channel]:
    """Fork the fork server into a pid namespace of its own; returns its process id and channel."""
    ours, theirs = Channel.pair()
    linux.unshare(linux.CLONE_NEWPID)
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, ours
    try:
        linux.die_with_parent(signal.SIGKILL)
        ours.close()
        control.close()
        linux.unshare(linux.CLONE_NEWNS)
        module, _, name = load["entry"].partition(":")
        fork_server.serve(
            theirs,
            report,
            lambda: getattr(importlib.import_module(module), name)(load["arguments"]),
        )
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(1)


def main() -> int:
    """Run the agent; the descriptors of its two channels are its arguments."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the orchestrator decides; its end is ours
    control, report = (Channel.from_descriptor(int(fd)) for fd in sys.argv[1:3])
    try:
        enter_user_namespace()
        try:
            linux.unshare(linux.CLONE_NEWNET | linux.CLONE_NEWNS)
        except OSError as error:
            raise HostError(
                f"namespaces cannot be made here ({error}): inside another container, run it with "
                "CAP_SYS_ADMIN; 'testbed doctor' tells what is missing"
            ) from error
        linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
        first = control.receive()
        if first is None:
            return 1
        agent = Agent(control, report, first.fields["load"])
    except TestbedError as error:
        control.send({"failed": str(error), "host": True})
        return 1
    try:
        agent.serve()
    except BrokenPipeError:
        return 1  # the orchestrator is gone
    except Exception as error:
        traceback.print_exc()
        control.send({"failed": f"the agent: {type(error).__name__}: {error}"})
        return 1
    finally:
        agent.take_down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
