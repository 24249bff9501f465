"""The runs of a sweep: each once, in a directory that only its settings and the code decide."""

from pathlib import Path

import pytest

from testbed.experiment.combinations import load_sweep
from testbed.sweeps import needed_runs as module
from testbed.sweeps.needed_runs import wanted


def test_a_run_that_a_key_does_not_change_is_wanted_once(file: Path, tmp_path: Path) -> None:
    runs = wanted(load_sweep(file), tmp_path)
    served = {one.title: len(one.points) for one in runs}
    assert served == {
        "asgd, seed 1, algorithms.adacomp.ratio 0.1": 2,
        "adacomp, seed 1, ratio 0.1": 1,
        "adacomp, seed 1, ratio 0.01": 1,
        "asgd, seed 2, algorithms.adacomp.ratio 0.1": 2,
        "adacomp, seed 2, ratio 0.1": 1,
        "adacomp, seed 2, ratio 0.01": 1,
    }
    assert len({one.directory for one in runs}) == 6
    assert runs[1].directory.name.startswith("adacomp-0.1.seed-1.")


def test_settings_and_code_decide_the_directory_and_nothing_else(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def names(*options: str) -> set[str]:
        return {one.directory.name for one in wanted(load_sweep(file, options), tmp_path)}

    before = names()
    assert names("sweep.seed=[2, 1, 3]") > before
    assert not names("training.updates=50") & before
    assert names("simulation.processors=2") == before
    monkeypatch.setattr(module, "package_digest", lambda: "of other code")
    assert not names() & before
