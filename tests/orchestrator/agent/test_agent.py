"""The agent with real namespaces, links and processes; the roles are sample_roles.py."""

import os
import resource
import selectors
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import psutil
import pytest
from threadpoolctl import threadpool_info

from testbed.channel import Channel, ReceivedMessage
from testbed.device_names import is_server
from testbed.messages.agent_reports import (
    EVENTS,
    CountersSampled,
    DeviceFrozen,
    DeviceThawed,
    Event,
    IngressRead,
    LastSampleTaken,
    NetworkBuilt,
    ProcessesSampled,
    ProcessExited,
    ProcessStarted,
    RunFailed,
    TrafficStopped,
)
from testbed.messages.codec import send
from testbed.messages.planned_nodes import PlannedNetwork, PlannedNodes, PlannedTraffic
from testbed.messages.requests import (
    BuildNetwork,
    FreezeDevice,
    KillDevice,
    Load,
    LoadRoles,
    ReadIngress,
    Request,
    StartRole,
    StopTraffic,
    ThawDevice,
)
from testbed.network.links import CORE, Link, Shape
from testbed.network.sysctls import OF_ROLES
from testbed.nodes import control_group, run_names
from testbed.orchestrator.agent import agent as agent_module
from testbed.orchestrator.agent.process import AgentProcess, start
from testbed.orchestrator.report_channels import ReportChannels
from testbed.planning.node_plan import ONE_THREAD
from traffic.accounting import account
from traffic.counters import COUNTS

pytestmark = [
    pytest.mark.real,
    pytest.mark.exercises("namespaces"),
]

E = TypeVar("E", bound=Event)
ROLES = "tests.orchestrator.agent.sample_roles:load"
FORK_SERVERS = {False: "forked", True: "new interpreter"}
"""The kinds of fork servers, by whether they are made anew."""
ANEW = pytest.mark.parametrize("anew", FORK_SERVERS, ids=FORK_SERVERS.get)
AGENTS = pytest.mark.parametrize("agent", FORK_SERVERS, ids=FORK_SERVERS.get, indirect=True)
ADDRESSES = {"server": "10.77.0.1", "evaluator": "10.77.0.3", "worker-0": "10.77.0.5"}


