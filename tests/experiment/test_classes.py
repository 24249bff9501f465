"""Classes of devices in the experiment file: their members, their settings, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.clock.lines import lines
from testbed.durations import Durations
from testbed.errors import SpecError
from testbed.experiment.load import dump, load
from testbed.experiment.spec import Spec
from testbed.json_dataclasses import to_plain
from testbed.network.links import Shape
from testbed.planning import node_plan
from testbed.planning.plan import Plan, plan
from testbed.training.settings import Settings
from testbed.training.times import Times

BASE = """
name: three
dataset: digits
model: mlp
training: {updates: 100}
algorithms: [asgd]
"""
THREE = """
network: {uplink: 10mbit, loss: 1%}
compute: {mean: 100ms}
waiting: {distribution: uniform, mean: 1s}
devices:
  workers: 20
  classes:
    - {name: fast, share: 30%}
    - {name: medium, share: 40%, waiting: {distribution: uniform, mean: 10s}, uplink: 5mbit, loss: 0}
    - {name: slow, share: 30%, compute: {mean: 3s}, downlink: 20mbit, delay: 10ms}
"""


def read(tmp_path: Path, text: str, *overrides: str) -> Spec:
    path = tmp_path / "spec.yaml"
    path.write_text(BASE + text)
    return load(path, overrides)


def planned(tmp_path: Path, text: str, *overrides: str) -> Plan:
    (one,) = plan(read(tmp_path, text, *overrides))
    return one


def test_each_class_has_its_own_settings_or_the_shared_ones(tmp_path: Path) -> None:
    one = planned(tmp_path, THREE)
    settings = one.settings
    times = [[one.model_dump() for one in both] for both in settings.times_of_kinds]
    short, long = ({"distribution": "uniform", "mean": mean} for mean in (1.0, 10.0))
    assert times == [
        [{"distribution": "constant", "mean": 0.1}, short],
        [{"distribution": "constant", "mean": 0.1}, long],
        [{"distribution": "constant", "mean": 3.0}, short],
    ]
    shapes = [
        (Shape(10_000_000, 0.0, 0.01), Shape()),
        (Shape(5_000_000, 0.0, 0.0), Shape()),
        (Shape(10_000_000, 0.01, 0.01), Shape(20_000_000)),
    ]
    for number, of in enumerate(settings.class_of):
        link = one.links[2 + number]
        assert (link.uplink, link.downlink) == shapes[of]
        assert settings.conditions(number).uplink == shapes[of][0].rate
        up, down = lines(settings, number, number)
        assert up.send(0, 1000) > 0
        assert down.instant is (of != 2)
    # No class shapes the links of the server and the evaluator.
    assert all((link.uplink, link.downlink) == (Shape(), Shape()) for link in one.links[:2])
    assert settings.conditions().uplink == 10_000_000


def test_classes_and_factors_of_equal_shares_have_the_same_members(tmp_path: Path) -> None:
    class_of = planned(tmp_path, THREE).settings.class_of
    groups = [{"share": share, "factor": 1.0} for share in (0.3, 0.4, 0.3)]
    section = {"distribution": "constant", "mean": 1.0, "classes": groups}
    assert tuple(class_of) == Durations.of(section, 1, "compute", 20).classes
    assert np.bincount(class_of).tolist() == [6, 8, 6]
    other = planned(tmp_path, THREE, "seed=2").settings.class_of
    assert class_of != other
    by_number = THREE.replace("30%", "6").replace("40%", "8").replace("share", "number")
    assert planned(tmp_path, by_number).settings.class_of == class_of
    assert planned(tmp_path, "devices: {workers: 20}").settings.class_of == []


def test_a_class_with_the_same_law_leaves_the_times_unchanged(tmp_path: Path) -> None:
    """A class whose mean is ten times as long draws the same numbers times ten."""
    law = "{distribution: cvb, mean: 100ms, machine_variation: 0.6}"
    text = f"compute: {law}\nwaiting: {{mean: 1s}}\ndevices: {{workers: 7%s}}"
    classes = (
        f", classes: [{{name: a, number: 3, compute: {law}}}, {{name: b, number: 4, "
        "waiting: {mean: 10s}}]"
    )
    alike = planned(tmp_path, text % "").settings
    apart = planned(tmp_path, text % classes).settings
    for device in range(7):
        one, other = (Times.of(settings).of_device(device) for settings in (alike, apart))
        for now in range(5):
            computing, waiting = one.draw(now)
            factor = 10 if apart.class_of[device] else 1
            other_computing, other_waiting = other.draw(now)
            assert other_computing == computing
            assert other_waiting == pytest.approx(factor * waiting, rel=1e-12)
            assert factor == 10 or other_waiting == waiting
    assert set(apart.class_of) == {0, 1}


def test_the_gradient_time_is_the_mean_over_all_devices(tmp_path: Path) -> None:
    virtual = ("clock=virtual", "network.loss=0")
    one = planned(tmp_path, THREE, *virtual).settings
    assert one.timing.gradient_time == pytest.approx(0.7 * 0.1 + 0.3 * 3 + 0.6 * 1 + 0.4 * 10)
    # Factors use the same shuffle: the slower half is all slow and half of the medium devices,
    # but the section of the medium ones has no factors.
    halves = "waiting.classes=[{share: 50%, factor: 1}, {share: 50%, factor: 3}]"
    one = planned(tmp_path, THREE, *virtual, halves).settings
    assert one.timing.gradient_time == pytest.approx(0.97 + 0.3 * 1 + 0.4 * 10 + 0.3 * 3)
    times = Times.of(one)
    means = [
        sum(part.mean for part in (times.of_device(i).compute, times.of_device(i).waiting))
        for i in range(20)
    ]
    assert one.timing.gradient_time == pytest.approx(sum(means) / 20)
    assert planned(tmp_path, THREE).settings.timing.gradient_time is None


def test_options_are_checked_against_the_conditions_that_the_halves_get(tmp_path: Path) -> None:
    own = "algorithms=[{name: asgd, learning_rate: 0.5}]"
    for more in ((), ("clock=virtual", "network.loss=0")):
        one = planned(tmp_path, THREE, own, *more)
        (options,) = one.spec.algorithms
        assert one.spec.conditions(options) == one.settings.conditions()
        assert one.settings.conditions().learning_rate == 0.5


def test_cpu_and_memory_limits_are_those_of_the_class(tmp_path: Path) -> None:
    text = """
