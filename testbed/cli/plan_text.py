"""The output of ``testbed plan``, for people and for scripts."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from testbed.algorithms import algorithm_named
from testbed.cli import (
    plan_classes,
    plan_durations,
    plan_expected,
    plan_faults,
    plan_links,
    plan_network,
    plan_partition,
    plan_presence,
    plan_rates,
    plan_routes,
)
from testbed.device_names import EVALUATOR_NAME
from testbed.errors import DataError
from testbed.experiment.device_links import link_of
from testbed.experiment.model_conflicts import described, layout_of
from testbed.experiment.sections.shared_links import SharedLinkSpec
from testbed.experiment.spec import Spec
from testbed.learning.data.catalogue import inputs_of
from testbed.network.links import CORE
from testbed.number_text import as_bytes, as_number
from testbed.planning import background_flows, memory
from testbed.planning.images import ImageCounts
from testbed.planning.mean_times import means
from testbed.planning.plan import Plan
from testbed.training.slices import Slice, slices_of

_PATHS = {"fast": "on the fast path", "autograd": "by autograd"}


def as_json(plan: Plan) -> dict[str, Any]:
    """Return a run's plan as JSON values, for scripts."""
    shared = plan_partition.partitioned(plan)
    counted = None if isinstance(shared, DataError) else shared
    return {
        "label": plan.label,
        "devices": [
            plan_links.record(plan.network.link(device)) for device in plan.network.devices
        ],
        "routers": [
            {
                "name": link.node,
                "router": link.router,
                "uplink": link.uplink.rate,
                "downlink": link.downlink.rate,
            }
            for link in plan.links
            if link.node in plan.network.routers
        ],
        "servers": _server_records(plan),
        "routes": plan_routes.records(plan),
        "memory_bytes": plan.memory,
        "open_files": plan.open_files,
        "updates": plan.settings.training.updates,
        "expected": asdict(plan_expected.expected(plan, counted)),
        "classes": plan_classes.records(plan),
        "partition": plan_partition.record(plan, shared),
        "durations": means(plan),
        **background_flows.record(plan.background),
    }


def describe(plans: Sequence[Plan]) -> list[str]:
    """Return the lines that describe an experiment's plans to people."""
    spec = plans[0].spec
    shared = plan_partition.partitioned(plans[0])
    runs = [f"  {i}. {_run(plan, shared)}" for i, plan in enumerate(plans, 1)]
    simulated = spec.engine == "simulation"
    kinds = {plan.served: plan for plan in reversed(plans)}.values()
    made = (
        [
            f"simulated under the virtual clock, without nodes and network; {_processors(spec)}",
            *(line for plan in kinds for line in _servers(plan)),
        ]
        if simulated
        else [
            f"clock: {spec.clock}" + _about_clock(spec),
            f"each run makes these devices, {_nodes(spec)}:",
            "  core          routes between the links below",
            *_devices(plans),
            *background_flows.describe(plans[0].background),
        ]
    )
    return [
        f"{spec.name}: {as_number(len(plans), 'run')}, one after the other, seed {spec.seed}",
        *runs,
        *_model(plans[0]),
        *of_algorithms(plans),
        f"dataset {spec.dataset.name}, "
        f"batch size {spec.training.batch_size}, learning rate {spec.training.learning_rate}",
        *made,
        *plan_links.describe(spec),
        *plan_classes.describe(plans[0], plan_partition.by_class(plans[0], shared)),
        *plan_partition.describe(plans[0], shared),
        *plan_durations.describe(plans[0]),
        *plan_rates.describe(plans[0]),
        *plan_faults.describe(plans[0]),
        *plan_presence.describe(plans[0]),
        *(line for plan in kinds for line in plan_network.describe(plan)),
        *([] if simulated else [_traffic(spec)]),
        *_kept_at_server(plans),
        *_waiting(plans),
        f"about {max(plan.memory for plan in plans) / 2**30:.1f} GiB of memory"
        + ("" if simulated else f", {max(plan.open_files for plan in plans)} open files"),
    ]


def _run(plan: Plan, shared: ImageCounts | DataError) -> str:
    """Return the line about a run: what it trains for, and how it sends updates."""
    training = plan.settings.training
    counted = None if isinstance(shared, DataError) else shared
    words = plan_expected.expected(plan, counted).words
    pulls = f", pulls {plan.settings.pulls}" if plan.served else ", peers without a server"
    return (
        f"{plan.label}: {training.updates:,} updates{f' {words}' if words else ''}; "
        f"encoding {plan.settings.encoding.name}{pulls}"
    )


def of_algorithms(plans: Sequence[Plan]) -> list[str]:
    """Return a line for each run, or each class of its devices, whose algorithm explains itself."""
    return [line for plan in plans for line in _explained(plan)]


