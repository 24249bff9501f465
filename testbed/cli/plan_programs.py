"""The output of ``testbed plan`` for an experiment of programs."""

from testbed.cli import plan_faults, plan_links
from testbed.device_names import SERVER_NAME
from testbed.experiment.device_links import AskedLink
from testbed.network.links import CORE, Link
from testbed.number_text import as_duration, as_number
from testbed.planning import background_flows
from testbed.planning.program_plan import ProgramPlan


def as_json(plan: ProgramPlan) -> dict[str, object]:
    """Return a run's plan as JSON values, for scripts."""
    return {
        "label": plan.label,
        "devices": [plan_links.record(plan.network.link(device)) for device in plan.devices],
        "routers": [
            plan_links.record(link) for link in plan.links if link.node in plan.network.routers
        ],
        "programs": {
            name: {
                "devices": list(plan.places(name)),
                "run": section.run,
                **({"image": plan.images[name]} if plan.containers else {}),
                "after": list(section.after),
                "restart": section.restart,
                "ends_run": section.ends == "run",
            }
            for name, section in plan.spec.programs.items()
        },
        **background_flows.record(plan.background),
        "sysctls": plan.sysctls,
        "memory_bytes": plan.memory,
        "open_files": plan.open_files,
    }


def describe(plan: ProgramPlan) -> list[str]:
    """Return the lines that describe the plan to people."""
    spec = plan.spec
    ends = [name for name, one in spec.programs.items() if one.ends == "run"]
    until = f"until {' or '.join(ends)} has ended" if ends else "until all programs have ended"
    count = as_number(spec.devices.workers, "worker")
    width = max(map(len, (*spec.programs, count, *(one.name for one in spec.nodes))))
    workers = [link for link in plan.links if link.node.startswith("worker-")]
    links = {_words(spec.link_of(one)) for one in spec.devices.classes or (None,)}
    others = [SERVER_NAME, *(one.name for one in spec.nodes)]
    return [
        f"{spec.name}: one run of {as_number(len(spec.programs), 'program')}, {until}, at most "
        f"{as_duration(spec.limits.time)}, seed {spec.seed}",
        "programs, in the order in which they may start:",
        *(f"  {name:<{width}}  {_program(plan, name)}" for name in _in_order(plan)),
        f"it makes these devices, {_nodes(plan)}:",
        f"  {CORE:<{width}}  routes between the links below",
        *(
            f"  {name:<{width}}  {plan.address(name)}  {_link(plan.network.link(name))}"
            + ("; ingress counted here" if name == SERVER_NAME else "")
            for name in others
        ),
        f"  {count:<{width}}  {workers[0].address} to "
        f"{workers[-1].address}  {' or '.join(sorted(links))}",
        *background_flows.describe(plan.background),
        *plan_faults.describe(plan),
        *_measure(plan),
        *(f"{name} = {value}" for name, value in plan.sysctls.items()),
        f"{plan.open_files} open files; the memory that programs need is not known",
    ]


def _nodes(plan: ProgramPlan) -> str:
    if not plan.containers:
        return "each in namespaces of its own"
    limits = [
        f"{key} {value}"
        for key, value in plan.spec.devices.model_dump(mode="json").items()
        if key in ("cpus", "memory") and value is not None
    ]
    ours = f"each a Docker container of {plan.image}, with one more for each program"
    return f"{ours}; each program of a worker has {' and '.join(limits)}" if limits else ours


def _link(link: Link) -> str:
    up, down = map(plan_links.shape_text, (link.uplink, link.downlink))
    return "link not shaped" if up == down == "not shaped" else f"uplink {up}; downlink {down}"


def _words(link: AskedLink) -> str:
    """Return what is shaped on a worker's link."""
    found = [
        f"{key} {value}"
        for key, value in plan_links.cells(link).items()
        if value != plan_links.NO_VALUE
    ]
    return ", ".join(found) or "link not shaped"


def _measure(plan: ProgramPlan) -> list[str]:
    section = plan.spec.measure
    if section is None:
        return ["nothing is measured, and there is no curve: see `measure`"]
    where = f"what {section.from_} on {plan.places(section.from_)[0]}"
    if section.pattern is None:
        return [f"the curve: {where} writes to {section.file}"]
    return [f"the curve: {where} says that matches {section.pattern}"]


def _program(plan: ProgramPlan, name: str) -> str:
    section, places = plan.spec.programs[name], plan.places(name)
    where = places[0] if len(places) == 1 else f"{places[0]} to {places[-1]}"
    after = f", after {', '.join(section.after)}" if section.after else ""
    again = "" if section.restart == "never" else f", started again {section.restart}"
    image = f", image {plan.images[name]}" if plan.containers else ""
    command = (section.run or "what the image starts").rstrip()
    return f"on {where}{after}{again}{image}: {command}"


def _in_order(plan: ProgramPlan) -> list[str]:
    found: list[str] = []
    left = dict(plan.spec.programs)
    while left:
        for name, section in list(left.items()):
            if not any(one in left for one in section.after):
                found.append(name)
                del left[name]
    return found