class Harness:
    """The orchestrator's side of an agent."""

    def __init__(
        self,
        log: Path,
        arguments: dict[str, Any],
        nodes: dict[str, Any] | None = None,
        inherited: Sequence[int] = (),
        *,
        anew: bool = False,
        entry: str = ROLES,
    ) -> None:
        self.anew = anew
        self.control, theirs = Channel.pair()
        self.report, self._roles = Channel.pair()
        self.log = log
        with log.open("ab") as output:
            self.process = start(theirs, output.fileno(), inherited)
        load: Load = {"entry": entry, "arguments": arguments, "anew": anew}
        chosen: Any = {"addresses": ADDRESSES, "read": []} | (nodes or {"runtime": "namespaces"})
        self.ask(LoadRoles(load, chosen))

    def ask(self, request: Request) -> None:
        send(self.control, request)

    def network(
        self,
        *devices: str,
        uplinks: dict[str, int] | None = None,
        capture: Path | None = None,
        metrics: bool = False,
        machine: tuple[str, str] | None = None,
    ) -> None:
        """Build the network of some devices.

        Args:
            machine: a server and a worker that are behind one link, that of machine-0.
        """
        links = [
            asdict(
                Link(
                    device,
                    i,
                    Shape((uplinks or {}).get(device)),
                    router="machine-0" if machine and device in machine else CORE,
                )
            )
            for i, device in enumerate(devices)
        ]
        if machine:
            links.append(asdict(Link("machine-0", len(devices))))
        traffic: PlannedTraffic = {
            "directory": str(capture),
            "capture": capture is not None,
            "file_size": 2**26,
            "total_size": 2**28,
            "period": 0.1,
            "metrics": metrics,
        }
        plan: PlannedNetwork = {
            "devices": [{"name": device} for device in devices],
            "captured": [devices[0]],
            "cut_from": [name for name in devices if is_server(name)],
            "counted": [devices[0]],
            "uncounted": [devices[1]],
            "local": dict([machine] if machine else ()),
            "sysctls": dict(OF_ROLES),
            "routers": [CORE, *(["machine-0"] if machine else ())],
            "links": links,
            "shared": [],
            "traffic": traffic,
        }
        self.ask(BuildNetwork(plan))
        self.event(NetworkBuilt)

    def start(self, device: str, **role: Any) -> None:
        send(self.control, StartRole(device, role), [self._roles.fileno()])

    def event(self, kind: type[E], wanted: Callable[[E], bool] = lambda _: True) -> E:
        """Wait for the agent's next event of a kind; earlier events of other kinds are dropped."""
        found: list[E] = []

        def matches(received: ReceivedMessage) -> bool:
            event = EVENTS.decode(received)
            if isinstance(event, kind) and wanted(event):
                found.append(event)
            return bool(found)

        self._wait(self.control, matches)
        return found[0]

    def until(self, channel: Channel, wanted: Callable[[ReceivedMessage], bool]) -> dict[str, Any]:
        """Wait for a report of a sample role, which sends any JSON object; return its fields."""
        return self._wait(channel, wanted).fields

    def _wait(self, channel: Channel, wanted: Callable[[ReceivedMessage], bool]) -> ReceivedMessage:
        deadline = time.monotonic() + 30
        with selectors.DefaultSelector() as selector:
            selector.register(channel, selectors.EVENT_READ)
            while time.monotonic() < deadline:
                if selector.select(1):
                    message = channel.receive()
                    assert message is not None, self.log.read_text()
                    if wanted(message):
                        return message
        raise AssertionError(f"nothing came: {self.log.read_text()}")

    def counter(self) -> dict[str, Any]:
        time.sleep(0.05)
        self.ask(ReadIngress())
        asked = time.monotonic()
        return dict(self.event(IngressRead, lambda read: read.ingress["time"] >= asked).ingress)

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def close(self) -> None:
        self.control.close()
        self.report.close()
        self._roles.close()
        try:
            self.process.wait(20)
        except psutil.TimeoutExpired:
            self.process.kill()
            raise


@pytest.fixture
def agent(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Harness]:
    """An agent; a test may ask for its fork server in a new interpreter (``AGENTS``)."""
    harness = Harness(tmp_path / "log", {}, anew=getattr(request, "param", False))
    yield harness
    harness.close()
    assert not harness.process.is_running()


def groups(agent: Harness) -> set[Path]:
    """Return the control groups of one agent's run, without those of other runs at the same time."""
    name = f"{run_names.PREFIX}{agent.process.pid}-*"
    places = [*control_group.own_groups(), *control_group.own_groups("cpuacct")]
    return {path for place in places for path in place.path.glob(name)}


def gone(processes: list[psutil.Process]) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes):
            return True
        time.sleep(0.02)
    return False


@AGENTS
def test_a_node_sees_only_itself(agent: Harness) -> None:
    agent.network("server", "evaluator", "worker-0")
    agent.start("worker-0", what="describe")
    seen = agent.until(agent.report, lambda m: "pid" in m.fields)
    assert seen["pid"] == 1
    assert seen["processes"] == [1]
    assert seen["host"] == "worker-0"
    assert seen["interfaces"] == ["eth0", "lo"]
    assert seen["open"] <= 5  # the standard three, the report channel, the listing itself
    assert seen["has pytest"] is not agent.anew
    assert agent.event(ProcessExited) == ProcessExited("worker-0", 0)


@AGENTS
def test_a_role_computes_in_one_thread(agent: Harness) -> None:
    """Its libraries have begun in this process already, with as many threads as there are cores."""
    assert any(one["num_threads"] > 1 for one in threadpool_info()) or os.cpu_count() == 1
    agent.network("server", "evaluator", "worker-0")
    agent.start("worker-0", what="describe")
    seen = agent.until(agent.report, lambda m: "pid" in m.fields)
    assert seen["pools"] and set(seen["pools"]) == {1}
    assert seen["product"] == 160_000 and seen["tasks"] == seen["threads"] == 1
    assert seen["environment"] == ONE_THREAD


