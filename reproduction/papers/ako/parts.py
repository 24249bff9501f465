"""Ako's figures of ImageNet, in whose place is Fashion-MNIST, and what the paper says of them."""

from typing import TypeAlias

from reproduction.claims import Exceeds
from reproduction.drawing import SECONDS, UPDATES, Against, Curve, Sweep
from reproduction.measures import Line, Lines, Target
from reproduction.paper import Part, Section
from reproduction.papers.ako import lines
from reproduction.papers.ako.claims import (
    Ascending,
    BestChanges,
    BestOf,
    ComputesLonger,
    Factor,
    FollowsPrediction,
    Measure,
    at,
    bandwidth,
    computing_seconds,
    epoch_seconds,
    epochs_to,
    predicted,
    synchronising_seconds,
    updates_per_second,
)
from reproduction.papers.ako.mnist import (
    CAPTION,
    FASHION,
    FIG8,
    TABLE1,
    accuracy_at,
    curves,
    spread,
    times,
)
from reproduction.papers.ako.panels import Usage
from reproduction.papers.ako.scales import HOUR, LENGTH
from reproduction.races import AtLeastAsFast
from reproduction.tables import Column, Grid, LineTable
from testbed.quantities import UNKNOWN

Points: TypeAlias = dict[float, str]
"""The lines of a curve by their values on the x axis."""
_GOALS = (Target(20.0), Target(40.0), FASHION)
"""The accuracies of Fig. 10b; the paper's are 5, 10 and 20 %."""


def _ps(workers: int, servers: int, mean: str = lines.USUAL) -> dict[str, str]:
    """Return the name of a line of parameter servers by its title within a group."""
    return {f"PS[{workers}+{servers}]": lines.ps(workers, servers, mean)}


def _group(allocations: tuple[tuple[int, int], ...], mean: str = lines.USUAL) -> dict[str, str]:
    return {title: name for one in allocations for title, name in _ps(*one, mean).items()}


def _measured(heading: str, measure: Measure) -> Column:
    return Column(heading, lambda line, _: spread(measure(line)))


