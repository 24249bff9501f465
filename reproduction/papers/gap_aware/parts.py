"""Gap-Aware's figures and tables: what is shown of each, and what the paper says of it."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from reproduction.claims import Claim, Near, Within
from reproduction.drawing import UPDATES, Against, Panel, Sweep
from reproduction.measures import Line, Lines, Spread
from reproduction.paper import Part, Section
from reproduction.papers.gap_aware import lines
from reproduction.papers.gap_aware.claims import (
    SLACK,
    Above,
    Below,
    Best,
    Ends,
    Falls,
    LosesMost,
    Times,
    over_training,
    perplexity,
)
from reproduction.papers.gap_aware.published import SEVEN, WORKERS
from reproduction.series import Series
from reproduction.tables import Column, Grid, LineTable, Table, as_deviation, average
from testbed.number_text import UNKNOWN

CHANCE_OF_TEN = 10.0
"""Percent: the accuracy of a guess among ten classes."""
CHANCE = 15.0
"""Percent: a run that ends below it has learnt nothing of ten classes."""
LEARNT = 50.0
COST, COST5 = 1.3, 0.9
"""Points that DANA-GA may lose against one worker (92.43 - 91.15, Table 4; 95.17 - 94.27, Table 5)."""
NEAR = 1.0
"""Points by which an accuracy at the paper's scale may differ from the paper's."""
STABLE = 80.0
"""Percent: between chance and this the paper's own runs differ by 3 to 30 points."""
_WORD = 6.09
"""Characters of a word of Table 2's text, with the space after it."""
FAILS = 10 ** (1 / _WORD)
"""By the character, what 10 times the perplexity is by the word; the paper has 39 to 62 times."""
LEARNS = 1.2 ** (1 / _WORD)
"""By the character, what 1.2 times the perplexity is by the word; the paper has 1.09 and 1.18 times."""
_LEARNING = ("dana-sa", "ga", "asgd", "dana-ga")
"""The systems besides SA that learn with every N, in the paper."""
_GAPS = ("ga", "ga-layer", "ga-model")
_CAPTION = (
    "Final accuracy: that of the last evaluation. Points are means over seeds, bars deviations. Points "
    f"below {CHANCE:g} % are left out: lines to them leave the panel."
)


def _final(line: Line, _: Lines) -> str:
    """Return the final accuracy and, in brackets, the paper's."""
    paper = line.series.accuracy
    return _spread(line.last()) + ("" if paper is None else f" [{paper:.2f}]")


def _spread(values: Mapping[int, float]) -> str:
    """Return the mean and the deviation over seeds."""
    spread = Spread.of(values.values())
    return "not run" if spread is None else as_deviation(spread)


def _across(labels: Iterable[str], workers: Sequence[int]) -> dict[str, dict[float, str]]:
    """Return by title of a system the names of its lines, by the number of workers."""
    return {lines.ALL[label]: {n: f"{label}-{n}" for n in workers} for label in labels}


def _against_workers(labels: Iterable[str], workers: Sequence[int]) -> Sweep:
    return _accuracies_drawn("workers N", _across(labels, workers))


def _accuracies_drawn(label: str, curves: Mapping[str, Mapping[float, str]]) -> Sweep:
    return Sweep(label, curves, Line.last, "final accuracy (%)", chance=CHANCE)


def _over_training(labels: Iterable[str], workers: int, measure: str = "accuracy") -> Against:
    curves = {f"{label}-{workers}": lines.ALL[label] for label in labels}
    return Against(UPDATES, curves=curves, measure=measure, title=f"N = {workers}")


def _accuracies(labels: Iterable[str], workers: Sequence[int]) -> Table:
    return Grid.of(_across(labels, workers), "N", _final)


def _alone(names: Sequence[str]) -> Table:
    return Grid("one worker", names_of(names), {"1": tuple(names)}, _final)


def names_of(names: Sequence[str]) -> tuple[str, ...]:
    """Return the titles of lines of one worker."""
    return tuple(lines.ALL[name.removesuffix("-1")] for name in names)


