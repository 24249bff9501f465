"""Make plans from a spec: devices, addresses, links, and the settings of each role."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from testbed.algorithms import algorithm_named, has
from testbed.algorithms.diagnostic import Diagnostic
from testbed.algorithms.learning_rate import ConstantRate, RateSchedule
from testbed.algorithms.roles import Part, Population
from testbed.device_names import (
    EVALUATOR_NAME,
    aggregator_name,
    is_server,
    machine_name,
    peer_name,
    server_names,
    worker_name,
)
from testbed.errors import SpecError, TestbedError
from testbed.experiment.power_figures import power_of
from testbed.experiment.sections.device_classes import DeviceClassSpec
from testbed.experiment.spec import Spec
from testbed.experiment.traffic_flows import flows_of
from testbed.faults.fault import Fault
from testbed.faults.rules import FaultRule
from testbed.faults.schedule import Schedule
from testbed.learning.data import catalogue, datasets
from testbed.network.background import BackgroundFlow
from testbed.network.links import MOST_LINKS, Link
from testbed.network.topology import Direction, Network
from testbed.planning import background_flows, capacity, memory
from testbed.planning.fault_rules import fault_rules
from testbed.planning.network_plan import (
    SharedRoutes,
    aggregator_of,
    network_of,
    shared_directions,
    shared_routes,
    without_shapes,
)
from testbed.planning.presence_rules import presence_rules
from testbed.results.reading.quality import Quality
from testbed.training import computation
from testbed.training.run_devices import NetworkSettings, TimingSettings
from testbed.training.settings import (
    DeviceSettings,
    FaultSettings,
    Settings,
)
from testbed.units import format_rate


@dataclass(frozen=True, slots=True)
class Plan:
    """One run, ready to be carried out.

    Attributes:
        spec: the resolved spec, with one algorithm.
        label: the algorithm's label, and the run directory's name.
        settings: the settings that the roles get.
        network: the devices' and the routers' links; see ``network_of``.
        observed: the device whose link is captured: the (first) server, or the evaluated peer.
        counted: the devices whose ingress is counted: all servers, or all peers.
    """

    spec: Spec
    label: str
    settings: Settings
    network: Network
    observed: str
    counted: tuple[str, ...]

    @property
    def links(self) -> tuple[Link, ...]:
        """All links of the network."""
        return self.network.links

    @property
    def class_of(self) -> Sequence[int]:
        """The class of each worker, by its number; empty without classes."""
        return self.settings.class_of

    def with_share(self, processors: int) -> Self:
        """Return the same for a simulation that chooses at most so many processors."""
        return replace(self, settings=replace(self.settings, share=processors))

    @property
    def asked_network(self) -> Network:
        """The network with its links as in the experiment file, under either clock."""
        return network_of(self.spec, served=self.served, class_of=self.class_of)

    @property
    def conversations(self) -> list[tuple[str, str]]:
        """The pairs of devices that talk to each other over links, but for the evaluator."""
        return [
            (caller, called)
            for caller, called in _conversations(
                self.spec, self.servers, self.settings.network.aggregator_of
            )
            if self.local.get(called) != caller
        ]

    @property
    def shared(self) -> dict[Direction, list[tuple[str, str]]]:
        """The directions of links that several devices share, with the pairs that use them."""
        if not (self.spec.network.shares_links or len(self.servers) > 1):
            return {}
        found = shared_directions(self.network, self.conversations)
        for flow in self.background:
            pair = flow.sender, flow.receiver
            for direction in self.network.route(*pair):
                if pair not in found.get(direction, (pair,)):
                    found[direction].append(pair)
        return found

    @property
    def background(self) -> tuple[BackgroundFlow, ...]:
        """The flows of background traffic."""
        return _flows(self.spec, served=self.served)

    @property
    def served(self) -> bool:
        """True if there is a server."""
        return bool(self.servers)

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers' names, in the order of their parts of the parameters; none among peers."""
        return self.counted if is_server(self.observed) else ()

    @property
    def local(self) -> dict[str, str]:
        """The worker on the machine of each co-located server, by the server's name."""
        found = range(self.settings.network.co_located)
        return {self.servers[number]: worker_name(number) for number in found}

    @property
    def machines(self) -> tuple[str, ...]:
        """The names of the machines with a co-located server; their devices have no other link."""
        return tuple(map(machine_name, range(self.settings.network.co_located)))

    @property
    def aggregators(self) -> tuple[str, ...]:
        """The aggregators' names."""
        return tuple(map(aggregator_name, range(self.settings.aggregators)))

    @property
    def serving(self) -> tuple[str, ...]:
        """The names of the servers and of the aggregators, by their index."""
        return self.servers + self.aggregators

    @property
    def coordinated(self) -> bool:
        """True if there is a coordinator.

        There is one of peers and, under the virtual clock, one of several servers and of aggregators.
        """
        return not self.served or (
            self.settings.timing.clock == "virtual" and len(self.serving) > 1
        )

    @property
    def workers(self) -> dict[str, int]:
        """The workers' or peers' numbers by device name."""
        name = worker_name if self.served else peer_name
        return {name(i): i for i in range(self.settings.workers)}

    @property
    def names(self) -> dict[int, str]:
        """The names of workers or peers, of aggregators as workers, and of the evaluator, by number."""
        aggregators = dict(enumerate(self.aggregators, self.settings.workers))
        workers = {number: name for name, number in self.workers.items()}
        return {**workers, **aggregators, self.settings.evaluator: EVALUATOR_NAME}

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The numbers that the algorithm reports with each update."""
        return algorithm_named(self.settings.algorithm.name).diagnostics

    @property
    def computing(self) -> int:
        """The number of workers or peers that compute gradients, and have a part of the images."""
        return computation.computing(self.settings)

    @property
    def checkpoint_every(self) -> int | None:
        """Updates from one checkpoint of the run to the next; None if there are none.

        Emulated peers keep checkpoints of their own, from which no run goes on.
        """
        are_all_here = self.served or self.spec.engine == "simulation"
        return self.spec.checkpoints.every if are_all_here else None

    @property
    def memory(self) -> int:
        """Bytes of memory that the run may need."""
        return memory.needed(self.spec)

    @property
    def memory_per_device(self) -> float:
        """Bytes of memory that one device more may need."""
        return memory.per_device(self.spec)

    @property
    def shared_memory(self) -> int:
        """Bytes of memory that all devices share."""
        return memory.SHARED

    @property
    def schedule(self) -> Schedule:
        """The schedule of the run's faults."""
        return self.settings.schedule()

    @property
    def open_files(self) -> int:
        """The most descriptors that any of the run's processes will hold."""
        devices = self.spec.devices
        alone = devices.runtime == "docker" and devices.launched == "image"
        each = capacity.FILES_PER_STARTED_DEVICE if alone else capacity.FILES_PER_DEVICE
        is_sent = self.spec.clock == "wall"
        of_flows = background_flows.FILES_PER_FLOW * len(self.background) * is_sent
        return capacity.FILES_PER_RUN + each * len(self.links) + of_flows


