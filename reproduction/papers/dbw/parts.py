"""DBW's figures: what is shown of each, and what the paper says of it."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from reproduction.claims import Claim
from reproduction.drawing import SECONDS, UPDATES, Against, Beside, Boxes, Cost, Sweep
from reproduction.measured import Numbers
from reproduction.measures import Line, Lines, Spread, Target
from reproduction.paper import Measurement, Part, Section
from reproduction.papers.dbw import knee, lines
from reproduction.papers.dbw.claims import BestStatic, Follows, Outweighs, Similar, WithinTime
from reproduction.papers.dbw.decrease import Decreases, bounds, proportional
from reproduction.papers.dbw.expected_times import (
    OFTEN,
    Chosen,
    Compared,
    Errors,
    Estimates,
    TimesByK,
)
from reproduction.papers.dbw.law import Distribution, measure
from reproduction.papers.dbw.tables import Knees
from reproduction.races import FACTOR, AtLeastAsFast, TimesFaster
from reproduction.record import Record
from reproduction.series import Series
from reproduction.tables import (
    Column,
    LineTable,
    as_deviation,
    average,
    last,
    reached,
    seconds_to,
    spent,
    total,
)

LOSS, PAPERS_LOSS = Target(0.2, "training_loss"), Target(0.07, "training_loss")
"""The training loss to reach, at scale cpu in Fig. 10 as well; that of the paper's Fig. 10."""
SOONER = Target(0.3, "training_loss")
"""The loss that is reached at half the learning rate as well."""
ACCURACY, PAPERS_ACCURACY = Target(40.0), Target(80.0)
"""The test accuracy to reach on CIFAR-10: at scale cpu, and the paper's, with a larger network."""
CIFAR_SECONDS = 200.0
CLOSE = 1.25
"""Times of the fastest static setting that count as "quite close" (§4.2)."""
MUCH = 2.0
"""Times that count as "much larger" (§3.1)."""
_WIRE = Cost("wire_bytes", "PS ingress on the wire (MB)", 1e6)
_CAPTION = "Lines are means over seeds at equal times, bands go from the least to the greatest."


def _table(target: Target, *more: Column) -> Section:
    columns = (reached(target), seconds_to(target), spent("iteration", target), *more)
    return Section("Time to the target", (LineTable("", columns),))


_OF_K = Section(
    "k",
    (
        LineTable(
            "mean k over a fifth of the updates",
            tuple(
                average(heading, "k", part, 5)
                for heading, part in (("first", 0), ("middle", 2), ("last", 4))
            ),
        ),
    ),
)


def _curves(series: Sequence[Series]) -> Mapping[str, str]:
    """Return the lines of a panel; those of one algorithm or k have one title in all panels."""
    titles = [one.title.split(", α")[0].split(", B")[0] for one in series]
    k = [str(one.values.get("algorithms.wait_for", "")) for one in series]
    names = [
        f"{title}, k = {value}" * bool(value) or title
        for title, value in zip(titles, k, strict=True)
    ]
    return {one.name: name for one, name in zip(series, names, strict=True)}


def _loss(series: tuple[Series, ...], title: str = "", target: Target = LOSS) -> Against:
    return Against(
        SECONDS,
        curves=_curves(series),
        measure="training_loss",
        title=title,
        target=target,
    )


def _static_claims(alpha: float, best: int) -> tuple[Claim, ...]:
    names, where = lines.static(alpha), f"α = {alpha:g}"
    fastest = BestStatic(best, names, LOSS, where)
    if not alpha:  # without randomness DBW and B-DBW wait for all: they are the run of k = 16
        return (fastest,)
    return (
        fastest,
        AtLeastAsFast(
            f"dbw-{alpha:g}",
            tuple(names.values()),
            LOSS,
            f"{where}: DBW is at least as fast to {LOSS} as each static k",
        ),
        AtLeastAsFast(
            f"dbw-{alpha:g}",
            (f"b-dbw-{alpha:g}",),
            LOSS,
            f"{where}: B-DBW is not faster than DBW to {LOSS}",
        ),
    )


def _faster(alpha: float, factor: float) -> TimesFaster:
    return TimesFaster(
        f"dbw-{alpha:g}",
        tuple(lines.static(alpha).values()),
        LOSS,
        factor,
        f"α = {alpha:g}: DBW is {factor:g} times faster to {LOSS} than the best static k",
    )


def _seconds(line: Line) -> dict[int, float]:
    return line.seconds_to(LOSS)


