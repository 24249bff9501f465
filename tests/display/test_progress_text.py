"""The words of a run's progress."""

import math
from typing import Any

import pytest

from testbed.display.progress_text import describe
from testbed.runs.outcome import RunOutcome
from testbed.runs.watching import Progress
from testbed.telemetry.entries import EvaluationMade


@pytest.mark.parametrize(
    ("row", "measure", "words"),
    [
        ({"accuracy": 97.5, "loss": 0.1, "measured": None}, None, "accuracy 97.50 %"),
        ({"accuracy": 30.0, "loss": 1.5, "measured": 4.48}, "perplexity", "perplexity 4.48"),
        ({"accuracy": math.nan, "loss": 0.25, "measured": None}, None, "loss 0.25"),
    ],
)
def test_the_last_evaluation_is_that_of_what_runs_are_compared_by(
    row: dict[str, Any], measure: str | None, words: str
) -> None:
    progress = Progress("training", 4, 100, updates=50, measure=measure)
    outcome = RunOutcome()
    outcome.take(EvaluationMade({"iteration": 50, **row}))
    progress.follow(outcome)
    assert f", {words}, ingress" in describe(progress)


@pytest.mark.parametrize(
    ("count", "words"), [(1, "1 evaluation left, 1 worker lost"), (2, "2 evaluations left")]
)
def test_one_is_singular(count: int, words: str) -> None:
    progress = Progress("training", 4, 100, rate=1, evaluations_due=count, lost=int(count == 1))
    progress.updates = progress.all_updates
    assert describe(progress).endswith(words)
