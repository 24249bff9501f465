"""What the fork server loads for all roles."""

import json
import subprocess
import sys
from typing import Any

import pytest

from testbed.channel import Channel
from testbed.experiment.load import load as load_experiment
from testbed.json_dataclasses import to_plain
from testbed.learning.description import describe
from testbed.planning.plan import plan
from testbed.roles import entry
from testbed.training import computation
from tests.docs.blocks import REPOSITORY


def test_a_forked_role_describes_no_model_anew() -> None:
    # A description imports modules, which are not there in a container that a role is forked into.
    (one,) = plan(load_experiment(REPOSITORY / "examples" / "plugin" / "pictures.yaml"))
    describe.cache_clear()
    loaded = entry._load({"settings": to_plain(one.settings)}, 0)
    described = describe.cache_info().misses
    assert described > 0
    for number, part in enumerate(loaded.parts):
        computation.batches(loaded.settings, loaded.data.take(part, test=False), part, number)
    assert describe.cache_info().misses == described


LATE = """
import json, sys
from testbed.roles import entry

settings = json.load(sys.stdin)
assert "clarabel" not in sys.modules
entry._load(settings, 0)
assert "clarabel" in sys.modules
"""


def test_modules_that_an_algorithm_imports_late_are_there_before_the_fork() -> None:
    # In a process of its own: an extension module cannot be unloaded from one that has it.
    (one,) = plan(load_experiment(REPOSITORY / "experiments" / "agree-backup-workers.yaml"))[:1]
    settings = json.dumps({"settings": to_plain(one.settings)})
    subprocess.run([sys.executable, "-c", LATE], input=settings, text=True, check=True)


def test_a_role_that_fails_when_its_run_has_ended_fails_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def evaluate(_: entry._Role) -> None:
        raise ConnectionResetError("the server is gone")

    monkeypatch.setattr(entry._Role, "_evaluate", evaluate)
    ours, theirs = Channel.pair()
    ours.close()
    nothing: Any = None
    role = entry._Role(nothing, nothing, theirs)
    assert role.run({"role": "evaluator", "number": 0}) == entry.FAILED
    theirs.close()
