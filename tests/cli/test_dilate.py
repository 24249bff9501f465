"""``testbed dilate`` with runs that are there already."""

from pathlib import Path

import pytest

from testbed.cli.dilate import require_alike
from testbed.errors import SpecError
from testbed.results.reading.recorded_run import RecordedRun
from tests.results.conftest import writer_of_runs


def test_runs_of_different_algorithms_are_not_compared(tmp_path: Path) -> None:
    write = writer_of_runs(tmp_path)
    one, other = (RecordedRun.load(write(name)) for name in ("asgd", "adacomp-0.01"))
    require_alike([one], [one])
    with pytest.raises(SpecError, match=r"is of asgd and .* of adacomp-0\.01: "):
        require_alike([one], [other])
    with pytest.raises(SpecError, match="have 1 and 2 runs"):
        require_alike([one], [one, other])