def _boxes(groups: Mapping[str, tuple[Series, ...]]) -> Boxes:
    """Return the panel of the seconds to the loss, by group; static lines come last, by k."""
    ordered = {
        group: sorted(series, key=lambda one: one.values.get("algorithms.wait_for", 0))
        for group, series in groups.items()
    }
    return Boxes(
        {
            group: {title: name for name, title in _curves(series).items()}
            for group, series in ordered.items()
        },
        _seconds,
        f"seconds to {LOSS}",
    )


def _beside(estimate: str, exact: str, y_label: str) -> Beside:
    """Return the panel of an estimate and of the exact value."""
    return Beside("dbw", {estimate: "DBW's estimate", exact: "exact"}, y_label)


_NORM = _beside("norm", "gradient_norm", "‖∇F‖²")
_VARIANCE = _beside("variance", "gradient_variance", "V(g)")
_ESTIMATES = Section(
    "Estimates",
    (
        LineTable(
            "mean over a third of the updates, first and last",
            tuple(
                average(f"{name}, {which}", name, part, 3)
                for name in ("norm", "variance", "smoothness", "gain", "k")
                for which, part in (("first", 0), ("last", 2))
            ),
        ),
    ),
)
_FOLLOWS: tuple[Claim, ...] = (
    Follows("dbw", "norm", "gradient_norm", "the estimate of ‖∇F‖² is close to the exact value"),
    Follows(
        "dbw", "variance", "gradient_variance", "the estimate of V(g) is close to the exact one"
    ),
)
_DECREASE: tuple[Claim, ...] = (bounds("dbw"), proportional("dbw"))

FIG1 = Part(
    "fig1",
    "Fig. 1: the estimates of the gain, MNIST",
    "‖∇F‖², V(g) and the decrease of the loss, estimated and exact, with η = 0.01.",
    lines.FIG1,
    (_ESTIMATES,),
    (_NORM, _VARIANCE, Decreases("dbw")),
    (*_FOLLOWS, *_DECREASE),
    caption=_CAPTION,
)
FIG2 = Part(
    "fig2",
    "Fig. 2: the estimates of the gain, CIFAR-10",
    "As Fig. 1. The variance is much greater than the norm here.",
    lines.FIG2,
    (_ESTIMATES,),
    (_NORM, _VARIANCE, Decreases("dbw")),
    (
        *_FOLLOWS,
        *_DECREASE,
        Outweighs(
            "dbw",
            "gradient_variance",
            "gradient_norm",
            MUCH,
            f"V(g) is much larger than ‖∇F‖²: in the mean at least {MUCH:g} times",
        ),
    ),
    caption=_CAPTION,
)
FIG3 = Part(
    "fig3",
    "Fig. 3: the times that DBW expects, n = 5",
    "k, and the estimates of T for each k: by the empirical average of its samples, which the paper "
    "calls naive, and by (17).",
    lines.FIG3,
    (
        _OF_K,
        Section(
            "Estimates",
            (Errors("dbw"),),
            "Errors are relative to E[T(k)], in the mean over the updates before which there is an "
            "average. E[T(k)] is computed as in Appendix A, by 200,000 draws of round trips.",
        ),
    ),
    (
        Chosen("dbw"),
        TimesByK("dbw", "empirical average", lambda one: one.naive),
        TimesByK("dbw", "(17)", lambda one: one.fitted),
    ),
    (
        Compared(
            "dbw",
            f"averages are often in the wrong order: before at least {100 * OFTEN:g} % of updates",
            Estimates.disordered,
            OFTEN,
            ".0%",
        ),
        Compared(
            "dbw",
            "(17) is more precise than the empirical average: its mean relative error is smaller",
            Estimates.gained,
            0.0,
            "+.3f",
        ),
    ),
    caption="The run of the first seed. Dotted: E[T(k)].",
)
FIG4 = Part(
    "fig4",
    "Fig. 4: training on MNIST, α = 0.7",
    "Loss, k and test accuracy over time, of one run; the best static k is 10.",
    lines.FIG4,
    (_table(LOSS), _OF_K),
    (
        _loss(lines.FIG4),
        Against(SECONDS, curves=_curves(lines.FIG4), measure="k"),
        Against(SECONDS, curves=_curves(lines.FIG4)),
        Against(UPDATES, curves=_curves(lines.FIG4), measure="training_loss"),
    ),
    (
        *_static_claims(0.7, 10),
        WithinTime(
            "dbw-0.7",
            "k",
            0.03,
            0.2,
            -math.inf,
            8,
            "DBW's k is small at first (a mean of at most n / 2)",
            True,
        ),
        WithinTime("dbw-0.7", "k", 0.9, 1, 15, math.inf, "DBW's k is n at the end", True),
        WithinTime(
            "b-dbw-0.7",
            "k",
            0.03,
            1,
            8,
            10,
            "B-DBW's k is 9 most of the time (a mean of 8 to 10)",
            True,
        ),
    ),
    caption=_CAPTION,
)