def _explained(plan: Plan) -> Iterator[str]:
    (options,) = plan.spec.algorithms
    explain, settings = algorithm_named(options.name).explain, plan.settings
    classes = plan.spec.devices.classes
    first = {one: settings.class_of.index(one) for one in sorted(set(settings.class_of))}
    texts: dict[str, list[str]] = {}
    for one, device in first.items() or [(-1, 0)]:
        text = explain(options, layout_of(plan.spec), settings.conditions(device))
        if text is not None:
            texts.setdefault(text, []).append(classes[one].name if first else "")
    for text, names in texts.items():
        of = f", {' and '.join(names)}" if len(texts) > 1 else ""
        yield f"{plan.label}{of}: {text}"


def _model(plan: Plan) -> list[str]:
    """Return the lines about the model, and about what it learns if that is no classification."""
    model = plan.spec.model
    about = described(plan.spec)
    parameters = as_number(about.parameters, "parameter")
    text = f"model {model.name}: {parameters}, gradients {_PATHS[about.path]}"
    if about.buffers:
        text += {
            "none": ", without running statistics",
            "shared": f", {about.buffers:,} values of running statistics at the server",
            "per-worker": f", each worker keeps {about.buffers:,} values of running statistics",
        }[model.buffers]
    section, measure = plan.spec.loss, plan.settings.measure
    inputs = inputs_of(plan.spec.dataset.choice)
    loss = section.name if section else "next-token" if inputs.tokens else "classification"
    if measure is None and loss == "classification":
        return [text]
    measured = f", evaluations measure {measure.name}" if measure else ""
    return [text, f"loss {loss} of {inputs}{measured}"]


def _waiting(plans: Sequence[Plan]) -> Iterator[str]:
    """Yield a line for each run of peers with a send queue of their own."""
    for plan in plans:
        queue = plan.settings.send_queue
        if queue != 1:
            rounds, size = memory.waiting(plan.spec)
            most = f"up to {queue}" if queue else f"any number of (here about {rounds + 1:,})"
            yield (
                f"{plan.label}: messages of {most} rounds may wait to leave a peer, which takes about "
                f"{as_bytes(size)} more of memory"
            )


def _kept_at_server(plans: Sequence[Plan]) -> list[str]:
    """Return a line for each run whose servers keep vectors for each worker."""
    found = []
    for plan in plans:
        kept, workers = memory.at_server_per_worker(plan.spec), plan.settings.workers
        if kept:
            size = kept * 4 * layout_of(plan.spec).total
            found.append(
                f"{plan.label}: the server keeps {as_number(kept, 'vector')} for each worker, "
                f"{as_bytes(size)}; {as_bytes(size * workers)} for all of them"
            )
    return found


def _shares(plan: Plan) -> list[str]:
    """Return what each of several servers holds, in words."""
    allocation = plan.spec.devices.allocation
    return [_share(one, allocation) for one in slices_of(plan.settings, layout_of(plan.spec))]


def _share(one: Slice, allocation: str) -> str:
    held = f"{as_number(one.size, 'parameter')}, {as_bytes(4 * one.size)}"
    if allocation == "ranges":
        return held
    return f"{held}, of {as_number(len(one.layout.names), 'tensor')}"


def _servers(plan: Plan) -> list[str]:
    """Return a line for each of several servers, where no line about its device tells its share."""
    if len(plan.servers) < 2:
        return []
    return [f"  {name:<14}{held}" for name, held in zip(plan.servers, _shares(plan), strict=True)]


def _server_records(plan: Plan) -> list[dict[str, Any]]:
    """Return each server's share as JSON values: float32, with the names of whole or cut tensors."""
    if not plan.served:
        return []
    return [
        {
            "name": name,
            "parameters": one.size,
            "bytes": 4 * one.size,
            "tensors": list(one.layout.names),
        }
        for name, one in zip(
            plan.servers, slices_of(plan.settings, layout_of(plan.spec)), strict=True
        )
    ]


def _nodes(spec: Spec) -> str:
    devices = spec.devices
    if devices.runtime == "namespaces":
        return "each in namespaces of its own"
    how = {"image": "roles started by the image", "fork": "roles forked into it"}
    limits = [
        f"{key} {value}"
        for key, value in spec.model_dump(mode="json")["devices"].items()
        if key in ("cpus", "memory") and value is not None
    ]
    return ", ".join(["each in a Docker container", how[devices.launched], *limits])


def _processors(spec: Spec) -> str:
    """Return where a simulation computes its gradients."""
    simulation = spec.simulation
    if simulation.device != "cpu":
        return f"gradients on {simulation.device}"
    if simulation.batched or simulation.processors == 1:
        return "gradients on one processor"
    if simulation.processors is not None:
        return f"gradients on {simulation.processors} processors"
    return "gradients on all processors, if they would take more than some seconds on one"


def _about_clock(spec: Spec) -> str:
    if spec.clock == "wall":
        return ""
    return " (times are computed instead of waited for, and links are not shaped)"