def _flows(spec: Spec, *, served: bool) -> tuple[BackgroundFlow, ...]:
    """Return the flows of background traffic, in which workers are peers where there is no server."""
    count = range(0 if served else spec.devices.workers)
    peers = {worker_name(i): peer_name(i) for i in count}
    return flows_of(spec.traffic_between, lambda device: peers.get(device, device))


def _conversations(
    spec: Spec, servers: Sequence[str], aggregator_of: Sequence[int]
) -> list[tuple[str, str]]:
    """Return the pairs of devices that talk to each other in a run of one algorithm, callers first."""
    (options,) = spec.algorithms
    algorithm = algorithm_named(options.name)
    population = Population(spec.devices.workers, len(servers), aggregator_of)
    names: dict[Part, Callable[[int], str]] = {
        "server": lambda index: servers[index],
        "aggregator": aggregator_name,
        "worker": worker_name,
        "peer": peer_name,
    }
    found = computation.conversations(algorithm, options, spec.conditions(options), population)
    return [
        (names[caller.part](caller.index), names[called.part](called.index))
        for caller, called in found
    ]


def plan(spec: Spec) -> list[Plan]:
    """Plan the runs of an experiment, one per algorithm.

    Raises:
        SpecError: there are more workers than links in the address plan, more conversations over a
            shared link than queues, background traffic leaves nothing of a link, or a trace of faults
            cannot be used.
    """
    most = MOST_LINKS - 1 - spec.devices.servers - len(spec.network.clusters)
    if spec.engine == "emulation" and spec.devices.workers > most:
        raise SpecError(
            f"devices.workers: {spec.devices.workers:,} is more than the {most:,} for which "
            "the address plan has links: use fewer"
        )
    plans = [_plan_one(run, label) for label, run in spec.runs().items()]
    for one in plans:
        if spec.clock == "virtual":
            background_flows.check(one.settings)
        if spec.engine == "emulation" and len(one.links) > MOST_LINKS:
            raise SpecError(
                f"network: the run has {len(one.links):,} links, and the address plan {MOST_LINKS:,}: "
                "use fewer workers or a smaller graph"
            )
        if spec.engine == "emulation":
            _check_shared_links(one)
    return plans