def test_an_agent_begins_with_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel makes no user namespace, which an ordinary user needs, for a process with several."""
    assert any(one["num_threads"] > 1 for one in threadpool_info()) or os.cpu_count() == 1
    monkeypatch.setattr(agent_module, "run", lambda control: len(os.listdir("/proc/self/task")))
    control, theirs = Channel.pair()
    with (tmp_path / "log").open("ab") as output:
        process = start(theirs, output.fileno())
    assert process.wait(10) == 1
    control.close()


def test_a_node_knows_the_others_by_name_and_nobody_else(agent: Harness) -> None:
    agent.network("server", "evaluator", "worker-0")
    before = agent.counter()
    agent.start("worker-0", what="look up", names=[*ADDRESSES, "localhost", "nosuch.example"])
    seen = agent.until(agent.report, lambda m: "found" in m.fields)
    assert seen["found"] == {**ADDRESSES, "localhost": "127.0.0.1", "nosuch.example": None}
    assert seen["longest"] < 0.1
    assert seen["to itself"] == 1_000_000
    assert seen["own name"] == "worker-0\n"
    assert agent.event(ProcessExited) == ProcessExited("worker-0", 0)
    assert agent.counter()["bytes"] == before["bytes"]  # the loopback is in no count


def test_bytes_are_counted_at_mtu_1500_without_the_observers(agent: Harness) -> None:
    agent.network("server", "evaluator", "worker-0")
    agent.start("server", what="listen")
    agent.until(agent.report, lambda m: "listening" in m.fields)
    before = agent.counter()
    agent.start("evaluator", what="send", to="10.77.0.1", bytes=1_000_000)
    agent.until(agent.report, lambda m: m.fields.get("from") == "10.77.0.3")
    assert agent.counter()["bytes"] == before["bytes"] == 0
    sent = 5_000_000
    agent.start("worker-0", what="send", to="10.77.0.1", bytes=sent)
    assert agent.until(agent.report, lambda m: "from" in m.fields)["bytes"] == sent
    after = agent.counter()
    # Every frame carries at most 1,448 bytes of the stream after 66 bytes of headers.
    full_frames = -(-sent // 1448)
    # A busy host sends some frames again, up to 64 KiB at once.
    assert sent + 66 * full_frames <= after["bytes"] <= 1.1 * (sent + 66 * full_frames)
    assert full_frames <= after["frames"] <= 1.1 * full_frames + 20
    assert after["dropped"] == 0


def test_capture_and_counter_agree_and_leave_the_observers_out(
    agent: Harness, tmp_path: Path
) -> None:
    agent.network("server", "evaluator", "worker-0", capture=tmp_path)
    agent.start("server", what="listen")
    agent.until(agent.report, lambda m: "listening" in m.fields)
    sent = {"evaluator": 1_000_000, "worker-0": 3_000_000}
    for device, size in sent.items():
        agent.start(device, what="send", to="10.77.0.1", bytes=size)
        agent.until(agent.report, lambda m: "from" in m.fields)
    agent.ask(StopTraffic())
    seen = agent.event(TrafficStopped)
    assert seen.capture is not None
    found = account([tmp_path / name for name in seen.capture["files"]])
    assert seen.capture["complete"] and found.totals["records"] == seen.capture["records"]
    inward = [i for i, pair in enumerate(found.pairs) if pair == ("10.77.0.5", "10.77.0.1")]
    assert len(found.pairs) == 2  # the worker's two directions, and none of the evaluator's
    rows = found.seconds[found.seconds["pair"] == inward[0]]
    assert rows["stream_bytes"].sum() == sent["worker-0"]
    assert rows["frames"].sum() == seen.counter["frames"]
    assert rows["wire_bytes"].sum() == seen.counter["bytes"]


def test_every_link_is_sampled(agent: Harness) -> None:
    agent.network("server", "evaluator", "worker-0", uplinks={"worker-0": 20_000_000})
    agent.start("server", what="listen")
    agent.until(agent.report, lambda m: "listening" in m.fields)
    agent.start("worker-0", what="send", to="10.77.0.1", bytes=1_000_000)
    agent.until(agent.report, lambda m: "from" in m.fields)
    time.sleep(0.3)
    samples: list[np.ndarray[Any, Any]] = []
    while len(samples) < 40:
        samples.append(np.frombuffer(agent.event(CountersSampled).raw, COUNTS))
        server, evaluator, worker = samples[-1]
        # The connection's end may still be on its way between two readings.
        same = server["tx_bytes"] == worker["tx_bytes"] > 1_000_000
        if same and worker["backlog_bytes"] == 0:
            break
    assert all((np.diff([s["time"][0] for s in samples])) > 0)
    # The core's end of the server's link has sent what the worker's end of its link has.
    assert server["tx_bytes"] == worker["tx_bytes"] > 1_000_000
    assert server["class_bytes"] == worker["class_bytes"] > worker["tx_bytes"]
    assert worker["class_overlimits"] > 0
    assert worker["class_dropped"] == worker["backlog_bytes"] == 0
    assert evaluator["class_bytes"] == -1 and evaluator["tx_bytes"] == 0


def test_an_uplink_has_its_rate(agent: Harness) -> None:
    agent.network("server", "evaluator", "worker-0", uplinks={"worker-0": 20_000_000})
    agent.start("server", what="listen")
    agent.until(agent.report, lambda m: "listening" in m.fields)
    began = time.monotonic()
    agent.start("worker-0", what="send", to="10.77.0.1", bytes=3_000_000)
    seconds = agent.until(agent.report, lambda m: "from" in m.fields)["at"] - began
    # 3 MB and headers at 20 Mbit/s take 1.25 s; a bucket of 5 ms goes at once. The upper bound
    # leaves room for a busy host to start the node, not for half the rate.
    assert 1.2 <= seconds <= 2.4


@pytest.mark.parametrize("stop", ["freeze", "kill"])
def test_frozen_stands_still_and_killed_is_reported(agent: Harness, stop: str) -> None:
    agent.network("server", "evaluator")
    agent.start("server", what="tick")
    last = agent.until(agent.report, lambda m: m.fields["tick"] > 10)["tick"]
    if stop == "kill":
        agent.ask(KillDevice("server"))
        assert agent.event(ProcessExited).status == -signal.SIGKILL
        return
    agent.ask(FreezeDevice("server"))
    agent.counter()  # an answer means that the request before it was carried out
    time.sleep(0.1)
    os.set_blocking(agent.report.fileno(), False)
    try:
        while message := agent.report.receive():
            last = message.fields["tick"]
    except BlockingIOError:
        pass
    time.sleep(0.2)
    with pytest.raises(BlockingIOError):
        agent.report.receive()
    os.set_blocking(agent.report.fileno(), True)
    agent.ask(ThawDevice("server"))
    assert agent.until(agent.report, lambda m: "tick" in m.fields)["tick"] == last + 1


def test_metrics_have_samples_of_their_own(agent: Harness, tmp_path: Path) -> None:
    agent.network("server", "evaluator", "worker-0", capture=tmp_path, metrics=True)
    for device in ("evaluator", "worker-0"):
        agent.start(device, what="listen")
        agent.until(agent.report, lambda m: "listening" in m.fields)
    # First to the evaluator, whose traffic is counted separately.
    for device, sent in (("evaluator", 3_000_000), ("worker-0", 1_000_000)):
        number = {"evaluator": 1, "worker-0": 2}[device]
        agent.start("server", what="send", to=f"10.77.0.{2 * number + 1}", bytes=sent)
        agent.event(ProcessExited, lambda ended: ended.device == "server")
    agent.ask(FreezeDevice("worker-0"))
    assert agent.event(DeviceFrozen).device == "worker-0"
    agent.ask(ThawDevice("worker-0"))
    assert agent.event(DeviceThawed).device == "worker-0"
    sampled = agent.event(
        ProcessesSampled,
        lambda one: one.capture is not None and {"workers", "evaluator"} <= one.memory.keys(),
    )
    assert 1e6 < sampled.memory["workers"] < 1e8
    assert sampled.processor.keys() == {"agent", "fork server", "capture"}
    agent.ask(StopTraffic())
    seen = agent.event(TrafficStopped)
    assert seen.capture is not None and seen.egress is not None
    found = account([tmp_path / name for name in seen.capture["files"]])
    (from_server,) = (i for i, pair in enumerate(found.pairs) if pair[0] == "10.77.0.1")
    rows = found.seconds[found.seconds["pair"] == from_server]
    assert seen.egress["bytes"] == rows["wire_bytes"].sum() > 1_000_000
    assert seen.egress["frames"] == rows["frames"].sum()


def test_what_is_still_sent_at_the_end_is_in_both_counts_or_in_none(
    agent: Harness, tmp_path: Path
) -> None:
    agent.network("server", "evaluator", "worker-0", capture=tmp_path)
    agent.start("server", what="gather")
    agent.until(agent.report, lambda m: "listening" in m.fields)
    agent.start("worker-0", what="pump", to="10.77.0.1")
    agent.until(agent.report, lambda m: m.fields.get("bytes", 0) > 1000)
    agent.ask(StopTraffic())
    seen = agent.event(TrafficStopped)
    assert seen.capture is not None and seen.capture["dropped"] == 0
    found = account([tmp_path / name for name in seen.capture["files"]])
    inward = [i for i, pair in enumerate(found.pairs) if pair[1] == "10.77.0.1"]
    rows = found.seconds[np.isin(found.seconds["pair"], inward)]
    assert seen.counter["frames"] == rows["frames"].sum() > 100
    assert seen.counter["bytes"] == rows["wire_bytes"].sum()


def test_without_metrics_there_are_no_samples_for_them(agent: Harness) -> None:
    agent.network("server", "evaluator")
    agent.start("server", what="tick")
    agent.ask(FreezeDevice("server"))
    agent.ask(ThawDevice("server"))
    agent.ask(StopTraffic())
    seen: list[Event] = []

    def last(received: ReceivedMessage) -> bool:
        seen.append(EVENTS.decode(received))
        return seen[-1] == LastSampleTaken()

    agent.until(agent.control, last)
    kinds = {type(event) for event in seen}
    assert {TrafficStopped, IngressRead} <= kinds
    assert {ProcessesSampled, DeviceFrozen, DeviceThawed}.isdisjoint(kinds)
    assert all(one.egress is None for one in seen if isinstance(one, TrafficStopped | IngressRead))


def test_an_exit_status_is_reported(agent: Harness) -> None:
    agent.network("server", "evaluator")
    agent.start("server", what="die", status=3)
    assert agent.event(ProcessExited).status == 3


@ANEW
@pytest.mark.parametrize("how", ["close", "kill the agent", "kill the fork server"])
def test_no_process_is_left_however_the_agent_ends(tmp_path: Path, how: str, anew: bool) -> None:
    harness = Harness(tmp_path / "log", {}, anew=anew)
    names = ["server", "evaluator", *(f"worker-{i}" for i in range(5))]
    harness.network(*names)
    for name in names:
        harness.start(name, what="tick")
    for _ in names:
        harness.event(ProcessStarted)
    family = harness.family()
    assert len(family) == 1 + len(names)
    made = groups(harness)
    # One group for all of the run's devices, and with cgroup v1 a second that counts processor time;
    # an ordinary user may not be allowed to make them.
    assert len({path.name for path in made}) == 1 or (not made and os.geteuid() != 0)
    if how == "close":
        harness.close()
    elif how == "kill the agent":
        harness.process.kill()
    else:
        family[0].kill()
        harness.event(RunFailed)
        harness.process.wait(10)
    assert gone(family)
    harness.close()
    left = [group for group in control_group.left_over() if group.path in made]
    assert {group.path for group in left} == (made if how == "kill the agent" else set())
    for group in left:
        group.remove()
    assert groups(harness) == set()


def test_an_agent_works_with_descriptors_above_1023(tmp_path: Path) -> None:
    """With a thousand devices, the agent's descriptors have numbers that select(2) refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2000:
        pytest.skip(f"this user may have {hard} files open, and the test needs 2,000")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    harness = Harness(tmp_path / "log", {}, inherited=held)
    try:
        names = ["server", "evaluator", "worker-0"]
        harness.network(*names, capture=tmp_path, metrics=True)
        for name in names:
            harness.start(name, what="tick")
            harness.until(harness.report, lambda m: "tick" in m.fields)
        harness.counter()
        harness.event(CountersSampled)
        harness.ask(FreezeDevice("worker-0"))
        harness.event(DeviceFrozen)
        harness.ask(StopTraffic())
        capture = harness.event(TrafficStopped).capture
        assert capture is not None and capture["complete"]
        harness.control.end()
        assert harness.process.wait(60) == 0, harness.log.read_text()
    finally:
        harness.close()
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert groups(harness) == set()