def _of_accuracy(many: int, few: int, cost: float = COST) -> tuple[Claim, ...]:
    """Return the paper's claims about the seven systems that hold in each of its tables (§6.1)."""

    def above(a: str, b: str) -> Claim:
        return Above(f"{a}-{many}", f"{b}-{many}")

    def all_but(*labels: str) -> tuple[str, ...]:
        return tuple(f"{label}-{few}" for label in SEVEN if label not in labels)

    return (
        above("dana-ga", "ga"),
        above("ga", "sa"),
        Above(f"ga-{few}", f"sa-{few}"),
        above("dana-ga", "dana-sa"),
        Ends(f"ga-{many}", f"learns: it ends above {LEARNT:g} %", least=LEARNT),
        Ends(f"dana-ga-{many}", f"learns: it ends above {LEARNT:g} %", least=LEARNT),
        Ends(f"nag-asgd-{few}", f"learns: it ends above {LEARNT:g} %", least=LEARNT),
        above("asgd", "nag-asgd"),
        Best(f"dana-{few}", all_but("dana-ga"), " (all but DANA-GA)"),
        _best_of_all(many),
        LosesMost("sa", _LEARNING, few, many),
        Within(
            f"dana-ga-{many}",
            "nag-asgd-1",
            cost,
            f"DANA-GA, N = {many}, ends at most {cost} points below one worker",
        ),
    )


def _best_of_all(workers: int) -> Claim:
    return Best(f"dana-ga-{workers}", tuple(f"{label}-{workers}" for label in SEVEN))


def _of_table4(many: int, few: int) -> tuple[Claim, ...]:
    """Return the claims of ``_of_accuracy``, and those that Table 4 makes alone."""
    return (
        *_of_accuracy(many, few),
        Ends(f"nag-asgd-{many}", f"collapses: it ends below {CHANCE:g} %", most=CHANCE),
        Ends(f"dana-{many}", f"diverges: it ends below {LEARNT:g} %", most=LEARNT),
    )


def _near(series: Iterable[Series]) -> tuple[Claim, ...]:
    """Return two-sided claims about the numbers of a table whose runs agree with each other."""
    return tuple(
        Near(one.name, one.accuracy, NEAR, Line.last)
        for one in series
        if one.accuracy is not None and (one.accuracy >= STABLE or one.accuracy == CHANCE_OF_TEN)
    )


_SMALL = lines.SMALL
FIG2 = Part(
    "fig2",
    "Fig. 2 and Fig. 5: all systems, by the number of workers",
    "Final test error against the number of asynchronous workers, of the systems (Fig. 2) and of "
    "the three versions of the gap (Figs. 1 and 5), on CIFAR-10 and CIFAR-100; mean and deviation of 5 "
    "runs.",
    lines.FIG2,
    (
        Section(
            "Final accuracy, %",
            (
                _alone([f"{label}-1" for label in lines.ALONE]),
                _accuracies(SEVEN, _SMALL),
                _accuracies(_GAPS, _SMALL),
                _accuracies(("momentum-asgd", "sa-gradient", "dc-asgd"), _SMALL),
                _accuracies(lines.ADAMS, _SMALL),
            ),
            "In brackets Table 4 of the paper, which is of ResNet-20 on CIFAR-10: compare orderings.",
        ),
    ),
    (
        _against_workers(SEVEN, _SMALL),
        _over_training(SEVEN, 32),
        _against_workers(_GAPS, _SMALL),
    ),
    (
        *_of_table4(32, 8),
        Above("ga-16", "sa-16"),
        *map(_best_of_all, (8, 16)),
        Above("nag-asgd-1", "asgd-1"),
        *(Best(f"ga-{n}", tuple(f"{label}-{n}" for label in _GAPS), slack=SLACK) for n in _SMALL),
        *(Above(f"adam-ga-{n}", f"adam-{n}") for n in _SMALL),
        Ends("adam-32", f"fails: it ends below {CHANCE:g} %", most=CHANCE),
        Ends("adam-ga-32", f"learns: it ends above {LEARNT:g} %", least=LEARNT),
    ),
    caption=_CAPTION,
)


def _table4(series: tuple[Series, ...], workers: Sequence[int], *more: Claim) -> Part:
    return Part(
        "table4",
        "Table 4: ResNet-20 on CIFAR-10",
        "Final test accuracy of seven systems with N = 4 to 48 workers; mean and deviation of 5 runs; "
        "one worker has 92.43 %.",
        series,
        (
            Section(
                "Final accuracy, %",
                (_alone(["nag-asgd-1"]), _accuracies(SEVEN, workers)),
                "In brackets the paper's.",
            ),
        ),
        (_against_workers(SEVEN, workers), _over_training(SEVEN, 32)),
        (*_of_table4(32, workers[0]), *more),
        _near(series),
        _CAPTION,
    )