def _check_shared_links(one: Plan) -> None:
    from testbed.network.fair_queues import most_pairs  # with the library for netlink

    for (index, up), pairs in one.shared.items():
        link = one.network.links_by_index[index]
        rate = (link.uplink if up else link.downlink).rate
        room = most_pairs(rate)
        if len(pairs) > room:
            raise SpecError(
                f"network: {len(pairs):,} conversations of '{one.label}' share the link of "
                f"{link.node}, and the kernel's fair queues have room for {room:,}"
                f"{f' at {format_rate(rate)}' if rate else ''}: use fewer workers, give it a higher "
                "rate, or do not shape it"
            )


def _device(spec: Spec, section: DeviceClassSpec | None) -> DeviceSettings:
    """Return the roles' settings of a class's devices; of all devices without classes."""
    link = spec.link_of(section)
    return DeviceSettings(
        uplink=link.up.rate,
        downlink=link.down.rate,
        delay=link.up.delay,
        down_delay=link.down.delay,
        jitter=link.up.jitter,
        down_jitter=link.down.jitter,
        up_trace=link.up_trace,
        down_trace=link.down_trace,
        power=power_of(spec, section),
    )


def _harm(fault: Fault) -> str | None:
    """Return what a fault would do to the evaluated peer that must not happen; None: nothing."""
    if fault.kind in ("kill", "stop-network", "partition"):
        return "kill" if fault.kind == "kill" else "cut off"
    return "stop for good" if fault.kind == "freeze" and fault.duration is None else None


def _rules(spec: Spec, class_of: Sequence[int], aggregators: int) -> list[FaultRule]:
    """Return the rules of faults, and of devices that arrive and leave.

    Raises:
        SpecError: a trace cannot be used, a fault names an aggregator that there is not, or the peer
            that is evaluated would be killed or cut off.
    """
    rules = fault_rules(spec, class_of, aggregators)
    (options,), evaluated = spec.algorithms, spec.evaluation.peer
    absences = presence_rules(spec, class_of, len(rules))
    if has(options.name, "server"):
        return rules + absences
    name = peer_name(evaluated)
    for rule in rules:
        does = next(filter(None, map(_harm, rule.faults_of(evaluated))), None)
        if does is not None:
            raise SpecError(
                f"{rule.stream.replace(' ', '.')}: it would {does} {name}, whose model is "
                "evaluated: name other devices in `who`, or another `evaluation.peer`"
            )
    come_and_go = {device for rule in absences for device in rule.devices}
    if evaluated in come_and_go:
        always = next((one for one in range(spec.devices.workers) if one not in come_and_go), None)
        advice = "have a class of peers that neither arrive nor leave"
        raise SpecError(
            f"devices: {name}, whose model is evaluated, would not be there all the time: "
            + (advice if always is None else f"write `evaluation: {{peer: {always}}}`")
        )
    return rules + absences