def _fig5(target: Target) -> Part:
    here = f" Here the accuracy to reach is {target}."
    return Part(
        "fig5",
        "Fig. 5: training on CIFAR-10",
        "Loss, k and test accuracy over time; the distributions of the time to 80 % test accuracy and "
        f"of the accuracy after 200 s.{here * (target != PAPERS_ACCURACY)}",
        lines.FIG5,
        (_table(target), _OF_K),
        (
            Against(SECONDS, measure="training_loss"),
            Against(SECONDS, measure="k"),
            Against(SECONDS, target=target),
            Boxes(
                {"": {one.title: one.name for one in lines.FIG5}},
                lambda line: line.seconds_to(target),
                f"seconds to {target}",
            ),
            Boxes(
                {"": {one.title: one.name for one in lines.FIG5}},
                lambda line: line.within("accuracy", CIFAR_SECONDS - 10, CIFAR_SECONDS + 10),
                f"test accuracy (%) at {CIFAR_SECONDS:g} s",
            ),
        ),
        (
            AtLeastAsFast(
                "dbw",
                ("static-8", "static-16"),
                target,
                f"DBW is as fast to {target} as each static k",
            ),
            AtLeastAsFast("dbw", ("b-dbw",), target, f"B-DBW is not faster than DBW to {target}"),
        ),
        caption=_CAPTION,
    )


FIG5, FIG5_WHOLE = _fig5(ACCURACY), _fig5(PAPERS_ACCURACY)
FIG6 = Part(
    "fig6",
    "Fig. 6: the effect of the round-trip times",
    "The time to a training loss of 0.2 with round trips of 1 − α + α·Exp(1), for α = 0, 0.2 and 1.",
    lines.FIG6,
    (_table(LOSS), _OF_K),
    (
        *(_loss(lines.at(alpha), f"α = {alpha:g}") for alpha in lines.ALPHAS),
        _boxes({f"α = {alpha:g}": lines.at(alpha) for alpha in lines.ALPHAS}),
    ),
    (
        *(
            claim
            for alpha, best in zip(lines.ALPHAS, (16, 12, 8), strict=True)
            for claim in _static_claims(alpha, best)
        ),
        _faster(0.2, 1.2),
        _faster(1, 3),
    ),
    caption=_CAPTION,
)


_QUANTILES = ("0.10", "0.50", "0.90", "0.99")


def _fig7(rows: Sequence[Mapping[str, str]]) -> Part:
    told = [
        (f"{100 * float(row['share']):g} %", f"{float(row['seconds']):.2f}")
        for row in rows
        if row["share"] in _QUANTILES
    ]
    return Part(
        "fig7",
        "Fig. 7: the round-trip times of a cluster",
        "The empirical distribution of round-trip times on a Spark cluster. The trace is not public: "
        "here is the Pareto law that stands in for it in the runs of Fig. 8 (mean 1 s, exponent 2.5).",
        (),
        (Section("The law", (Numbers(("of all round trips", "take at most, s"), told),)),),
        (Distribution(rows),),
        caption="Quantiles of 10,000 times drawn from the law.",
    )


FIG7 = Measurement("fig7", measure, _fig7)
FIG8 = Part(
    "fig8",
    "Fig. 8: the effect of the mini-batch",
    "The time to a training loss of 0.2 for B = 16, 128 and 500, with the knee rule; the best static k "
    "grows from 1 (B = 500) to 6 (B = 16). Static lines are here once `make dbw-knee` has found their "
    "learning rates.",
    lines.FIG8,
    (_table(LOSS), _OF_K),
    (
        *(_loss(lines.of_batch(batch), f"B = {batch}") for batch in knee.BATCHES),
        _boxes({f"B = {batch}": lines.of_batch(batch) for batch in knee.BATCHES}),
    ),
    (
        BestStatic(6, lines.static_of_batch(16), LOSS, "B = 16"),
        BestStatic(1, lines.static_of_batch(500), LOSS, "B = 500"),
        *(
            AtLeastAsFast(
                f"dbw-{batch}",
                (f"b-dbw-{batch}",),
                LOSS,
                f"B = {batch}: DBW is faster to {LOSS} than B-DBW",
                times=1.0,
            )
            for batch in (128, 500)
        ),
        *(
            AtLeastAsFast(
                f"dbw-{batch}",
                tuple(lines.static_of_batch(batch).values()),
                LOSS,
                f"B = {batch}: DBW is close to the best static k: at most {CLOSE:g} times as long",
                CLOSE,
            )
            for batch in sorted(knee.BATCHES)
            if lines.static_of_batch(batch)
        ),
    ),
    caption=_CAPTION,
)