TABLE4_SMALL = _table4(lines.TABLE4_SMALL, lines.LARGE, _best_of_all(8))
TABLE4_WHOLE = _table4(lines.TABLE4_WHOLE, WORKERS, Above("nag-asgd-4", "asgd-4"))
TABLE5 = Part(
    "table5",
    "Table 5: WideResNet 16-4 on CIFAR-10",
    "Final test accuracy of seven systems with N = 4 to 48 workers; mean and deviation of 5 runs; one "
    "worker has 95.17 %.",
    lines.TABLE5_WHOLE,
    (
        Section(
            "Final accuracy, %",
            (_alone(["nag-asgd-1"]), _accuracies(SEVEN, WORKERS)),
            "In brackets the paper's.",
        ),
    ),
    (_against_workers(SEVEN, WORKERS), _over_training(SEVEN, 32)),
    (*_of_accuracy(32, 4, COST5), Above("nag-asgd-4", "asgd-4"), Above("dana-sa-32", "dana-32")),
    _near(lines.TABLE5_WHOLE),
    _CAPTION,
)
_FIFTHS = tuple(
    average(f"{name}, {part + 1}/5", name, part, 5)
    for name in ("delay", "gap")
    for part in range(5)
)


def _fig4(series: tuple[Series, ...], workers: Sequence[int]) -> Part:
    curves = {label: {f"{label}-{n}": f"N = {n}" for n in workers} for label in ("dana-ga", "ga")}
    return Part(
        "fig4",
        "Fig. 4: the delay and the gap over training",
        "(a) the gap with DANA-GA, (b) the gap with GA, (c) the delay, over the epochs, for several "
        "numbers of workers, of WideResNet 16-4 on CIFAR-100; mean and deviation of 5 runs.",
        series,
        (Section("Delay and gap, by fifths of training", (LineTable("", _FIFTHS),)),),
        (
            Against(UPDATES, curves=curves["dana-ga"], measure="gap", title="gap, DANA-GA"),
            Against(UPDATES, curves=curves["ga"], measure="gap", title="gap, GA"),
            Against(UPDATES, curves=curves["ga"], measure="delay", title="delay"),
        ),
        tuple(
            claim
            for n in workers
            for claim in (
                Below(f"ga-{n}", "gap", f"ga-{n}", "delay"),
                Below(f"dana-ga-{n}", "gap", f"dana-ga-{n}", "delay"),
                Below(f"dana-ga-{n}", "gap", f"ga-{n}", "gap"),
                Falls(f"ga-{n}", "gap"),
                Falls(f"dana-ga-{n}", "gap"),
            )
        ),
        caption="Means of a hundredth of training each, over all parameters, and over seeds; bands go "
        "from the least to the greatest seed.",
    )


FIG4_SMALL = _fig4(lines.FIG4_SMALL, lines.SMALL)
FIG4_WHOLE = _fig4(lines.FIG4_WHOLE, (4, 8, 16, 24, 32))


def _fig7(file: str) -> Part:
    series = lines.of_training(file)
    return Part(
        "fig7",
        f"Fig. 7: training with {lines.AT_ONCE} workers",
        f"The test error over training with {lines.AT_ONCE} workers: GA's is similar to SA's, and "
        "DANA-GA's remains close to that of one worker; mean and deviation of 5 runs.",
        series,
        (
            Section(
                "Accuracy, %",
                (
                    LineTable(
                        "",
                        tuple(_at_share(share) for share in (0.1, 0.5, 1.0)),
                    ),
                ),
            ),
        ),
        (Against(UPDATES, curves={one.name: one.title.split(", N")[0] for one in series}),),
        (
            Within(
                f"ga-{lines.AT_ONCE}",
                f"sa-{lines.AT_ONCE}",
                SLACK,
                f"GA takes no more steps than SA: its accuracy, in the mean over training, is at least "
                f"SA's, up to {SLACK:g} points",
                over_training,
            ),
            Within(
                f"dana-ga-{lines.AT_ONCE}",
                series[0].name,
                SLACK,
                f"DANA-GA is as accurate as one worker after as many steps: it ends at most {SLACK:g} "
                "points below (0.45 in Table 4)",
            ),
        ),
        caption="Lines are means over seeds, bands go from the least to the greatest.",
    )


def _at_share(share: float) -> Column:
    """Return the column of the accuracy after a share of the updates."""

    def cell(line: Line, _: Lines) -> str:
        curves = {run.seed: run.evaluations for run in line.runs}
        return _spread(
            {
                seed: float(np.interp(share * one.iteration[-1], one.iteration, one.accuracy))
                for seed, one in curves.items()
            }
        )

    return Column(f"after {share:.0%} of training", cell)


FIG7_SMALL, FIG7_WHOLE = _fig7("fig2"), _fig7("table4")


