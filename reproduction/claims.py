"""The paper's claims about its results, checked mechanically against ours.

Lines are compared only on the seeds that all of them have run: over different seeds, chance would be
compared as well. An ordering is that of the means over these seeds; the number of seeds with which it
holds is given too. A line is near the paper's if it is neither worse nor better by more than ``WITHIN``
points: that a line does badly is also a result of the paper.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reproduction.measures import (
    WINDOW,
    Line,
    finals_on_equal_seeds,
    goals_on_equal_seeds,
    on_equal_seeds,
)
from reproduction.paper import GOAL, GOAL_RATIO, WITHIN, Part
from reproduction.scale import Scale
from testbed.quantities import as_bytes

_COMPARED = ("asgd", "adacomp-0.01")
"""The lines whose bytes to the goal Fig. 3 compares."""
_EARLY = 0.1
"""The share of all iterations that counts as the beginning, which Fig. 4 compares."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of the paper, or a requirement of its reproduction.

    Attributes:
        text: the claim.
        holds: True if it holds here; None if runs are missing.
        measured: the numbers that decide it.
    """

    text: str
    holds: bool | None
    measured: str

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        return {True: "holds", False: "**does not hold**", None: "not measured"}[self.holds]


def claims(part: Part, lines: Mapping[str, Line], scale: Scale) -> list[Claim]:
    """Return a part's claims in the paper's order; those of nearness only at the paper's scale."""
    of_part = {
        "fig1": _fig1,
        "fig3": _fig3,
        "fig3-even": _fig3,
        "fig3-rate": _fig3,
        "fig3-per-tensor": _per_tensor,
        "table2": _table2,
        "fig4": _fig4,
    }
    specific = of_part[part.name](lines)
    # The paper has no accuracy for c = 0.001: the numbers that it gives for it are those of 0.01.
    near = [_near(line) for name, line in lines.items() if not name.endswith("-0.001")]
    return [*specific, *(near if scale.name == "full" else ())]


def _near(line: Line) -> Claim:
    paper = line.series.accuracy
    text = f"{line.series.title}: within {WITHIN} points of {paper:.2f} %, above or below"
    if line.final is None or paper is None:
        return Claim(text, None, "")
    difference = line.final.mean - paper
    return Claim(text, abs(difference) <= WITHIN, f"{line.final.mean:.2f} % ({difference:+.2f})")


def _greater(better: Line, worse: Line) -> Claim:
    text = f"{better.series.title} ends above {worse.series.title}"
    ours, theirs = finals_on_equal_seeds(better, worse)
    if not ours:
        return Claim(text, None, "")
    a, b = (float(np.mean(list(finals.values()))) for finals in (ours, theirs))
    return Claim(
        text,
        a > b,
        f"{a:.2f} and {b:.2f} ({a - b:+.2f}); in {sum(ours[seed] > theirs[seed] for seed in ours)} of "
        f"{len(ours)} seeds",
    )


def _fig1(lines: Mapping[str, Line]) -> list[Claim]:
    text = (
        "accuracy is not linear in ingress: the second half of the bytes buys less than the first"
    )
    averaged = lines["asgd"].averaged
    if not len(averaged.iteration):
        return [Claim(text, None, "")]
    mean = averaged.accuracy.mean(axis=0)
    halfway = int(np.searchsorted(averaged.wire_bytes, averaged.wire_bytes[-1] / 2))
    first, second = mean[halfway] - mean[0], mean[-1] - mean[halfway]
    return [Claim(text, bool(second < first), f"{first:+.2f} and {second:+.2f} points")]


def _fig3(lines: Mapping[str, Line]) -> list[Claim]:
    chain = ("adacomp-0.1", "adacomp-0.01", "asgd", "comp-asgd-0.1", "comp-asgd-0.01")
    found = [_greater(lines[a], lines[b]) for a, b in itertools.pairwise(chain)]
    found += [_short_of_goal(lines[name]) for name in ("comp-asgd-0.1", "comp-asgd-0.01")]
    text = (
        f"AdaComp, c = 0.01, reaches {GOAL:g} % with at least {GOAL_RATIO:g} times fewer wire bytes "
        "than ASGD with float32"
    )
    asgd, ours = (lines[name] for name in _COMPARED)
    found.append(_ratio(text, asgd, ours, 1))
    text = f"the same on moving averages of {WINDOW} evaluations: the paper's figure shows averages"
    return [*found, _ratio(text, asgd, ours, WINDOW)]


def _per_tensor(lines: Mapping[str, Line]) -> list[Claim]:
    return [_short_of_goal(line) for line in lines.values()]


def _short_of_goal(line: Line) -> Claim:
    goal = line.goal
    text = f"{line.series.title} does not reach {GOAL:g} %"
    if not goal.runs:
        return Claim(text, None, "")
    return Claim(text, not goal.reached, f"{goal.reached} of {goal.runs} runs reach it")


def _ratio(text: str, asgd: Line, ours: Line, window: int) -> Claim:
    both = goals_on_equal_seeds(asgd, ours, window)
    if both is None:
        return Claim(text, None, "")
    theirs, mine = (one.wire_bytes for one in both)
    measured = f"{as_bytes(theirs)} and {as_bytes(mine)}: {theirs / mine:,.0f} times"
    return Claim(text, theirs / mine >= GOAL_RATIO, measured)


def _table2(lines: Mapping[str, Line]) -> list[Claim]:
    chain = list(lines.values())
    return [_greater(a, b) for a, b in itertools.pairwise(chain)]


def _fig4(lines: Mapping[str, Line]) -> list[Claim]:
    found = []
    for ratio in ("0.01", "0.001"):
        large, small = (
            [lines[f"{images}-{classes}-{ratio}"] for classes in ("one", "three")]
            for images in ("60000", "12000")
        )
        found += [_greater(*large), _greater(*small), _greater(large[0], small[0])]
        found += [_wider(large, small, ratio), _faster(*large)]
    return found


def _wider(large: list[Line], small: list[Line], ratio: str) -> Claim:
    text = f"one class's lead over three is greater on 12,000 images than on 60,000, c = {ratio}"
    finals = finals_on_equal_seeds(*large, *small)
    if not finals[0]:
        return Claim(text, None, "")
    a, b, c, d = (float(np.mean(list(of_line.values()))) for of_line in finals)
    return Claim(text, c - d > a - b, f"{c - d:+.2f} and {a - b:+.2f} points")


def _faster(one: Line, three: Line) -> Claim:
    text = f"three classes are faster at the beginning: {three.series.title}"
    means = []
    for line in on_equal_seeds(three, one):
        averaged = line.averaged
        if not len(averaged.iteration):
            return Claim(text, None, "")
        early = averaged.iteration <= _EARLY * averaged.iteration[-1]
        early[0] = True
        means.append(float(averaged.accuracy[:, early].mean()))
    return Claim(
        text,
        means[0] > means[1],
        f"mean accuracy in the first {_EARLY:.0%} of the updates: {means[0]:.2f}, {means[1]:.2f} %",
    )
