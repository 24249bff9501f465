"""Ako's other figures of ImageNet, in whose place is Fashion-MNIST."""

from reproduction.claims import Exceeds
from reproduction.drawing import SECONDS, UPDATES, Against, Sweep
from reproduction.measures import Line, Target
from reproduction.paper import Part, Section
from reproduction.papers.ako import lines
from reproduction.papers.ako.accumulation import FIG13, FIG13_NETWORK
from reproduction.papers.ako.allocations import BY_RATIO, FIG2, FIG3, FIG4, Points, measured
from reproduction.papers.ako.claims import (
    Ascending,
    BestOf,
    Between,
    ComputesLonger,
    Factor,
    FollowsPrediction,
    at,
    bandwidth,
    computing_seconds,
    computing_share,
    epoch_seconds,
    epochs_in_all,
    epochs_to,
    predicted,
    processors,
    synchronising_seconds,
    use_of_links,
)
from reproduction.papers.ako.mnist import (
    CAPTION,
    FASHION,
    FIG8,
    TABLE1,
    accuracy_at,
    curves,
    times,
)
from reproduction.papers.ako.networks import FIG8_NETWORK
from reproduction.papers.ako.panels import Traffic, Usage
from reproduction.papers.ako.scales import HOUR, LENGTH, MIDDLE
from reproduction.races import AtLeastAsFast, TimesFaster
from reproduction.tables import Cell, Column, Grid, LineTable, of_reaching, seconds_to
from testbed.number_text import UNKNOWN

_GOALS = (Target(20.0), Target(30.0), Target(40.0))
"""The accuracies of Fig. 10b; the paper's are 5, 10 and 20 %."""
_BY_SIZE: dict[str, Points] = {
    "Ako": {n: f"ako-{n}" for n in lines.MACHINES},
    "All-to-All": {n: f"all-to-all-{n}" for n in lines.MACHINES},
    "PS, 4:1": BY_RATIO["4:1"],
}
_OF_64 = ("ako-64", "all-to-all-64", "ps-48+16", "ps-56+8")
_COMPUTING = {"ako-64": "Ako", "ps-48+16": "PS*[48+16]", "ps-56+8": "PS[56+8]"}
"""The lines that compute for most of an epoch in Fig. 10c."""
_WITH_TENSORFLOW = (*_OF_64, "tf-62+2", "tf-60+4")


def _at(moment: float) -> Cell:
    """Return the cell of an accuracy at a moment."""
    return lambda line, _: of_reaching(at(moment)(line))