def _fig13(series: tuple[Series, ...], workers: Sequence[int]) -> Part:
    alike = _across(SEVEN, workers)
    differing = {
        title: {n: name + lines.DIFFERING for n, name in names.items()}
        for title, names in alike.items()
    }
    both = {
        f"N = {n}, {kind}": tuple(names[n] for names in curves.values())
        for n in workers
        for kind, curves in (("alike", alike), ("differing", differing))
    }
    return Part(
        "fig13",
        "Fig. 13: workers that differ",
        "Final test error against the number of heterogeneous workers (V_mach = 0.6); mean and "
        "deviation of 5 runs.",
        series,
        (Section("Final accuracy, %", (Grid("", tuple(SEVEN.values()), both, _plain),)),),
        (
            _accuracies_drawn("workers N, differing", differing),
            _accuracies_drawn("workers N, alike", alike),
        ),
        tuple(claim for n in workers for claim in _of_differing(n, workers[0])),
        caption=_CAPTION,
    )


def _of_differing(n: int, fewest: int) -> tuple[Claim, ...]:
    """Return the claims about n workers that differ (D.2); DANA's runs collapse beyond the fewest."""

    def name(label: str) -> str:
        return f"{label}-{n}{lines.DIFFERING}"

    others = tuple(name(label) for label in SEVEN if label != "dana-ga")
    gaining = ("ga", "dana-ga", "asgd", "sa", "dana-sa", *["dana"] * (n == fewest))
    return (
        *(
            Within(
                name(label),
                f"{label}-{n}",
                SLACK,
                f"{SEVEN[label]}, N = {n}: workers that differ end at least as high as workers that "
                f"are alike, up to {SLACK:g} points",
            )
            for label in gaining
        ),
        Best(name("dana-ga"), (name("dana-ga"), *others)),
        Best(name("ga"), others, " (all but DANA-GA)"),
    )


def _plain(line: Line, _: Lines) -> str:
    return _spread(line.last())


FIG13_SMALL = _fig13(lines.FIG13_SMALL, lines.LARGE)
FIG13_WHOLE = _fig13(lines.FIG13_WHOLE, (4, 8, 16, 24, 32))


def _perplexity(line: Line, _: Lines) -> str:
    return _spread(perplexity(line))


def _published(line: Line, _: Lines) -> str:
    known = lines.PERPLEXITIES.get(line.series.name)
    return UNKNOWN if known is None else f"{known:,.2f}"


_TEXT_PANELS: tuple[Panel, ...] = tuple(
    Against(
        UPDATES,
        curves={"adam-1": "one worker", **{f"{a}-{n}": t for a, t in lines.ADAMS.items()}},
        measure="loss",
        title=f"N = {n}",
    )
    for n in (4, 8)
)
TABLE2 = Part(
    "table2",
    "Table 2: Adam on a language model",
    "Final test perplexity of Transformer-XL on WikiText-103, with Adam, Adam-SA and Adam-GA and 4 or "
    "8 workers; lower is better; one worker has 24.25.",
    lines.TABLE2_LINES,
    (
        Section(
            "Final perplexity",
            (LineTable("", (Column("paper", _published), Column("ours", _perplexity))),),
            "e to the power of the mean loss of a character of the test rows; the paper's of a word.",
        ),
    ),
    _TEXT_PANELS,
    tuple(
        claim
        for n in (4, 8)
        for claim in (
            Times(
                f"adam-{n}",
                f"adam-ga-{n}",
                f"Adam fails with N = {n}: its perplexity is at least {FAILS:.2f} times Adam-GA's, "
                "which is 10 times by the word",
                least=FAILS,
            ),
            Times(
                f"adam-sa-{n}",
                f"adam-ga-{n}",
                f"Adam-SA fails with N = {n}: its perplexity is at least {FAILS:.2f} times Adam-GA's",
                least=FAILS,
            ),
            Times(
                f"adam-ga-{n}",
                "adam-1",
                f"Adam-GA learns with N = {n}: its perplexity is at most {LEARNS:.2f} times one "
                "worker's, which is 1.2 times by the word",
                most=LEARNS,
            ),
            *(
                Times(
                    f"{lower}-{n}",
                    f"{higher}-{n}",
                    f"with N = {n} {lines.ADAMS[lower]} ends with a lower perplexity than "
                    f"{lines.ADAMS[higher]}",
                    most=1.0,
                )
                for lower, higher in (("adam-ga", "adam-sa"), ("adam-sa", "adam"))
            ),
        )
    ),
    caption="The test loss of a character, with a logarithmic axis.",
)
AT_CPU = (FIG2, TABLE4_SMALL, FIG4_SMALL, FIG7_SMALL, FIG13_SMALL, TABLE2)
AT_PAPER = (TABLE4_WHOLE, TABLE5, FIG4_WHOLE, FIG7_WHOLE, FIG13_WHOLE)