_RATE = _measured("updates in a second", updates_per_second)
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
        Exceeds(lines.ps(48, 16), lines.ps(60, 4), at(HOUR), "is above", True),
        Exceeds(lines.ps(48, 16), lines.ps(44, 20), at(HOUR), "is above", True),
    ),
    caption=CAPTION,
)
_OF_SIZES = {str(count): lines.of_machines(count) for count in lines.MACHINES}
_BY_RATIO: dict[str, Points] = {
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
    return spread(at(HOUR)(line))


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
    "64 "
    "machines: best are 8:1, 4:1 and 4:1; (b) on slower and faster machines: 16 and 18 servers; "
    "(c) of "
    "images of 100 and of 200 pixels: PS[48+16] and PS[60+4]. Here faster machines and larger "
    "images are "
    f"other times T of a gradient than {lines.USUAL}, and the images are the same.",
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
    (Sweep("machines", _BY_RATIO, at(HOUR), f"test accuracy (%) at {HOUR:g} s"),),
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
_BY_SIZE: dict[str, Points] = {
    "Ako": {n: f"ako-{n}" for n in lines.MACHINES},
    "All-to-All": {n: f"all-to-all-{n}" for n in lines.MACHINES},
    "PS, 4:1": _BY_RATIO["4:1"],
}
_OF_64 = ("ako-64", "all-to-all-64", "ps-48+16", "ps-56+8")
FIG9 = Part(
    "fig9",
    "Fig. 9: convergence with different cluster sizes",
    "(a) validation accuracy after two hours on 16, 32 and 64 machines, ImageNet; (b) over time "
    "on 64: Ako "
    "before PS*[48+16], PS[56+8] and the co-located PS[64+64]; (c) Ako on 16, 32 and 64. Here "
    "two hours are "
    f"{LENGTH:g} s of the virtual clock.",
    lines.FIG9,
    (
        Section(
            f"Accuracy at {LENGTH:g} s, %",
            (Grid.of(_BY_SIZE, "machines", lambda line, _: spread(at(LENGTH)(line))),),
        ),
        times(FASHION, accuracy_at(LENGTH)),
    ),
    (
        Sweep("machines", _BY_SIZE, at(LENGTH), f"test accuracy (%) at {LENGTH:g} s"),
        Against(SECONDS, curves=curves(lines.FIG9, _OF_64), title="64 machines", target=FASHION),
        Against(
            SECONDS,
            curves={
                f"ako-{n}": Curve(f"Ako, n = {n}", 5 - i) for i, n in enumerate(lines.MACHINES)
            },
            title="Ako",
            y_label=False,
        ),
    ),
    (
        *(
            Exceeds(f"ako-{n}", lines.of_machines(n)["4:1"], at(LENGTH), "is above", True)
            for n in (32, 64)
        ),
        AtLeastAsFast(
            "ako-64",
            ("ps-48+16", "ps-56+8", "ps-43+21"),
            FASHION,
            f"64 machines: Ako reaches {FASHION} before the best PS allocation",
        ),
        AtLeastAsFast(
            "ps-48+16",
            ("all-to-all-64",),
            FASHION,
            f"64 machines: PS[48+16] reaches {FASHION} before All-to-All",
        ),
        Exceeds("ps-12+4", "ps-16+16", at(LENGTH), "is above the co-located", True),
        Exceeds("ps-48+16", "ps-56+8", at(LENGTH), "is above", True),
        *(
            Ascending(
                tuple(names.values()),
                at(LENGTH),
                f"with more machines {title} is more accurate after {LENGTH:g} s",
            )
            for title, names in _BY_SIZE.items()
            if title != "All-to-All"
        ),
    ),
    caption=CAPTION,
)


FIG10 = Part(
    "fig10",
    "Fig. 10: statistical and hardware efficiency on 64 machines",
    "(a) Ako beside TensorFlow; (b) epochs to 5, 10 and 20 % accuracy: PS*[48+16] and PS[64+64] "
    "need the "
    "fewest, Ako more, PS[56+8] as many as All-to-All, the most; (c) the time of an epoch, of "
    "which most is "
    "computing but in All-to-All: Ako's is the shortest, All-to-All's the longest, and PS*'s "
    "computing "
    "alone longer than all of Ako's.",
    lines.FIG10,
    (
        Section(
            "Epochs to an accuracy",
            (LineTable("", tuple(_measured(f"to {goal}", epochs_to(goal)) for goal in _GOALS)),),
            "An epoch is as many gradients of all machines as take 60,000 images; infinite: not "
            "reached.",
        ),
        Section(
            "Seconds of an epoch",
            (
                LineTable(
                    "",
                    (
                        _measured("in all", epoch_seconds),
                        _measured("computing", computing_seconds),
                        _measured("synchronising", synchronising_seconds),
                    ),
                ),
            ),
        ),
    ),
    (
        Against(SECONDS, curves=curves(lines.FIG10, _OF_64), target=FASHION),
        Against(UPDATES, curves=curves(lines.FIG10, _OF_64), target=FASHION, y_label=False),
    ),
    (
        *(
            Ascending(
                ("ps-48+16", "ako-64", "all-to-all-64"),
                epochs_to(goal),
                f"to {goal} PS* needs the fewest epochs, Ako more, All-to-All the most",
                ".3f",
            )
            for goal in _GOALS
        ),
        Ascending(
            ("ako-64", "ps-48+16", "all-to-all-64"),
            epoch_seconds,
            "an epoch of Ako is the shortest, then PS*; All-to-All's is the longest",
            ".1f",
        ),
        ComputesLonger("ps-48+16", "ako-64"),
    ),
    caption=CAPTION,
)
_BY_P: Points = {p: f"ako-{p}" for p in lines.PARTITIONS}
FIG12 = Part(
    "fig12",
    "Fig. 12: the number of partitions on 16 machines",
    "(a) validation accuracy by p: best at the p = 3 of equation (3); (b) the workers' use of "
    "the network, "
    "measured beside predicted: close, but for p = 2, whose prediction is more than the link "
    "carries.",
    lines.FIG12,
    (
        Section(
            "Accuracy and use of the network",
            (
                LineTable(
                    "",
                    (
                        accuracy_at(HOUR),
                        accuracy_at(LENGTH),
                        _measured("measured, Mbit/s", bandwidth),
                        Column("predicted, Mbit/s", lambda line, _: _prediction(line)),
                    ),
                ),
            ),
            "Measured is the payload that a peer receives, in the mean of all; predicted is "
            "γ·m·(n − 1)/p.",
        ),
    ),
    (
        Sweep("partitions p", {"Ako": _BY_P}, at(LENGTH), f"test accuracy (%) at {LENGTH:g} s"),
        Usage(_BY_P),
    ),
    (
        BestOf("3", {str(p): name for p, name in _BY_P.items()}, at(LENGTH), "p, by accuracy"),
        FollowsPrediction(_BY_P, 0.1, exceeds=False),
        FollowsPrediction(_BY_P, 0.1, exceeds=True),
    ),
    caption="Points are means over seeds, bars deviations; the thin line is the rate of a link.",
)


def _prediction(line: Line) -> str:
    p = int(str(line.series.values["algorithms.partitions"]))
    return f"{predicted(line.runs[0].spec, p):.0f}" if line.runs else UNKNOWN


FIG13 = Part(
    "fig13",
    "Fig. 13: the benefit of gradient accumulation",
    "Validation accuracy over time of Ako with and without accumulation, 8 machines: nearly 40 % "
    "and about "
    "20 % at best. The paper does not give p: here it is 3, by equation (3) at the links of Fig. "
    "9, and 20.",
    lines.FIG13,
    (Section("Accuracy", (LineTable("", (accuracy_at(HOUR), accuracy_at(LENGTH))),)),),
    (Against(SECONDS),),
    (
        Exceeds("with", "without", at(LENGTH), "is above", True),
        Exceeds("with-20", "without-20", at(LENGTH), "is above", True),
        Factor(
            "with",
            "without",
            Line.greatest,
            2,
            "p by (3): the best accuracy with accumulation is twice that without",
        ),
        Factor(
            "with-20",
            "without-20",
            Line.greatest,
            2,
            "p = 20: the best accuracy with accumulation is twice that without",
        ),
    ),
    caption=CAPTION,
)
PARTS = (FIG2, FIG3, FIG4, FIG8, FIG9, FIG10, FIG12, FIG13, TABLE1)
