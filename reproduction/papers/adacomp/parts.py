"""AdaComp's figures and table: what is shown of each, and what the paper says of it."""

from reproduction.claims import Cheaper, Claim, Exceeds, FallsShort, Near, Within, descending
from reproduction.drawing import UPDATES, WIRE, Against
from reproduction.measures import Averaged, Line, Target
from reproduction.paper import Part, Section
from reproduction.papers.adacomp import lines
from reproduction.papers.adacomp.baseline import pickled_ingress
from reproduction.papers.adacomp.claims import FasterEarly, NotLinearInIngress, WiderLead
from reproduction.series import Series
from reproduction.tables import (
    CRASHED,
    PUBLISHED,
    ClassTable,
    Column,
    LineTable,
    Table,
    difference,
    greatest,
    reached,
    share_of,
    spent,
    total,
)

WINDOW = 5
"""Evaluations in a moving average: the paper plots averages over a window that it does not state."""
GOAL = Target(97.0)
"""§V-C: the accuracy at which ingress is compared."""
RATIO = 191.0
"""§V-C: the factor by which AdaComp's ingress at 97 %, c = 0.01, is less than ASGD's."""
WITHIN = 0.5
"""Points of accuracy by which a reproduction may differ from the paper."""

_ACCURACY = Section(
    "Accuracy",
    (
        LineTable(
            "final accuracy, %",
            (
                PUBLISHED,
                greatest("ours: mean (min–max)"),
                difference(),
                greatest(f"of the moving average of {WINDOW}", WINDOW),
                difference(WINDOW),
            ),
        ),
    ),
    "Final accuracy is the mean over runs of the greatest that each reached, as in the paper.",
)


def _to_goal(heading: str, window: int, *more: Column) -> Table:
    """Make a table of what the goal costs, with ``more`` columns for single evaluations."""
    single = (spent("payload_bytes", GOAL),) if window == 1 else ()
    columns = (
        reached(GOAL, window),
        spent("iteration", GOAL, window),
        *single,
        spent("wire_bytes", GOAL, window),
        share_of("asgd", "÷ ASGD, float32", GOAL, window),
        *more,
    )
    return LineTable(heading, columns)


_INGRESS = Section(
    "Ingress",
    (
        _to_goal(
            f"to {GOAL}",
            1,
            share_of(
                "asgd",
                "÷ ASGD as pickled floats (modelled)",
                GOAL,
                of=lambda at: pickled_ingress(at.iteration),
            ),
        ),
        _to_goal(f"to {GOAL} on the moving average of {WINDOW}", WINDOW),
        LineTable(
            "all of the run", (total("iteration"), total("payload_bytes"), total("wire_bytes"))
        ),
    ),
)
_CAPTION = (
    f"Moving averages of {WINDOW} evaluations; lines are means over seeds, bands go from the least to "
    "the greatest."
)
_CHEAPER = (
    f"AdaComp, c = 0.01, reaches {GOAL} with at least {RATIO:g} times fewer wire bytes than ASGD "
)
_ORDER_OF_FIG3: tuple[Claim, ...] = (
    *descending("adacomp-0.1", "adacomp-0.01", "asgd", "comp-asgd-0.1", "comp-asgd-0.01"),
    Exceeds("adacomp-0.1", "asgd"),
    Exceeds("adacomp-0.1", "comp-asgd-0.1"),
    Exceeds("adacomp-0.01", "comp-asgd-0.01"),
    FallsShort("comp-asgd-0.1", GOAL),
    FallsShort("comp-asgd-0.01", GOAL),
    Cheaper(_CHEAPER + "with float32", "adacomp-0.01", "asgd", GOAL, "wire_bytes", RATIO),
    Cheaper(
        f"the same on moving averages of {WINDOW} evaluations: the paper's figure shows averages",
        "adacomp-0.01",
        "asgd",
        GOAL,
        "wire_bytes",
        RATIO,
        WINDOW,
    ),
)
_FIGURE3 = (
    Against(UPDATES, WINDOW, target=GOAL),
    Against(WIRE, WINDOW, logarithmic=True, target=GOAL),
)


def _near(series: tuple[Series, ...]) -> tuple[Claim, ...]:
    """Return the claims about final accuracies; for c = 0.001 the paper gives those of 0.01."""
    return tuple(
        Near(one.name, one.accuracy, WITHIN)
        for one in series
        if one.accuracy is not None and not one.name.endswith("-0.001")
    )


def _like_fig3(
    name: str,
    title: str,
    shows: str,
    series: tuple[Series, ...],
    claims: tuple[Claim, ...] = _ORDER_OF_FIG3,
) -> Part:
    sections = (_ACCURACY, _INGRESS)
    return Part(name, title, shows, series, sections, _FIGURE3, claims, _near(series), _CAPTION)


def _pickled(averaged: Averaged) -> float:
    """Return the paper's bytes for the same pushes, in ours."""
    updates, wire = (float(averaged.costs[name][-1]) for name in ("iteration", "wire_bytes"))
    return pickled_ingress(updates) / wire


