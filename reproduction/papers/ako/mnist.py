"""Fig. 8 and Table 1: MNIST on 2, 4 and 8 machines, and both rows of the times to a target."""

from reproduction.claims import Claim, Exceeds
from reproduction.drawing import SECONDS, Against, Sweep
from reproduction.measures import Line, Lines, Target
from reproduction.paper import Part, Section
from reproduction.papers.ako import lines
from reproduction.papers.ako.claims import Ascending, Factor, OneIsFaster, at
from reproduction.papers.ako.scales import MNIST_SECONDS, WALL_SECONDS
from reproduction.races import AtLeastAsFast, TimesFaster
from reproduction.series import Series
from reproduction.tables import Column, Grid, LineTable, of_reaching, reached, seconds_to, spent
from testbed.number_text import UNKNOWN

MNIST = Target(95.0)
"""The test accuracy to reach on MNIST; the paper's is 99 %."""
FASHION = Target(60.0)
"""The test accuracy to reach on Fashion-MNIST; the paper's is 30 % of 100 classes of ImageNet."""
CAPTION = "Lines are means over seeds at equal times, bands go from the least to the greatest."
HALF = MNIST_SECONDS / 2


def accuracy_at(seconds: float) -> Column:
    """Return the column of the accuracies at a moment: mean and deviation over the seeds."""

    def cell(line: Line, _: Lines) -> str:
        return of_reaching(at(seconds)(line))

    return Column(f"accuracy at {seconds:g} s, %", cell)


def times(target: Target, *more: Column) -> Section:
    """Return the section of the times to a target."""
    columns = (reached(target), seconds_to(target), spent("iteration", target), *more)
    return Section("Time to the target", (LineTable("", columns),))


def curves(series: tuple[Series, ...], names: tuple[str, ...]) -> dict[str, str]:
    """Return some lines as curves, without the number of machines in their titles."""
    titles = {one.name: one.title.split(", n =")[0].split(", virtual")[0] for one in series}
    return {name: titles[name] for name in names}


_EIGHT = ("ako-8", "all-to-all-8", "ps-7+1", "ps-6+2", "tf-6+2")
SERVERS = ("ps-7+1", "ps-6+2")
_TENSORFLOW = ("ps-7+1", "tf-6+2")
"""With one server TF[7+1] is PS[7+1]."""
_TENSORFLOW_OF_64 = ("tf-62+2", "tf-60+4")
_GROUPS: dict[str, dict[float, str]] = {
    "Ako": {2: "ako-2", 4: "ako-4", 8: "ako-8"},
    "All-to-All": {2: "all-to-all-2", 4: "all-to-all-4", 8: "all-to-all-8"},
    "PS[w+1]": {2: "ps-1+1", 4: "ps-3+1", 8: "ps-7+1"},
}


def on_eight(ako: str, all_to_all: str, moment: float, where: str = "") -> tuple[Claim, ...]:
    """Return what Fig. 8 says of eight machines.

    Args:
        ako, all_to_all: the lines of these two.
        moment: the seconds after which the two are compared.
        where: begins the texts.
    """
    best = "the best of PS[7+1] and PS[6+2]"
    return (
        AtLeastAsFast(ako, SERVERS, MNIST, f"{where}Ako reaches {MNIST} no later than {best}"),
        OneIsFaster(SERVERS, all_to_all, MNIST, f"{where}{best} reaches {MNIST} before All-to-All"),
        AtLeastAsFast(
            "ps-7+1", ("ps-6+2",), MNIST, f"{where}PS* is PS[7+1]: PS[6+2] reaches {MNIST} later"
        ),
        AtLeastAsFast(
            ako, _TENSORFLOW, MNIST, f"{where}Ako reaches {MNIST} before TF[7+1] and TF[6+2]"
        ),
        Exceeds(ako, all_to_all, at(moment), f"at {moment:g} s is above"),
    )


