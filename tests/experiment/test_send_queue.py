"""``send_queue`` of workers in the experiment file: what is refused."""

from pathlib import Path
from typing import Any

import pytest

from testbed.errors import SpecError
from testbed.experiment.load import load
from testbed.planning.plan import plan
from testbed.training import computation
from tests.experiment.test_co_located_servers import written

QUEUE = {"name": "asgd", "send_queue": 1}


def test_a_run_has_it_only_where_the_file_says_so(tmp_path: Path) -> None:
    waiting, overlapping = plan(load(written(tmp_path, algorithms=["asgd", QUEUE])))
    assert not computation.overlaps(waiting.settings)
    assert computation.overlaps(overlapping.settings)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"algorithms": [QUEUE | {"send_queue": 2}]}, "algorithms.0.send_queue: "),
        (
            {"algorithms": ["asgd", QUEUE | {"name": "downpour", "fetch_every": 2}]},
            "algorithms.1.send_queue: workers of downpour push and ask at different times",
        ),
        (
            {"algorithms": [QUEUE], "partition": "stream", "devices": {"workers": 4}},
            "algorithms.0.send_queue: a stream deals a mini-batch with each answer",
        ),
        (
            {
                "algorithms": [QUEUE],
                "clock": "wall",
                "faults": [{"who": "each", "when": {"probability": 0.1}, "how": "kill"}],
            },
            "algorithms.0.send_queue: by the wall clock a fault after a push strikes once",
        ),
    ],
)
def test_what_does_not_go_with_it_is_refused(
    tmp_path: Path, changes: dict[str, Any], text: str
) -> None:
    with pytest.raises(SpecError) as refused:
        plan(load(written(tmp_path, **changes)))
    assert text in str(refused.value)
