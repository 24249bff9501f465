"""Mistakes in an algorithm of one's own that are found before a run starts."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from testbed.cli.plan_text import as_json, describe
from testbed.doctor.requirements import problems
from testbed.errors import SpecError
from testbed.experiment.load import load
from testbed.experiment.spec import Spec
from testbed.planning.halves import workers_remember
from testbed.planning.plan import plan

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"
WORKER = "        return WholeGradient()\n"
COMPRESSING = """\
        class Half(WholeGradient):
            def compress(self, gradient):
                return {}
        return Half()
"""

LOCAL = """\
        class Half(WholeGradient):
            def local(self, step, parameters, gradient, version):
                self.sum = gradient + (self.sum if step else {})
            def compress(self, gradient):
                return DenseUpdate(self.sum + gradient)
        return Half()
    @staticmethod
    def legs(options, conditions):
        return (Leg(conditions.own_images // conditions.batch_size),)
    @classmethod
    def trains_locally(cls, options):
        return True
"""
"""A half that can only compress what its local steps have left, as many as its images are for."""
IMPORTED = """\
import numpy as np; from testbed.algorithms.diagnostic import Diagnostic; \
from testbed.algorithms.worker_half import Leg; from testbed.updates import DenseUpdate"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "plugin"))


def look_for_problems(folder: Path) -> None:
    list(problems(plan(load(folder / "momentum.yaml")), folder))


def test_the_example_has_no_mistake(folder: Path) -> None:
    look_for_problems(folder)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            WORKER,
            "        return WholeGradient(layout.size)\n",
            "worker fails, rules.py, line 47: AttributeError: 'Layout' object has no attribute 'size'",
        ),
        (
            WORKER,
            COMPRESSING.format("SparseUpdate(np.argpartition(-abs(gradient), 9)[:9], gradient[:9])"),
            "worker: what the half rules.Momentum.worker.<locals>.Half returned is no update: its indi",
        ),
        (WORKER, COMPRESSING.format("gradient"), "is of the type ndarray, and must be a DenseUpdate"),
        (
            "self.parameters -= self._alpha",
            "self.parameters -= self.alpha",
            "server fails, rules.py, line 34: AttributeError: 'MomentumServer' object has no attribute",
        ),
        (
            WORKER,
            COMPRESSING.format("DenseUpdate(gradient * np.float32(np.random.random()))"),
            "worker: it makes another push of the same gradients the second time, and runs would",
        ),
        (
            WORKER,
            COMPRESSING.format("setattr(self, 'last', [gradient]) or DenseUpdate(gradient)"),
            "worker: its attribute last is what it was given, in memory that others overwrite",
        ),
        (
            "self.parameters -= self._alpha",
            "self.last = {worker: update}\n        self.parameters -= self._alpha",
            "server: its attribute last is what it was given, in memory that others overwrite",
        ),
        (
            "self.parameters -= self._alpha",
            "values = update.values\n        values *= 2\n        self.parameters -= self._alpha",
            "server: it changes the update that it is given",
        ),
        (
            "    options_type = MomentumOptions\n",
            "    options_type = MomentumOptions\n    diagnostics = (Diagnostic('gap', 'The gap.'),)\n",
            "server: the algorithm's diagnostics declare gap, for which diagnose() returned no number",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_found_with_its_place(folder: Path, old: str, new: str, said: str) -> None:
    path = folder / "rules.py"
    text = path.read_text()
    assert old in text
    path.write_text(with_imports(text.replace(old, new)))
    with pytest.raises(SpecError) as refused:
        look_for_problems(folder)
    assert str(refused.value).startswith("algorithm rules:Momentum: its half of the ")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        (
            WORKER,
            COMPRESSING.format("setattr(self, 'who', {object()}) or DenseUpdate(gradient)"),
            "worker",
        ),
        (
            "self.parameters -= self._alpha",
            "self.who = {object()}\n        self.parameters -= self._alpha",
            "server",
        ),
    ],
)
def test_a_state_that_no_checkpoint_can_keep_is_found_where_there_are_checkpoints(
    folder: Path, old: str, new: str, part: str
) -> None:
    path, rules = folder / "momentum.yaml", folder / "rules.py"
    text = rules.read_text()
    assert old in text
    rules.write_text(with_imports(text.replace(old, new)))
    look_for_problems(folder)
    before = path.read_text()
    for engine in ("simulation", "emulation"):
        path.write_text(f"{before}engine: {engine}\ncheckpoints: {{every: 50}}\n")
        with pytest.raises(SpecError) as refused:
            look_for_problems(folder)
        said = f"its half of the {part}: the state['who'][0] cannot be put in a"
        assert said in str(refused.value)


@pytest.mark.parametrize(
    ("algorithm", "remember"),
    [
        ({"name": "asgd"}, False),
        ({"name": "adacomp", "ratio": 0.1}, False),
        ({"name": "adacomp", "ratio": 0.1, "error_feedback": True}, True),
        # How often it has drawn entries.
        ({"name": "comp-asgd", "ratio": 0.1, "selection": "random"}, True),
        ({"name": "downpour", "push_every": 2, "fetch_every": 4}, True),
    ],
)
def test_workers_write_what_they_remember_where_a_checkpoint_needs_it(
    algorithm: dict[str, Any], remember: bool
) -> None:
    base: dict[str, Any] = {
        "name": "small",
        "dataset": "digits",
        "model": "mlp",
        "training": {"updates": 10},
        "clock": "virtual",
        "algorithms": [algorithm],
        "devices": {"workers": 3},
        "compute": {"distribution": "constant", "mean": "1s"},
    }

    def found(**changes: Any) -> bool:
        (one,) = plan(Spec.model_validate(base | changes))
        return workers_remember(one)

    every: dict[str, Any] = {"checkpoints": {"every": 5}}
    assert found(**every) is remember
    assert not found()
    assert not found(**every, clock="wall")


def with_imports(text: str) -> str:
    """Return a plug-in's text with what the mistakes here need; its lines keep their numbers."""
    return text.replace("import numpy as np", IMPORTED, 1)


def with_local_steps(folder: Path, beginning: str) -> Path:
    path = folder / "rules.py"
    path.write_text(with_imports(path.read_text().replace(WORKER, LOCAL.format(beginning))))
    return folder


def test_a_half_is_tried_with_the_local_steps_before_its_push(folder: Path) -> None:
    with pytest.raises(
        SpecError, match=r"worker fails, rules.py, line \d+: NameError: name 'nought'"
    ):
        look_for_problems(with_local_steps(folder, "nought"))


def test_a_leg_without_a_gradient_is_refused(folder: Path) -> None:
    path = with_local_steps(folder, "0") / "rules.py"
    path.write_text(path.read_text().replace("// conditions.batch_size", "// 10**6"))
    with pytest.raises(
        SpecError,
        match=r"worker fails, rules.py, line \d+: ValueError: a leg has one gradient or more",
    ):
        look_for_problems(folder)


def test_a_plan_foretells_the_bytes_of_such_a_half(folder: Path) -> None:
    plans = plan(load(with_local_steps(folder, "0") / "momentum.yaml"))
    look_for_problems(folder)
    assert (
        as_json(plans[1])["expected"]["payload_bytes"]
        == as_json(plans[0])["expected"]["payload_bytes"]
    )
    assert "about 43.8 MB of payload" in describe(plans)[2]