def test_a_stopped_capture_does_not_keep_the_agent_from_ending(tmp_path: Path) -> None:
    """The capture is in the nodes' pid namespace, and a child that the agent has not waited for."""
    harness = Harness(tmp_path / "log", {})
    harness.network("server", "evaluator", "worker-0", capture=tmp_path)
    family = harness.family()
    (capture,) = (process for process in family if process.cmdline()[:1] == [run_names.CAPTURE])
    capture.suspend()
    harness.control.end()
    assert harness.process.wait(60) == 0
    harness.close()
    assert gone(family)
    assert groups(harness) == set()


def test_more_requests_than_fit_into_the_channels_are_answered(tmp_path: Path) -> None:
    """Orchestrator and agent do not wait for each other at once: 3,000 requests, 1,500 answers."""
    agent = AgentProcess(tmp_path / "log", (), ReportChannels())
    nodes: PlannedNodes = {"runtime": "namespaces", "addresses": {}, "read": []}
    agent.ask(LoadRoles({"entry": ROLES, "arguments": {}}, nodes))
    names = ["server", "evaluator", "worker-0"]
    traffic: Any = {"directory": "", "capture": False, "period": 1000.0}
    plan: PlannedNetwork = {
        "devices": [{"name": name} for name in names],
        "captured": [names[0]],
        "cut_from": [names[0]],
        "counted": [names[0]],
        "uncounted": [names[1]],
        "sysctls": dict(OF_ROLES),
        "routers": [CORE],
        "links": [asdict(Link(name, i)) for i, name in enumerate(names)],
        "shared": [],
        "traffic": traffic,
    }
    agent.ask(BuildNetwork(plan))
    for _ in range(1500):  # the first is handed on to the fork server, the second answered
        agent.ask(KillDevice("worker-0"))
        agent.ask(ReadIngress())
    seen: Counter[type] = Counter()
    deadline = time.monotonic() + 120
    while seen[IngressRead] < 1500:
        assert time.monotonic() < deadline, (seen, (tmp_path / "log").read_text())
        agent.send_waiting()
        if agent.control.readable(0.01):
            event = EVENTS.receive(agent.control)
            assert event is not None, (tmp_path / "log").read_text()
            seen[type(event)] += 1
    assert list(agent.end(time.monotonic() + 30)) == []