devices:
  workers: 10
  runtime: docker
  cpus: 0.5
  memory: 400MiB
  classes:
    - {name: a, share: 60%}
    - {name: b, share: 40%, cpus: 0.25, memory: 300MiB}
"""
    one = planned(tmp_path, text)
    devices = {device.pop("name"): device for device in map(dict[str, Any], node_plan.devices(one))}
    assert devices["server"] == devices["evaluator"] == {}
    expected = [{"cpus": 0.5, "memory": 400 * 2**20}, {"cpus": 0.25, "memory": 300 * 2**20}]
    assert [devices[f"worker-{i}"] for i in range(10)] == [
        expected[of] for of in one.settings.class_of
    ]


def test_a_dumped_spec_loads_as_an_equal_spec(tmp_path: Path) -> None:
    spec = read(tmp_path, THREE)
    text = dump(spec)
    assert "- {name: fast, share: 30%}" in text
    path = tmp_path / "again.yaml"
    path.write_text(text)
    assert load(path) == spec


def refusals(tmp_path: Path, classes: str, more: str = "", devices: str = "") -> list[str]:
    text = f"{more}\ndevices: {{workers: 10, classes: {classes}{devices}}}"
    with pytest.raises(SpecError) as refused:
        read(tmp_path, text)
    return [line.partition(": ")[2] for line in str(refused.value).splitlines()]


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        ("[{share: 100%}]", "devices.classes.0.name: is missing; for example `name: slow`"),
        ("[{name: a b, share: 100%}]",
         "devices.classes.0.name: 'a b' cannot be a class's name: use up to 64 letters, digits, '-' "
         "and '_'"),
        ("[{name: a}]",
         "devices.classes.0: has neither a share nor a number: give it one"),
        ("[{name: a, share: 100%, number: 10}]",
         "devices.classes.0: has both a share and a number: give it one"),
        ("[{name: a, share: 50%}, {name: b, number: 5}]",
         "devices.classes: some have a share and some a number: give all a share, or all a number"),
        ("[{name: a, number: 5}, {name: b, number: 4}]",
         "devices.classes: the numbers add up to 9 and not to devices.workers, 10"),
        ("[{name: a, share: 50%}, {name: b, share: 40%}]",
         "devices.classes: the shares add up to 90% and not to 100%"),
        ("[{name: a, share: 50%}, {name: a, share: 50%}]",
         "devices.classes.1.name: 'a' is already the name of devices.classes.0"),
        ("[{name: a, share: 100%, cpus: 0.5}]",
         "devices.classes.0.cpus: only containers have it: take it out, or use `runtime: docker`"),
        ("[{name: a, share: 100%, waiting: {classes: [{share: 100%, factor: 2}]}}]",
         "devices.classes.0.waiting.classes: a class cannot have classes: make them classes of "
         "devices, or take them out"),
        ("[{name: a, share: 100%, weight: 2}]",
         "devices.classes.0.weight: is of `partition: sizes` only: write that, or take it out"),
        ("[{name: a, share: 100%, uplnk: 1mbit}]",
         "devices.classes.0.uplnk: unknown key; did you mean 'uplink'?"),
        ("[{name: a, share: 100%, compute: {mean: 1}}]",
         "devices.classes.0.compute.mean: '1' has no unit: write a number and one of ns, us, ms, s, "
         "min, h, e.g. 50ms or 1.5s (or a plain 0)"),
    ],
)  # fmt: skip
def test_an_impossible_class_is_refused_with_its_place(
    tmp_path: Path, classes: str, expected: str
) -> None:
    assert refusals(tmp_path, classes) == [expected]


def test_virtual_clock_refuses_classes_with_losses_or_without_durations(tmp_path: Path) -> None:
    classes = "[{name: a, share: 50%, waiting: {mean: 0}}, {name: b, share: 50%, loss: 1%}]"
    assert refusals(tmp_path, classes, "clock: virtual\nwaiting: {mean: 1s}") == [
        "devices.classes.0: nothing takes any time there, and the virtual clock would not advance: "
        "give computing a duration, for example `compute: {distribution: exponential, mean: 100ms}`",
        "devices.classes.1.loss: nothing is lost under the virtual clock: take it out, or use "
        "`clock: wall`",
    ]
    linked = classes.replace("loss: 1%", "loss: 0").replace("{mean: 0}", "{mean: 0}, delay: 1ms")
    spec = read(
        tmp_path,
        f"clock: virtual\nwaiting: {{mean: 1s}}\ndevices: {{workers: 2, classes: {linked}}}",
    )
    assert spec.link_of(spec.devices.classes[0]).first_shapes()[0].delay == 0.001


def test_settings_with_classes_survive_json(tmp_path: Path) -> None:
    import json

    settings = planned(tmp_path, THREE).settings
    crossed: dict[str, Any] = json.loads(json.dumps(to_plain(settings)))
    assert to_plain(Settings.of_plain(crossed)) == to_plain(settings) == crossed
    assert settings.device(settings.class_of.index(2)).delay == 0.01