FIG8 = Part(
    "fig8",
    "Fig. 8: convergence with different cluster sizes, MNIST",
    "(a) validation accuracy after 10 minutes on 2, 4 and 8 machines, (b) over 20 minutes on 8 "
    f"machines, (c) beside TensorFlow. Here 20 minutes are {MNIST_SECONDS:g} s of the virtual clock. "
    "Ako and PS* converge alike, All-to-All and TF[7+1] and TF[6+2] more slowly; PS* is PS[7+1]. "
    "With one server TF[7+1] is PS[7+1].",
    lines.OF_MNIST,
    (
        Section(
            f"Accuracy at {HALF:g} s, %",
            (Grid.of(_GROUPS, "machines", lambda line, _: of_reaching(at(HALF)(line))),),
        ),
        times(MNIST, accuracy_at(MNIST_SECONDS)),
    ),
    (
        Sweep("machines", _GROUPS, at(HALF), f"test accuracy (%) at {HALF:g} s"),
        Against(SECONDS, curves=curves(lines.OF_MNIST, _EIGHT), target=MNIST, title="8 machines"),
    ),
    (
        *on_eight("ako-8", "all-to-all-8", HALF, "8 machines: "),
        *(
            Ascending(
                tuple(names.values()),
                at(HALF),
                f"{title} is the more accurate at {HALF:g} s the more machines there are",
            )
            for title, names in _GROUPS.items()
            if title == "Ako"
        ),
    ),
    caption=CAPTION,
)
_OF_FASHION = tuple(
    one
    for one in lines.FIG10
    if one.name in ("ako-64", "all-to-all-64", "ps-48+16", *_TENSORFLOW_OF_64)
)
_RENAMED = tuple(one for one in lines.OF_MNIST if one.name in _EIGHT)
TABLE1 = Part(
    "table1",
    "Table 1: time to a target accuracy",
    "MNIST, 99 %, 8 machines: TensorFlow more than 20 min, All-to-All 14 min, Ako 7 min. "
    "ImageNet, 30 %, 64 machines: 3.3 h, more than 4 h, 1.5 h. "
    f"Here MNIST to {MNIST} and Fashion-MNIST to {FASHION}, in seconds of the virtual clock; the "
    "factors are compared, since the hardware differs.",
    (*_RENAMED, *_OF_FASHION),
    (
        Section(
            "Seconds to the target",
            (
                LineTable(
                    "",
                    (
                        Column(
                            f"MNIST, {MNIST}",
                            lambda line, lines: _of(line, lines, "mnist", MNIST),
                        ),
                        Column(
                            f"Fashion-MNIST, {FASHION}",
                            lambda line, lines: _of(line, lines, "fashion-mnist", FASHION),
                        ),
                    ),
                ),
            ),
        ),
    ),
    claims=(
        TimesFaster(
            "ako-8",
            ("all-to-all-8",),
            MNIST,
            2,
            f"MNIST: Ako is 2 times faster to {MNIST} than All-to-All",
        ),
        TimesFaster(
            "ako-8",
            _TENSORFLOW,
            MNIST,
            20 / 7,
            f"MNIST: Ako is at least 2.9 times faster to {MNIST} than TF[7+1] and TF[6+2]",
            at_least=True,
        ),
        TimesFaster(
            "ako-64",
            ("all-to-all-64",),
            FASHION,
            4 / 1.5,
            f"64 machines: Ako is at least 2.7 times faster to {FASHION} than All-to-All",
            at_least=True,
        ),
        TimesFaster(
            "ako-64",
            _TENSORFLOW_OF_64,
            FASHION,
            3.3 / 1.5,
            f"64 machines: Ako is 2.2 times faster to {FASHION} than TF[62+2] and TF[60+4]",
        ),
    ),
)


def _of(line: Line, lines: Lines, dataset: str, target: Target) -> str:
    """Return a line's seconds to a target, if its runs are of the dataset."""
    here = bool(line.runs) and line.runs[0].spec.dataset.name == dataset
    return seconds_to(target).cell(line, lines) if here else UNKNOWN


_MOMENT = WALL_SECONDS
EARLY = Target(85.0)
"""The accuracy to reach in a minute or two of real time."""
_MEASURED = ("ako", "all-to-all", "ps-7+1", "ps-6+2")
MEASURED = Part(
    "fig8-wall",
    "Fig. 8 in namespaces, under the wall clock",
    "Fig. 8 (b). Here on links that the kernel shapes, in real time, of 48 Mbit/s and with 0.5 s "
    "for a gradient: five times slower than in Fig. 8; and the virtual clock's answer beside it.",
    lines.ON_WALL,
    (times(EARLY, accuracy_at(_MOMENT)),),
    (
        Against(SECONDS, curves=curves(lines.ON_WALL, _MEASURED), target=EARLY, title="measured"),
        Against(
            SECONDS,
            curves=curves(lines.ON_WALL, tuple(f"{name}-virtual" for name in _MEASURED)),
            target=EARLY,
            title="virtual clock",
        ),
    ),
    (
        AtLeastAsFast(
            "ako",
            SERVERS,
            EARLY,
            f"Ako reaches {EARLY} no later than the best of PS[7+1] and PS[6+2]",
        ),
        TimesFaster(
            "ako", ("all-to-all",), EARLY, 2, f"Ako is 2 times faster to {EARLY} than All-to-All"
        ),
        Exceeds("ako", "all-to-all", at(_MOMENT), f"at {_MOMENT:g} s is above"),
        *(
            Factor(
                name,
                f"{name}-virtual",
                lambda line: line.seconds_to(EARLY),
                1,
                f"{title}: the wall clock's seconds to {EARLY} are the virtual clock's",
            )
            for name, title in zip(
                _MEASURED, ("Ako", "All-to-All", "PS[7+1]", "PS[6+2]"), strict=True
            )
        ),
    ),
    caption=CAPTION,
)
