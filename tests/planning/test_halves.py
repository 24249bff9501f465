"""Mistakes in an algorithm of one's own that are found before a run starts."""

import shutil
from pathlib import Path

import pytest

from testbed.doctor.requirements import problems
from testbed.errors import SpecError
from testbed.experiment.load import load
from testbed.planning.plan import plan

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"
WORKER = "        return WholeGradient()\n"
COMPRESSING = """\
        class Half(WholeGradient):
            def compress(self, gradient):
                return {}
        return Half()
"""


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
    ],
)  # fmt: skip
def test_a_mistake_is_found_with_its_place(folder: Path, old: str, new: str, said: str) -> None:
    path = folder / "rules.py"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(SpecError) as refused:
        look_for_problems(folder)
    assert str(refused.value).startswith("algorithm rules:Momentum: its half of the ")
    assert said in str(refused.value)
