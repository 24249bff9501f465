"""Conflicts of faults, and of a restarted server's checkpoints, with the rest of the file."""

from itertools import chain

from testbed.algorithms import algorithm_named, has
from testbed.device_names import is_server, server_names, worker_name
from testbed.experiment.contents import Contents
from testbed.experiment.program_contents import AnyContents
from testbed.experiment.sections.faults import (
    AfterPushes,
    ByTrace,
    ClassFaultSpec,
    CorruptFault,
    FaultSpec,
    OfClass,
    SlowFault,
    WhoByDevices,
    WhoByNumber,
)
from testbed.experiment.sections.section import Conflict

_WAITS_FOR_ALL = "waits for every device, so that one that is gone would end all progress"


def of_checkpoints(contents: Contents) -> list[Conflict]:
    """Return the conflicts of the checkpoints, or of a killed server without them."""
    if contents.checkpoints.every is None:
        killed = [i for i, fault in enumerate(contents.faults) if fault.of_server]
        text = "a server comes back from a checkpoint: add `checkpoints: {every: 1000}`"
        return [(("faults", i, "who"), text) for i in killed[:1]]
    peers, of_classes = contents.peers, [one.faults for one in contents.devices.classes]
    comes_back = (
        contents.engine == "simulation"
        or contents.devices.come_and_go
        or any(map(_brings_back, (*contents.faults, *chain(*of_classes))))
    )
    if peers and not comes_back:
        text = (
            f"peers ('{peers[0]}') go on from a checkpoint only after a kill with `lasting`, or when "
            "they return: add one to `faults`, or take this out"
        )
        return [(("checkpoints", "every"), text)]
    return []


def _brings_back(fault: ClassFaultSpec) -> bool:
    """Return True if a fault may kill devices that come back."""
    by_trace = isinstance(fault.when, ByTrace)
    return by_trace or (fault.how.kind == "kill" and fault.lasting is not None)


def of_faults(contents: AnyContents) -> list[Conflict]:
    """Return the conflicts of the file's faults and of its classes' faults."""
    classes = contents.devices.classes
    if contents.devices.come_and_go and (name := _cannot_bear_loss(contents)):
        text = f"'{name}' {_WAITS_FOR_ALL}: let all be there for the whole run"
        return [(("devices",), text)]
    found = [
        (("faults", i, *path), text)
        for i, fault in enumerate(contents.faults)
        for path, text in (*_unknown_devices(contents, fault), *_unsupported(contents, fault))
    ]
    return found + [
        (("devices", "classes", i, "faults", j, *path), text)
        for i, one in enumerate(classes)
        for j, own in enumerate(one.faults)
        for path, text in _unsupported(contents, own)
    ]


def _unknown_devices(contents: AnyContents, fault: FaultSpec) -> list[Conflict]:
    """Return a conflict for each device, class or number of workers that the run does not have."""
    workers = contents.devices.workers
    match fault.who:
        case WhoByNumber(number=number) if number > workers:
            return [(("who", "number"), f"there are only {workers} workers: use a smaller number")]
        case OfClass(class_=name):
            classes = [one.name for one in contents.devices.classes]
            if name not in classes:
                known = f"the classes are {', '.join(classes)}"
                text = f"there is no class '{name}': {known if classes else 'there are no classes'}"
                return [(("who", "class"), text)]
        case WhoByDevices(devices=names) if fault.of_aggregator:
            if found := _without_aggregators(contents, names[0]):
                return found
            virtual_kill = contents.clock == "virtual" and fault.how.kind == "kill"
            text = "aggregators are killed by the wall clock only: use freeze, or `clock: wall`"
            return [(("how",), text)] * virtual_kill
        case WhoByDevices(devices=names):
            numbered = [worker_name(i) for i in range(workers)]
            servers = server_names(contents.devices.servers)
            texts = (
                f"the workers are {numbered[0]} to {numbered[-1]}",
                f"the servers are {servers[0]} to {servers[-1]}"
                if len(servers) > 1
                else f"the only server is '{servers[0]}'",
            )
            return [
                (("who", "devices", i), f"there is no '{name}': {texts[is_server(name)]}")
                for i, name in enumerate(names)
                if name not in (*numbered, *servers)
            ]
    return []


def _without_aggregators(contents: AnyContents, name: str) -> list[Conflict]:
    """Return a conflict if not all of the file's runs have aggregators; planning knows how many."""
    algorithms = contents.algorithms if isinstance(contents, Contents) else ()
    without = [one.name for one in algorithms if not has(one.name, "aggregator")]
    if algorithms and not without:
        return []
    runs = f"'{without[0]}' has no aggregators" if without else "programs have no aggregators"
    return [(("who", "devices", 0), f"there is no '{name}': {runs}, name other devices")]


def _unsupported_by_peers(name: str, fault: ClassFaultSpec) -> list[Conflict]:
    if isinstance(fault, FaultSpec) and fault.of_server:
        return [(("who",), f"'{name}' has no server: name workers, which are its peers")]
    if isinstance(fault.when, AfterPushes):
        text = f"give peers ('{name}') one of time, mean_time, iteration and trace"
        return [(("when",), text)]
    return []


def _cannot_bear_loss(contents: AnyContents) -> str | None:
    """Return the name of an algorithm that cannot go on without a peer; None if all can."""
    names = (name for name in contents.peers if not algorithm_named(name).bears_loss)
    return next(names, None)


def _unbearable(contents: AnyContents, fault: ClassFaultSpec) -> list[Conflict]:
    """Return a conflict if a fault may kill peers, and an algorithm cannot go on without them."""
    name = _cannot_bear_loss(contents)
    if name is None:
        return []
    if isinstance(fault.when, ByTrace):
        text = f"give '{name}' one of time, mean_time and iteration: a trace may have kills"
        return [(("when",), text)]
    if fault.how.kind != "kill":
        return []
    return [(("how",), f"'{name}' {_WAITS_FOR_ALL}: use freeze or stop-network")]


def _unsupported(contents: AnyContents, fault: ClassFaultSpec) -> list[Conflict]:
    """Return a conflict if the run's peers, clock or devices cannot do what the fault asks for."""
    if found := _unbearable(contents, fault):
        return found
    if contents.peers and (found := _unsupported_by_peers(contents.peers[0], fault)):
        return found
    virtual = contents.clock == "virtual"
    match fault.how:
        case CorruptFault() if virtual:
            text = "nothing is damaged under the virtual clock: take it out, or use `clock: wall`"
            return [(("how",), text)]
        case SlowFault(cpus=float()) if virtual:
            text = "durations are drawn under the virtual clock: use factor, or `clock: wall`"
            return [(("how", "cpus"), text)]
        case SlowFault(cpus=float()) if contents.devices.runtime != "docker":
            text = "only containers have it: use factor, or `runtime: docker`"
            return [(("how", "cpus"), text)]
    return []