FIG9 = Part(
    "fig9",
    "Fig. 9: convergence with different cluster sizes",
    "(a) validation accuracy after two hours on 16, 32 and 64 machines, ImageNet; (b) over time on "
    "64: after an early phase Ako before PS*[48+16], PS[56+8] and the co-located PS[64+64]; (c) Ako "
    f"on 16, 32 and 64. Here after {MIDDLE:g} and {LENGTH:g} s of the virtual clock; co-located "
    "servers are those of 16 machines.",
    lines.FIG9,
    (
        *(
            Section(f"Accuracy at {moment:g} s, %", (Grid.of(_BY_SIZE, "machines", _at(moment)),))
            for moment in (MIDDLE, LENGTH)
        ),
        times(FASHION, seconds_to(_GOALS[-1])),
    ),
    (
        Sweep("machines", _BY_SIZE, at(MIDDLE), f"test accuracy (%) at {MIDDLE:g} s"),
        Against(SECONDS, curves=curves(lines.FIG9, _OF_64), title="64 machines", target=FASHION),
        Against(
            SECONDS,
            curves={f"ako-{n}": f"Ako, n = {n}" for n in lines.MACHINES},
            title="Ako",
        ),
    ),
    (
        *(
            Exceeds(
                f"ako-{n}",
                lines.of_machines(n)["4:1"],
                at(moment),
                f"at {moment:g} s is above",
            )
            for moment in (MIDDLE, LENGTH)
            for n in (32, 64)
        ),
        AtLeastAsFast(
            "ako-64",
            ("ps-48+16", "ps-56+8", "ps-43+21"),
            FASHION,
            f"64 machines: Ako reaches {FASHION} before the best PS allocation",
        ),
        TimesFaster(
            "ako-64",
            ("ps-48+16",),
            FASHION,
            4 / 3,
            f"64 machines: Ako reaches {FASHION} in 25 % less time than PS*[48+16]",
        ),
        AtLeastAsFast(
            "ps-48+16",
            ("all-to-all-64",),
            FASHION,
            f"64 machines: PS[48+16] reaches {FASHION} before All-to-All",
        ),
        Exceeds("ps-12+4", "ps-16+16", at(LENGTH), "is above the co-located"),
        Exceeds("ps-48+16", "ps-56+8", at(LENGTH), "is above"),
        *(
            Ascending(
                tuple(names.values()),
                at(moment),
                f"with more machines {title} is more accurate after {moment:g} s",
            )
            for moment in (MIDDLE, LENGTH)
            for title, names in _BY_SIZE.items()
            if title != "All-to-All"
        ),
    ),
    caption=CAPTION,
)
FIG10 = Part(
    "fig10",
    "Fig. 10: statistical and hardware efficiency on 64 machines",
    "(a) Ako beside TensorFlow, TF[62+2] and TF[60+4]; (b) epochs to 5, 10 and 20 % accuracy: "
    "PS*[48+16] and PS[64+64] need the fewest, Ako more, PS[56+8] as many as All-to-All, the most; "
    "(c) the time of an epoch, of which most is computing but in All-to-All: Ako's is the shortest, "
    "All-to-All's the longest, and PS*'s computing alone longer than all of Ako's.",
    lines.FIG10,
    (
        Section(
            "Epochs to an accuracy",
            (
                LineTable(
                    "epochs",
                    (
                        *(measured(f"to {goal}", epochs_to(goal)) for goal in _GOALS),
                        measured("in all", epochs_in_all),
                    ),
                ),
            ),
            "An epoch is as many gradients of all machines as take 60,000 images.",
        ),
        Section(
            "Seconds of an epoch",
            (
                LineTable(
                    "",
                    (
                        measured("in all", epoch_seconds),
                        measured("computing", computing_seconds),
                        measured("synchronising", synchronising_seconds),
                    ),
                ),
            ),
        ),
    ),
    (
        Against(SECONDS, curves=curves(lines.FIG10, _WITH_TENSORFLOW), target=FASHION),
        Against(UPDATES, curves=curves(lines.FIG10, _WITH_TENSORFLOW), target=FASHION),
    ),
    (
        *(
            Ascending(
                ("ps-48+16", "ako-64", "all-to-all-64"),
                epochs_to(goal),
                f"to {goal} PS* needs the fewest epochs, Ako more, All-to-All the most",
                ".3f",
                "epochs",
                epochs_in_all,
            )
            for goal in _GOALS
        ),
        *(
            Factor(
                "ps-56+8",
                "all-to-all-64",
                epochs_to(goal),
                1,
                f"to {goal} PS[56+8] needs as many epochs as All-to-All, up or down to 1.5 times",
                epochs_in_all,
            )
            for goal in _GOALS
        ),
        Ascending(
            ("ako-64", "ps-48+16", "all-to-all-64"),
            epoch_seconds,
            "an epoch of Ako is the shortest, then PS*; All-to-All's is the longest",
            ".1f",
            "s",
        ),
        ComputesLonger("ps-48+16", "ako-64"),
        *(
            Between(name, computing_share, f"{title} computes for most of an epoch", 50)
            for name, title in _COMPUTING.items()
        ),
        Between(
            "all-to-all-64",
            computing_share,
            "All-to-All does not compute for most of an epoch",
            high=50,
        ),
    ),
    caption=CAPTION,
)
_FULL, _HALF = 80, 50
"""Percent of the links: at least, to fill them; at most, not to."""
_NEAR = 10
"""Points by which a processor's use may differ from the paper's."""
FIG11 = Part(
    "fig11",
    "Fig. 11: the use of links and processors on 16 machines",
    "The use of the network over time: Ako and All-to-All fill it, and All-to-All's peak is the "
    "higher; PS*[12+4] leaves much of it unused. Processors are in use for 87 % (Ako), 84 % (the "
    "workers of PS*) and 85 % (All-to-All), and servers' for 17 %.",
    lines.FIG11,
    (
        Section(
            "Use, % in the mean of all devices",
            (
                LineTable(
                    "",
                    (
                        measured("links", use_of_links),
                        measured("processors of peers and workers", processors),
                    ),
                ),
            ),
        ),
    ),
    (Traffic(),),
    (
        Between("ako", use_of_links, f"Ako fills the links: at least {_FULL} %", _FULL),
        Between("all-to-all", use_of_links, f"All-to-All fills them: at least {_FULL} %", _FULL),
        Between("ps-12+4", use_of_links, f"PS*[12+4] does not: at most {_HALF} %", high=_HALF),
        Ascending(
            ("ako", "all-to-all"), use_of_links, "All-to-All uses more of them than Ako", unit="%"
        ),
        *(
            Between(
                name,
                processors,
                f"{title} uses {paper} % of the processors, up to {_NEAR} points more or less",
                paper - _NEAR,
                paper + _NEAR,
            )
            for name, title, paper in (
                ("ako", "Ako", 87),
                ("ps-12+4", "PS*[12+4]", 84),
                ("all-to-all", "All-to-All", 85),
            )
        ),
    ),
    caption="Lines are means over seeds between two evaluations each; wire bytes that enter all peers, "
    "or all servers: what enters the workers of PS is not in them.",
)
_BY_P: Points = {p: f"ako-{p}" for p in lines.PARTITIONS}
FIG12 = Part(
    "fig12",
    "Fig. 12: the number of partitions on 16 machines",
    "(a) validation accuracy by p: best at the p = 3 of equation (3); (b) the workers' use of the "
    "network, measured beside predicted: close, but for p = 2, whose prediction is more than the "
    "link carries.",
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
                        measured("measured, Mbit/s", bandwidth),
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


PARTS = (
    FIG2,
    FIG3,
    FIG4,
    FIG8,
    FIG8_NETWORK,
    FIG9,
    FIG10,
    FIG11,
    FIG12,
    FIG13,
    FIG13_NETWORK,
    TABLE1,
)
