"""Figs. 2, 3 and 4: how many of a cluster's machines should be servers."""

from typing import TypeAlias

from reproduction.claims import Exceeds
from reproduction.drawing import SECONDS, Against, Sweep
from reproduction.measures import Line, Lines
from reproduction.paper import Part, Section
from reproduction.papers.ako import lines
from reproduction.papers.ako.claims import (
    Ascending,
    BestChanges,
    BestOf,
    Measure,
    at,
    updates_per_second,
)
from reproduction.papers.ako.mnist import (
    CAPTION,
    accuracy_at,
)
from reproduction.papers.ako.scales import HOUR
from reproduction.tables import Column, Grid, LineTable, of_reaching

Points: TypeAlias = dict[float, str]
"""The lines of a curve by their values on the x axis."""


def _ps(workers: int, servers: int, mean: str = lines.USUAL) -> dict[str, str]:
    """Return the name of a line of parameter servers by its title within a group."""
    return {f"PS[{workers}+{servers}]": lines.ps(workers, servers, mean)}


def _group(allocations: tuple[tuple[int, int], ...], mean: str = lines.USUAL) -> dict[str, str]:
    return {title: name for one in allocations for title, name in _ps(*one, mean).items()}


def measured(heading: str, measure: Measure) -> Column:
    """Return the column of a measure: mean and deviation over the seeds."""
    return Column(heading, lambda line, _: of_reaching(measure(line)))


_RATE = measured("updates in a second", updates_per_second)
_BY_SERVERS: Points = {
    servers: lines.ps(workers, servers) for workers, servers in lines.ALLOCATIONS
}
FIG2 = Part(
    "fig2",
    "Fig. 2: allocations of 64 machines to workers and servers",
    "Validation accuracy after one hour of training, ImageNet; best is PS[48+16], and PS[60+4] and "
    f"PS[44+20] are 38.9 % and 14.5 % worse. Here an hour is {HOUR:g} s of the virtual clock.",
    lines.FIG2,
    (Section("Accuracy", (LineTable("", (accuracy_at(HOUR), _RATE)),)),),
    (
        Sweep(
            "servers of 64 machines",
            {"PS": _BY_SERVERS},
            at(HOUR),
            f"test accuracy (%) at {HOUR:g} s",
        ),
        Against(SECONDS),
    ),
    (
        BestOf("PS[48+16]", _group(lines.ALLOCATIONS), at(HOUR), "64 machines"),
        Exceeds(lines.ps(48, 16), lines.ps(60, 4), at(HOUR), "is above"),
        Exceeds(lines.ps(48, 16), lines.ps(44, 20), at(HOUR), "is above"),
    ),
    caption=CAPTION,
)
_OF_SIZES = {str(count): lines.of_machines(count) for count in lines.MACHINES}
BY_RATIO: dict[str, Points] = {
    ratio: {count: lines.of_machines(count)[ratio] for count in lines.MACHINES}
    for ratio in lines.RATIOS
}
_HARDWARE = {
    "m4.xlarge": _group(lines.HARDWARE),
    f"c4.2xlarge, T = {lines.FASTER}": _group(lines.HARDWARE, lines.FASTER),
}
_WORKLOADS = {
    "low resolution": _group(lines.WORKLOADS),
    f"high resolution, T = {lines.HEAVIER}": _group(lines.WORKLOADS, lines.HEAVIER),
}


def _accuracy(line: Line, _: Lines) -> str:
    return of_reaching(at(HOUR)(line))


def _grid(heading: str, groups: dict[str, dict[str, str]]) -> Grid:
    """Return the table of groups: a row for each, a column for each line within it."""
    titles = tuple(next(iter(groups.values())))
    return Grid(
        heading, titles, {name: tuple(one.values()) for name, one in groups.items()}, _accuracy
    )


FIG3 = Part(
    "fig3",
    "Fig. 3: the best allocation changes with the cluster, the hardware and the workload",
    "Validation accuracy after one hour: (a) of one server to 8, 4 and 3 machines, on 16, 32 and "
    "64 machines: best are 8:1, 4:1 and 4:1; (b) on slower and faster machines: 16 and 18 servers; "
    "(c) of images of 100 and of 200 pixels: PS[48+16] and PS[60+4]. Here faster machines and larger "
    f"images are other times T of a gradient than {lines.USUAL}, and the images are the same.",
    lines.FIG3,
    (
        Section(
            f"Accuracy at {HOUR:g} s, %",
            (
                _grid("machines", _OF_SIZES),
                _grid("hardware", _HARDWARE),
                _grid("workload", _WORKLOADS),
            ),
        ),
    ),
    (Sweep("machines", BY_RATIO, at(HOUR), f"test accuracy (%) at {HOUR:g} s"),),
    (
        *(
            BestOf(best, lines.of_machines(count), at(HOUR), f"{count} machines")
            for count, best in zip(lines.MACHINES, ("8:1", "4:1", "4:1"), strict=True)
        ),
        BestChanges(_OF_SIZES, at(HOUR), "the best ratio changes with the cluster's size"),
        *(
            BestOf(best, group, at(HOUR), title)
            for best, (title, group) in zip(
                ("PS[48+16]", "PS[46+18]"), _HARDWARE.items(), strict=True
            )
        ),
        BestChanges(_HARDWARE, at(HOUR), "the best allocation changes with the hardware"),
        *(
            BestOf(best, group, at(HOUR), title)
            for best, (title, group) in zip(
                ("PS[48+16]", "PS[60+4]"), _WORKLOADS.items(), strict=True
            )
        ),
        BestChanges(_WORKLOADS, at(HOUR), "the best allocation changes with the workload"),
    ),
    caption="Points are means over seeds, bars deviations.",
)
FIG4 = Part(
    "fig4",
    "Fig. 4: co-located servers",
    "Accuracy after one hour on 32 machines with a worker and a server each, by the memory that "
    "servers are given: 3 of 15 GB are best (31 %), equal parts worst (25 %). **Memory has no such "
    "effect here**: a process has what it needs, or is killed. In place of memory, what is shared "
    "here is the machines: 2, 4, 8 or all of 16 have a server besides their worker.",
    lines.FIG4,
    (Section("Accuracy", (LineTable("", (accuracy_at(HOUR), _RATE)),)),),
    (
        Sweep(
            "machines of 16 with a server",
            {"PS": {servers: lines.ps(workers, servers) for workers, servers in lines.CO_LOCATED}},
            at(HOUR),
            f"test accuracy (%) at {HOUR:g} s",
        ),
    ),
    (
        Ascending(
            (lines.ps(16, 16), lines.ps(16, 4)),
            at(HOUR),
            "a server on every machine is worse than one on a quarter of them, as equal parts are "
            "worse than a fifth",
        ),
    ),
    caption="Points are means over seeds, bars deviations.",
)