def _devices(plans: Sequence[Plan]) -> list[str]:
    """Return the lines about the devices, with a server and without if there are runs of both kinds."""
    lines: list[str] = []
    kinds = {plan.served: plan for plan in reversed(plans)}
    for served in (True, False):
        if served not in kinds:
            continue
        plan = kinds[served]
        if len(kinds) > 1:
            which = "with" if served else "without"
            lines.append(f"  {which} a server:")
        lines += _star(plan) if served else _mesh(plan)
    return lines


def _star(plan: Plan) -> list[str]:
    evaluator = plan.network.link(EVALUATOR_NAME)
    several = len(plan.servers) > 1
    holds = [f"{held}; " for held in _shares(plan)] if several else [""]
    return [
        *(
            f"  {server:<14}{plan.network.link(server).address}  {held}"
            f"{_place(plan, server)}; ingress counted here"
            for server, held in zip(plan.servers, holds, strict=True)
        ),
        f"  evaluator     {evaluator.address}  link not shaped; not counted",
        f"  {_many(plan, 'worker')}",
        *_clusters(plan),
    ]


def _place(plan: Plan, server: str) -> str:
    """Return where a server is: by the link of its own, or on the machine of a worker."""
    if server in plan.local:
        return (
            f"on {plan.network.link(server).router} with {plan.local[server]}, whose link it shares"
        )
    return _own_link(plan.spec.network.server)


def _mesh(plan: Plan) -> list[str]:
    return [
        f"  evaluator     {plan.network.link(EVALUATOR_NAME).address}  link not shaped; not counted",
        f"  {_many(plan, 'peer')}; ingress counted at each",
        f"  {plan.observed} is evaluated, and its link captured",
        *_clusters(plan),
    ]


def _clusters(plan: Plan) -> list[str]:
    """Return a line about each cluster: its devices, and the link of its router."""
    lines = []
    if plan.spec.network.graph is not None:
        network = plan.network
        used = set(_homes(plan).values())
        routers = set(network.routers) - set(plan.machines)
        between = [link for link in network.links if link.node in routers]
        (beside,) = (link.node for link in between if link.router == CORE)
        first = "server" if plan.served else "evaluator"
        where = f"{first} at {beside}, devices at {len(used)} others"
        if plan.machines:
            where = f"devices and servers at {len(used)} of them"
        lines.append(
            f"  {as_number(len(routers) - 1, 'router'):<13} {plan.spec.network.graph.source}; "
            f"{as_number(len(between) - 1, 'link')}; {where}"
        )
    homes = _homes(plan)
    for one in plan.spec.network.clusters:
        names = [name for name, router in homes.items() if router == one.name]
        devices = f"{names[0]} to {names[-1]}" if len(names) > 1 else "".join(names) or "no device"
        if plan.settings.class_of and one.classes:
            devices = f"{as_number(len(names), 'device')} of {', '.join(one.classes)}"
        lines.append(f"  {one.name:<13} {devices}; {_own_link(one)}")
    return lines


def _homes(plan: Plan) -> dict[str, str]:
    """Return the router of each worker or peer; of one on a machine, that of the machine.

    A simulation of more devices than the address plan has some of them only.
    """
    network, machines = plan.network, set(plan.machines)
    found = {link.node: link.router for link in network.links}
    return {
        name: found[router] if router in machines else router
        for name in plan.workers
        if (router := found.get(name)) is not None
    }


def _own_link(section: SharedLinkSpec | None) -> str:
    """Return what is shaped on a link that several devices share."""
    if section is None:
        return "link not shaped"
    kinds = plan_links.cells(link_of(section))
    shaped = [f"{key} {value}" for key, value in kinds.items() if value != plan_links.NO_VALUE]
    return f"shared link: {', '.join(shaped)}" if shaped else "link not shaped"


def _many(plan: Plan, device: str) -> str:
    spec, names = plan.spec, plan.workers
    links = [link for link in plan.links if link.node in names]
    classes = [plan_links.cells(spec.link_of(one)) for one in spec.devices.classes or (None,)]
    kinds = {
        key: text if all(one[key] == text for one in classes) else "by class"
        for key, text in classes[0].items()
    }
    words = {plan_links.NO_VALUE: "not shaped", plan_links.TRACED: "by a trace"}
    told = [
        f"{key} {words.get(text, text)}"
        for key, text in kinds.items()
        if text != plan_links.NO_VALUE or key in ("uplink", "downlink")
    ]
    return (
        f"{as_number(len(links), device):<14}{links[0].address} to {links[-1].address}"
        f"  {', '.join(told)}"
    )


def _traffic(spec: Spec) -> str:
    how = spec.model_dump(mode="json")["traffic"]
    counters = f"counters of every link each {how['period']}"
    if not how["capture"]:
        return f"traffic: {counters}; not captured"
    where = "each server's link" if spec.devices.servers > 1 else "the server's link"
    return f"traffic: headers captured at {where}, at most {how['total_size']}; {counters}"