def _of_slowdown(moment: str) -> tuple[Against, Against]:
    """Return the panels of k and of the loss with a slow-down at a moment."""
    names, title = lines.of_slowdown(moment), f"slow from {moment.removesuffix('s')} s"
    dbw = {name: name_of for name, name_of in names.items() if name_of == "DBW"}
    return (
        Against(SECONDS, curves=dbw, measure="k", title=title),
        Against(SECONDS, curves=names, measure="training_loss", title=title, target=LOSS),
    )


FIG9 = Part(
    "fig9",
    "Fig. 9: half of the workers slow down",
    "All round trips take 1 s; at 160 s half of the workers become five times slower. The best k is "
    "16, and then 8. Here also at 40 s, before the loss is as low as the target.",
    lines.FIG9,
    (_table(LOSS),),
    tuple(panel for moment in lines.SLOW_FROM for panel in _of_slowdown(moment)),
    (
        WithinTime("dbw-160s", "k", 20, 160, 15.5, math.inf, "before the slow-down DBW's k is 16"),
        WithinTime("dbw-160s", "k", 170, 230, 7.5, 8.5, "10 to 70 s after it DBW's k is 8"),
        WithinTime("dbw-40s", "k", 50, 110, 7.5, 8.5, "10 to 70 s after one at 40 s DBW's k is 8"),
    ),
    caption=f"{_CAPTION} k is a mean of the updates between two points: 8 and 16 in turn are drawn "
    "as 12.",
)
_FOR_ALPHA = {alpha: (f"dbw-{alpha:g}", f"adasync-{alpha:g}") for alpha in lines.ADASYNC_ALPHAS}


def _fig10(target: Target) -> Part:
    here = f" Here it is the time to {target.value:g}."
    return Part(
        "fig10",
        "Fig. 10: DBW and AdaSync",
        "By Push & Interrupt, η = 0.08: loss and k over time for α = 0.1, and the time to a training "
        "loss of 0.07 for several α; DBW is faster for α below 0.3, AdaSync above."
        f"{here * (target != PAPERS_LOSS)}",
        lines.FIG10,
        (_table(target), _OF_K),
        (
            _loss(
                tuple(one for one in lines.FIG10 if one.values["compute.alpha"] == 0.1),
                "α = 0.1",
                target=target,
            ),
            Against(
                SECONDS,
                curves={"dbw-0.1": "DBW", "adasync-0.1": "AdaSync"},
                measure="k",
            ),
            Sweep(
                "α",
                {
                    title: {alpha: names[place] for alpha, names in sorted(_FOR_ALPHA.items())}
                    for place, title in enumerate(("DBW", "AdaSync"))
                },
                lambda line: line.seconds_to(target),
                f"seconds to {target}",
            ),
        ),
        tuple(
            AtLeastAsFast(
                names[alpha > 0.3],
                (names[alpha < 0.3],),
                target,
                f"α = {alpha:g}: {'AdaSync' if alpha > 0.3 else 'DBW'} is the faster to {target}",
            )
            for alpha, names in sorted(_FOR_ALPHA.items())
        ),
        caption=_CAPTION,
    )


FIG10, FIG10_WHOLE = _fig10(LOSS), _fig10(PAPERS_LOSS)
KNEE = Part(
    "knee",
    "The knee rule of the learning rate",
    "The paper takes η of k = n, and each η of Fig. 8, by the knee rule. Here: the training loss after "
    "30 updates at rising rates; the knee is the smallest rate at most "
    f"{knee.WITHIN:.0%} above the lowest loss. `knee.json` has them for the runs of Fig. 8.",
    lines.KNEE,
    (Section("Knees", (Knees(),)),),
    tuple(
        Sweep(
            f"η, B = {batch}",
            {f"k = {k}": lines.KNEES[batch, k] for k in knee.WAITED_FOR},
            lambda line: line.last("training_loss"),
            "training loss",
            logarithmic=True,
        )
        for batch in knee.BATCHES
    ),
)


