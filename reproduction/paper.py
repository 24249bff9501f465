"""The paper's figures and table, and the experiment file and algorithm of each of their lines.

Hardy, Le Merrer, Sericola: *Distributed deep learning on edge-devices: feasibility via adaptive
compression*, IEEE NCA 2017. Numbers are those of its §V; accuracies are in percent.
"""

from dataclasses import dataclass, replace
from pathlib import Path

EXPERIMENTS = Path(__file__).parents[1] / "experiments" / "adacomp"
SEEDS = (1, 2, 3)
"""§V-C: every experiment was run 3 times."""
GOAL = 97.0
"""§V-C: the accuracy at which ingress is compared."""
GOAL_BYTES = 1.33e9
"""§V-C: AdaComp's ingress at 97 %, c = 0.01."""
GOAL_RATIO = 191.0
"""§V-C: the factor by which that is less than ASGD's."""
WITHIN = 0.5
"""Points of accuracy by which a reproduction may differ from the paper."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a figure, or one row of the table.

    Attributes:
        name: name in file names and on the command line, e.g. ``asgd``.
        title: name in figures and tables.
        file: name of the experiment file, without its suffix.
        label: label of the algorithm in that file.
        accuracy: the paper's final accuracy, percent; None where it gives none.
    """

    name: str
    title: str
    file: str
    label: str
    accuracy: float | None

    @property
    def path(self) -> Path:
        """The experiment file."""
        return EXPERIMENTS / f"{self.file}.yaml"


@dataclass(frozen=True, slots=True)
class Part:
    """A figure or the table.

    Attributes:
        name: ``fig1`` and so on, in the make target, on the command line and of the page.
        title: heading of the page.
        shows: sentences that describe the paper's own figure or table.
        series: its lines or rows, in the paper's order.
        compares_ingress: True if its lines are compared by the bytes that they cost.
    """

    name: str
    title: str
    shows: str
    series: tuple[Series, ...]
    compares_ingress: bool = True


ASGD = Series("asgd", "ASGD", "fig3", "asgd", 97.85)
ADACOMP = Series("adacomp-0.01", "AdaComp, c = 0.01", "fig3", "adacomp-0.01", 98.59)

FIG1 = Part(
    "fig1",
    "Fig. 1: what ASGD's accuracy costs in ingress",
    "Accuracy (%) against the ingress traffic (GB) that the parameter server received, 200 workers.",
    (Series("asgd", "ASGD", "fig1", "asgd", 97.85),),
)
FIG3 = Part(
    "fig3",
    "Fig. 3: ASGD, Comp-ASGD and AdaComp",
    "Left: accuracy (%) against iterations, 0 to 250,000. Right: accuracy against ingress traffic "
    "(GB, logarithmic). Lines are means over three runs, bands go from the least to the greatest, both "
    "of moving averages.",
    (
        ASGD,
        Series("comp-asgd-0.1", "Comp-ASGD, c = 0.1", "fig3", "comp-asgd-0.1", 96.07),
        Series("comp-asgd-0.01", "Comp-ASGD, c = 0.01", "fig3", "comp-asgd-0.01", 95.11),
        Series("adacomp-0.1", "AdaComp, c = 0.1", "fig3", "adacomp-0.1", 98.7),
        ADACOMP,
    ),
)
PER_TENSOR = Part(
    "fig3-per-tensor",
    "Beside Fig. 3: Comp-ASGD that selects per tensor",
    "The lines of Comp-ASGD in Fig. 3. That these were made so the paper does not say.",
    tuple(
        Series(
            f"comp-asgd-{ratio}-per-tensor{suffix}",
            f"Comp-ASGD per tensor, c = {ratio}{said}",
            f"fig3-per-tensor{suffix}",
            f"comp-asgd-{ratio}",
            accuracy,
        )
        for suffix, said in (("", ""), ("-rate", ", α = 0.03"))
        for ratio, accuracy in (("0.1", 96.07), ("0.01", 95.11))
    ),
)


def _lines_of_fig3(name: str, title: str, shows: str) -> Part:
    """Make a part with Fig. 3's lines from another experiment file, that of the part's name."""
    return Part(name, title, shows, tuple(replace(one, file=name) for one in FIG3.series))


EVEN = _lines_of_fig3(
    "fig3-even",
    "Beside Fig. 3: waiting times of which hardly any is short",
    "The same as Fig. 3. Of the waiting times the paper gives neither law nor mean.",
)
RATE = _lines_of_fig3(
    "fig3-rate",
    "Beside Fig. 3: a smaller learning rate",
    "The same as Fig. 3. Of the learning rate α the paper gives no value.",
)
TABLE2 = Part(
    "table2",
    "Table II: AdaComp, c = 0.01, and workers that crash",
    "The greatest accuracy reached by the perceptron, with and without half of the workers crashing "
    "during the experiment.",
    tuple(
        Series(name, title, f"table2-{name}", "adacomp-0.01", accuracy)
        for name, title, accuracy in (
            ("60000", "60,000 images, no crash, n = 200", 97.44),
            ("60000-crashes", "60,000 images, crashes, n = 200", 97.17),
            ("12000", "12,000 images, no crash, n = 200", 95.47),
            ("12000-crashes", "12,000 images, crashes, n = 200", 95.24),
            ("6000", "6,000 images, no crash, n = 100", 94.35),
        )
    ),
    compares_ingress=False,
)
# The text of §V-E says c = 0.001, but §V-C gives 98.59 as the accuracy of c = 0.01.
_FIG4 = {
    ("60000", "one"): 98.59,
    ("60000", "three"): 98.36,
    ("12000", "one"): 97.66,
    ("12000", "three"): 97.0,
}
FIG4 = Part(
    "fig4",
    "Fig. 4: one class of workers and three",
    "Accuracy (%) against iterations with one class of workers and with three, on the large training "
    "set (60,000 images) and on the reduced one (12,000).",
    tuple(
        Series(
            f"{images}-{classes}-{ratio}",
            f"{images[:2]},000 images, {classes} class{'es' * (classes != 'one')}, c = {ratio}",
            f"fig4-{images}-{classes}",
            f"adacomp-{ratio}",
            accuracy,
        )
        for ratio in ("0.01", "0.001")
        for (images, classes), accuracy in _FIG4.items()
    ),
    compares_ingress=False,
)
PARTS = {part.name: part for part in (FIG1, FIG3, EVEN, RATE, PER_TENSOR, TABLE2, FIG4)}