FIG1 = Part(
    "fig1",
    "Fig. 1: what ASGD's accuracy costs in ingress",
    "Accuracy (%) against the ingress traffic (GB) that the parameter server received, 200 workers.",
    lines.FIG1,
    (_ACCURACY, _INGRESS),
    (Against(WIRE, WINDOW, above=("the same pushes as pickled floats, modelled (GB)", _pickled)),),
    (NotLinearInIngress("asgd", WINDOW),),
    _near(lines.FIG1),
    _CAPTION,
)
FIG3 = _like_fig3(
    "fig3",
    "Fig. 3: ASGD, Comp-ASGD and AdaComp",
    "Left: accuracy (%) against iterations, 0 to 250,000. Right: accuracy against ingress traffic "
    "(GB, logarithmic). Lines are means over three runs, bands go from the least to the greatest, both "
    "of moving averages.",
    lines.FIG3,
)
EVEN = _like_fig3(
    "fig3-even",
    "Variant of Fig. 3: α = 0.1",
    "The same as Fig. 3. The paper gives no value of the learning rate α: 0.1 is the default of its "
    "authors' published code.",
    lines.lines_of_fig3("fig3-even"),
)
WIDE = _like_fig3(
    "fig3-wide",
    "Variant of Fig. 3: α = 0.1, and waiting times from 0 on",
    "The same as Fig. 3. The paper gives neither law nor mean of the waiting times.",
    lines.lines_of_fig3("fig3-wide"),
)
PER_TENSOR = _like_fig3(
    "fig3-per-tensor",
    "Variant of Fig. 3: Comp-ASGD that selects per tensor",
    "The lines of Comp-ASGD in Fig. 3. The paper does not say that it selects per tensor.",
    lines.PER_TENSOR,
    tuple(FallsShort(one.name, GOAL) for one in lines.PER_TENSOR),
)
SELECTION = Part(
    "selection",
    "§III-B and §V-C: random selection, and lower c",
    "No figure. §V-C says that with AdaComp c = 0.001 and 0.0001 result in degraded accuracy, by its "
    "technical report. §III-B says that Comp-ASGD's selection, random or of the largest, reduces the "
    "size of updates, but at the cost of accuracy.",
    lines.SELECTION,
    (_ACCURACY, _INGRESS),
    _FIGURE3,
    (
        Exceeds("adacomp-0.01", "adacomp-0.001"),
        Exceeds("adacomp-0.01", "adacomp-0.0001"),
        Exceeds("asgd", "comp-asgd-0.01"),
        Exceeds("asgd", "comp-asgd-random"),
    ),
    caption=_CAPTION,
)


def _costs_little(images: str) -> Claim:
    return Within(
        f"{images}-crashes",
        images,
        WITHIN,
        f"crashes cost at most {WITHIN:g} points with {images[:2]},000 images",
        Line.greatest,
    )


TABLE2 = Part(
    "table2",
    "Table II: AdaComp, c = 0.01, and workers that crash",
    "The greatest accuracy reached by the perceptron, with and without half of the workers crashing "
    "during the experiment.",
    lines.TABLE2,
    (_ACCURACY, Section("Crashes", (LineTable("", (CRASHED,)),))),
    (Against(UPDATES, WINDOW),),
    (*descending(*(one.name for one in lines.TABLE2)), *map(_costs_little, ("60000", "12000"))),
    _near(lines.TABLE2),
    _CAPTION,
)


def _claims_of_fig4(ratio: str) -> tuple[Claim, ...]:
    large, small = (
        (f"{images}-one-{ratio}", f"{images}-three-{ratio}") for images in ("60000", "12000")
    )
    return (
        Exceeds(*large),
        Exceeds(*small),
        Exceeds(large[0], small[0]),
        WiderLead(large, small, ratio),
        FasterEarly(large[1], large[0], WINDOW),
    )


def _panel_of_fig4(images: str) -> Against:
    """Make one of the two panels; a kind of line has one colour in both."""
    kinds = [(classes, ratio) for ratio in ("0.01", "0.001") for classes in ("one", "three")]
    curves = {
        f"{images}-{classes}-{ratio}": f"{classes} class{'es' * (classes != 'one')}, c = {ratio}"
        for classes, ratio in kinds
    }
    return Against(UPDATES, WINDOW, curves, title=f"{images[:2]},000 images")


FIG4 = Part(
    "fig4",
    "Fig. 4: one class of workers and three",
    "Accuracy (%) against iterations with one class of workers and with three, on the large training "
    "set (60,000 images) and on the reduced one (12,000).",
    lines.FIG4,
    (_ACCURACY, Section("Updates by class", (ClassTable(),))),
    (_panel_of_fig4("60000"), _panel_of_fig4("12000")),
    (*_claims_of_fig4("0.01"), *_claims_of_fig4("0.001")),
    _near(lines.FIG4),
    _CAPTION,
)
PARTS = (FIG1, FIG3, EVEN, WIDE, PER_TENSOR, SELECTION, TABLE2, FIG4)