def _of_run(heading: str, value: Callable[[Record], float]) -> Column:
    """Return the column of a number of each run that has estimates of L: mean and deviation."""

    def cell(line: Line, _: Lines) -> str:
        runs = [run for run in line.runs if "smoothness" in run.diagnostics.values]
        return as_deviation(Spread.of(map(value, runs)))

    return Column(heading, cell)


def _edge(run: Record) -> float:
    return run.spec.training.learning_rate * float(
        np.nanmedian(run.diagnostics.values["smoothness"]) / 2
    )


def _negative(run: Record) -> float:
    gain = run.diagnostics.values["gain"]
    return 100 * float(np.mean(gain[np.isfinite(gain)] < 0))


RATE = Part(
    "rate",
    "Beyond the paper: DBW at a smaller learning rate",
    f"Nothing of this: its learning rate is {lines.RATES[0]:g}. α = 1.",
    lines.RATE,
    (
        _table(SOONER),
        Section(
            "The edge",
            (
                LineTable(
                    "",
                    (
                        _of_run("η·L̂/2, median", _edge),
                        _of_run("gain < 0, % of the recorded means", _negative),
                        average("mean k", "k"),
                    ),
                ),
            ),
            "From η·L̂/2 = 1 on no gain is positive, whatever the gradient's norm.",
        ),
    ),
    (
        Against(SECONDS, measure="training_loss", target=SOONER),
        Against(
            SECONDS,
            curves={one.name: one.title for one in lines.RATE if one.label == "dbw"},
            measure="k",
        ),
    ),
    tuple(
        AtLeastAsFast(
            f"dbw-{rate:g}",
            tuple(f"static-{rate:g}-{k}" for k in (8, 16)),
            SOONER,
            f"η = {rate:g}: DBW is at least as fast to {SOONER} as each static k",
        )
        for rate in lines.RATES
    ),
    caption=_CAPTION,
)
VARIANTS = Part(
    "variants",
    "What the paper says without a figure: the naive estimator, Push & Interrupt",
    "Nothing. Its text says that naive estimators of times lead to longer training (§3.2), and that "
    "results by Push & Interrupt are similar to those by Push & Wait (§2).",
    lines.VARIANTS,
    (_table(SOONER), _OF_K),
    tuple(
        Against(
            SECONDS,
            curves={
                one.name: one.title.partition(",")[0]
                for one in lines.VARIANTS
                if one.values["compute.alpha"] == alpha
            },
            measure=measure,
            title=f"α = {alpha:g}",
            target=SOONER if measure == "training_loss" else None,
        )
        for alpha in lines.VARIANT_ALPHAS
        for measure in ("training_loss", "k")
    ),
    tuple(
        claim
        for alpha in lines.VARIANT_ALPHAS
        for claim in (
            AtLeastAsFast(
                f"dbw-{alpha:g}",
                (f"naive-{alpha:g}",),
                SOONER,
                f"α = {alpha:g}: the naive estimator is not faster than (17) to {SOONER}",
            ),
            Similar(
                f"dbw-{alpha:g}",
                f"interrupt-{alpha:g}",
                SOONER,
                f"α = {alpha:g}: Push & Interrupt takes as long as Push & Wait to {SOONER}, up or down "
                f"to {FACTOR:g} times",
            ),
        )
    ),
    caption=_CAPTION,
)
INGRESS = Part(
    "ingress",
    "Beyond the paper: time and ingress to reach a loss",
    "Nothing of this. DBW, static backup workers, ASGD and AdaComp on the same 16 devices (α = 1), in "
    "seconds and in bytes that enter the parameter server.",
    lines.INGRESS,
    (
        _table(LOSS, spent("payload_bytes", LOSS), spent("wire_bytes", LOSS)),
        Section(
            "The whole run",
            (
                LineTable(
                    "", (total("time"), total("wire_bytes"), last("training loss", "training_loss"))
                ),
            ),
        ),
    ),
    (
        _loss(lines.INGRESS),
        Against(
            _WIRE,
            curves=_curves(lines.INGRESS),
            measure="training_loss",
            logarithmic=True,
            target=LOSS,
        ),
    ),
    caption=_CAPTION,
)
AT_CPU = (FIG1, FIG2, FIG3, FIG4, FIG5, FIG6, FIG8, FIG9, FIG10, VARIANTS, RATE, KNEE, INGRESS)
AT_PAPER = (
    FIG1,
    FIG2,
    FIG3,
    FIG4,
    FIG5_WHOLE,
    FIG6,
    FIG8,
    FIG9,
    FIG10_WHOLE,
    VARIANTS,
    RATE,
    KNEE,
    INGRESS,
)
"""At the paper's scale runs are long enough for its targets."""