def _rate(spec: Spec) -> ConstantRate | RateSchedule:
    """Return the learning rate at each version.

    Raises:
        DataError: its schedule is in epochs, and the training images cannot be counted.
    """
    (options,), schedule = spec.algorithms, spec.training.schedule
    alpha = options.learning_rate or spec.training.learning_rate
    if schedule is None:
        return ConstantRate(alpha)
    epoch = 1.0
    if schedule.unit == "epochs":
        algorithm = algorithm_named(options.name)
        gradients = algorithm.gradients_per_update(options, spec.conditions(options))
        assert gradients is not None, "the file's conflicts refuse epochs then"
        images = datasets.check(spec.dataset.choice, spec.dataset.train_images)
        epoch = images / (spec.training.batch_size * gradients)
    return schedule.rate(alpha, epoch, spec.training.updates)


def _facts(spec: Spec) -> catalogue.Facts | None:
    """Return what is known of a dataset that a function returns; None of any other."""
    try:
        return catalogue.facts_of(spec.dataset.choice)
    except TestbedError:
        return None  # a plan is shown without its data; ``check_data`` reports the error


def _measure(spec: Spec, facts: catalogue.Facts | None) -> Quality | None:
    """Return what evaluations measure besides loss and accuracy."""
    own = spec.evaluation.measure
    if own is not None:
        return Quality(own.column, own.unit, own.better)
    tokens = facts is not None and facts.inputs.tokens
    is_language = spec.loss.name == "next-token" if spec.loss is not None else tokens
    return Quality("perplexity") if is_language else None


def _plan_one(spec: Spec, label: str) -> Plan:
    (algorithm,) = spec.algorithms
    facts = _facts(spec)
    served = has(algorithm.name, "server")
    count = spec.devices.workers
    servers = server_names(spec.devices.servers) if served else ()
    class_of = spec.devices.class_of(spec.seed)
    above = aggregator_of(spec, class_of)
    virtual = spec.clock == "virtual"
    # Under the virtual clock a message's time is computed, and the real links are not shaped.
    asked = network_of(spec, served=served, class_of=class_of)
    network = without_shapes(asked) if virtual else asked
    shared = SharedRoutes([], [], [], [])
    if virtual and (spec.network.shares_links or len(servers) > 1):
        talking = _conversations(spec, servers, above)
        if not served:  # in the order of the clock's numbers
            number = {peer_name(i): i for i in range(count)}
            talking.sort(key=lambda pair: [number[name] for name in pair])
        shared = shared_routes(asked, talking, _flows(spec, served=served))
    devices = () if served else (name for name in network.devices if name != EVALUATOR_NAME)
    addresses = [network.link(device).address for device in devices]
    called = servers or (peer_name(spec.evaluation.peer),)
    return Plan(
        spec,
        label,
        Settings(
            workers=count,
            spec=spec,
            rate=_rate(spec),
            timing=TimingSettings(
                clock=spec.clock,
                suspect_after=spec.suspect_after(algorithm),
                gradient_time=spec.gradient_time,
                own_processors=spec.devices.limits_processors,
            ),
            network=NetworkSettings(
                server_addresses=[network.link(device).address for device in called],
                peer_addresses=addresses,
                evaluated_peer=spec.evaluation.peer,
                secret=secrets.token_hex(32),
                co_located=spec.devices.co_located if served else 0,
                shared_rates=shared.shared_rates,
                routes=shared.routes,
                route_of=shared.route_of,
                flow_routes=shared.flow_routes,
                aggregator_of=above,
                aggregator_addresses=[
                    network.link(aggregator_name(i)).address
                    for i in range(max(0, len(above) - count))
                ],
            ),
            faults=FaultSettings(
                _rules(spec, class_of, max(0, len(above) - count)), spec.checkpoints.every
            ),
            devices=_device(spec, None),
            classes=[_device(spec, one) for one in spec.devices.classes],
            class_of=class_of,
            measure=_measure(spec, facts),
            dataset_digest=None if facts is None else facts.digest,
        ),
        network,
        observed=called[0],
        counted=servers or tuple(map(peer_name, range(count))),
    )