def test_a_new_interpreter_looks_for_modules_where_this_process_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "roles_of_a_test.py"
    module.write_text("from tests.orchestrator.agent.sample_roles import load\n")
    monkeypatch.syspath_prepend(tmp_path)
    harness = Harness(tmp_path / "log", {}, anew=True, entry="roles_of_a_test:load")
    harness.network("server", "evaluator")
    harness.start("server", what="die", status=3)
    assert harness.event(ProcessExited).status == 3
    harness.close()


@ANEW
def test_a_failure_to_load_is_reported(tmp_path: Path, anew: bool) -> None:
    harness = Harness(tmp_path / "log", {"fail": "no such thing"}, anew=anew)
    assert harness.event(RunFailed).reason == "RuntimeError: no such thing"
    harness.close()


def test_two_networks_at_the_same_time_are_separate(tmp_path: Path) -> None:
    both = [Harness(tmp_path / name, {}) for name in ("a", "b")]
    for harness in both:
        harness.network("server", "evaluator", "worker-0")
        harness.start("server", what="listen")
        harness.until(harness.report, lambda m: "listening" in m.fields)
    both[0].start("worker-0", what="send", to="10.77.0.1", bytes=1000)
    assert both[0].until(both[0].report, lambda m: "from" in m.fields)["bytes"] == 1000
    assert both[1].counter()["bytes"] == 0
    both[0].close()
    both[1].start("worker-0", what="send", to="10.77.0.1", bytes=2000)
    assert both[1].until(both[1].report, lambda m: "from" in m.fields)["bytes"] == 2000
    both[1].close()
