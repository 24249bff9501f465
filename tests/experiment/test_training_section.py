"""The experiment file's section ``training``: schedules in updates and epochs, and refusals."""

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.algorithms.learning_rate import ConstantRate, RateSchedule
from testbed.errors import SpecError
from testbed.experiment.load import load
from testbed.json_dataclasses import to_plain
from testbed.planning.plan import Plan, plan
from testbed.training.computation import changes
from testbed.training.settings import Settings

BASE = """
name: schedules
dataset: {name: digits, train_images: 400}
model: mlp
devices: {workers: 4}
compute: {distribution: constant, mean: 1s}
engine: simulation
"""


def planned(tmp_path: Path, text: str) -> Plan:
    path = tmp_path / "spec.yaml"
    path.write_text(BASE + text)
    (one,) = plan(load(path))
    return one


def training(options: str) -> str:
    return f"training: {{updates: 100, batch_size: 20, {options}}}\n"


@pytest.mark.parametrize(
    ("unit", "algorithm", "found"),
    [
        ("updates", "asgd", {"warm_up": 2, "milestones": [3, 4.5]}),
        ("epochs", "asgd", {"warm_up": 40, "milestones": [60, 90]}),  # 400 / 20 updates
        ("epochs", "sync-sgd", {"warm_up": 10, "milestones": [15, 22.5]}),
        ("epochs", "{name: sync-sgd, wait_for: 2}", {"warm_up": 20, "milestones": [30, 45]}),
        ("epochs", "all-to-all", {"warm_up": 40, "milestones": [60, 90]}),
    ],
)
def test_an_epoch_is_as_many_updates_as_take_all_images(
    tmp_path: Path, unit: str, algorithm: str, found: dict[str, Any]
) -> None:
    schedule = f"schedule: {{unit: {unit}, warm_up: 2, milestones: [3, 4.5]}}"
    settings = planned(tmp_path, training(schedule) + f"algorithms: [{algorithm}]").settings
    crossed = Settings.of_plain(json.loads(json.dumps(to_plain(settings))))
    assert crossed.rate == settings.rate
    assert isinstance(settings.rate, RateSchedule)
    assert {key: getattr(settings.rate, key) for key in found} == found
    assert settings.rate.updates == 100


def test_without_options_nothing_is_changed(tmp_path: Path) -> None:
    settings = planned(tmp_path, training("learning_rate: 0.2") + "algorithms: [asgd]").settings
    own = settings.training
    assert (settings.rate, own.weight_decay, own.clip) == (ConstantRate(0.2), 0, None)
    assert not changes(settings)


OWN = """
plugins: [own.py]
algorithms: ["own:Plain"]
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (training("schedule: {milestones: [5, 3]}"), "milestones are above 0 and ascend"),
        (training("schedule: {milestones: [0]}"), "milestones are above 0 and ascend"),
        (training("schedule: {milestones: [5], cosine_to: 0}"), "milestones or a cosine"),
        (training("schedule: {milestones: [5], warm_up: 6}"), "is in the warm-up"),
        (training("schedule: {milestones: [5, 6], factor: 1001}"), "grows by 1001 at 2 milestones"),
        (training("weight_decay: -1"), "training.weight_decay"),
        (training("clip: 0"), "training.clip"),
        (
            "training: {updates: 9, schedule: {unit: epochs, warm_up: 1}}\n"
            "network: {clusters: [{name: a, share: 100%}]}\nalgorithms: [hierarchical]",
            "no known number of gradients: use updates",
        ),
        (training("clip: 1") + "partition: stream\nalgorithms: [all-to-all]", "call no server"),
    ],
)
def test_what_cannot_be_right_is_refused(tmp_path: Path, text: str, said: str) -> None:
    algorithms = "" if "algorithms" in text else "\nalgorithms: [asgd]"
    path = tmp_path / "spec.yaml"
    path.write_text(BASE + text + algorithms)
    with pytest.raises(SpecError, match=said):
        load(path)


def test_one_of_several_servers_deals_no_stream(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    base = BASE.replace("workers: 4", "workers: 4, servers: 2")
    path.write_text(f"{base}training: {{updates: 9}}\npartition: stream\nalgorithms: [asgd]\n")
    with pytest.raises(SpecError, match="one server deals the stream, and there are several"):
        load(path)


def test_a_schedule_needs_an_algorithm_that_asks_for_the_rate(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from testbed.algorithms.asgd import Asgd\n\nclass Plain(Asgd):\n    scheduled = False\n"
    )
    path = tmp_path / "spec.yaml"
    path.write_text(BASE + training("schedule: {warm_up: 3}") + OWN)
    with pytest.raises(SpecError, match="own:Plain has a constant learning rate"):
        load(path)
