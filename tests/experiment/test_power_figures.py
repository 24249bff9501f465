"""What devices draw: from their own section, their hardware and their link's profile."""

import re
from pathlib import Path

import pytest

from testbed.device_power import DevicePower
from testbed.experiment.profiles import HARDWARE
from testbed.planning.plan import plan
from tests.experiment.test_directions import read, refused

COMPUTE = "compute: {distribution: exponential, mean: 20ms}\n"


def powers(tmp_path: Path, text: str, devices: str) -> list[DevicePower | None]:
    (one,) = plan(read(tmp_path, COMPUTE + text, devices))
    return [one.settings.device(number).power for number in range(one.settings.workers)]


def test_one_core_has_its_share_of_what_all_cores_draw() -> None:
    assert HARDWARE["raspberry-pi-4"].draws == (1.6, 1.6 + (5.0 - 1.6) / 4)
    assert HARDWARE["phone"].draws is None  # no source was found


def test_a_class_comes_before_all_devices_and_a_figure_before_hardware(tmp_path: Path) -> None:
    devices = """
devices:
  workers: 4
  hardware: raspberry-pi-4
  power: {busy: 3W, sent: 1uJ}
  classes:
    - {name: general, number: 1}
    - {name: other, number: 1, hardware: raspberry-pi-5, profile: wifi}
    - {name: unknown, number: 1, hardware: phone}
    - {name: own, number: 1, hardware: phone, power: {idle: 500mW, busy: 4W, received: 0}}
"""
    (one,) = plan(read(tmp_path, f"{COMPUTE}network: {{profile: 4g}}\n", devices))
    assert [kind.power for kind in one.settings.kinds_of_devices] == [
        DevicePower(1.6, 3, 1e-6, 4.2e-7),
        DevicePower(2.8, 4.525, 2.3e-6, 1.1e-6),
        None,
        DevicePower(0.5, 4, 1e-6, 0),
    ]


def test_a_link_of_which_nothing_is_known_costs_nothing(tmp_path: Path) -> None:
    found = powers(
        tmp_path,
        "network: {uplink: 1mbit}\n",
        "devices: {workers: 1, power: {idle: 1W, busy: 2W}}\n",
    )
    assert found == [DevicePower(1, 2)]


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        ("power: {sent: 1uJ}", "devices.power: there is no energy without idle and busy: give"),
        ("hardware: phone, power: {idle: 1W}", "devices.power: there is no energy without busy"),
        (
            "power: {idle: 3W, busy: 2W}, classes: [{name: a, share: 100%}]",
            "devices.power: busy, 2 W, is less",
        ),
        ("power: {idle: 3}", "devices.power.idle: '3' has no unit: .* e.g. 2.7W"),
        (
            "classes: [{name: a, share: 100%, power: {busy: 2W}}]",
            "devices.classes.0.power: there is no energy without idle",
        ),
    ],
)  # fmt: skip
def test_figures_that_give_no_energy_are_refused(tmp_path: Path, devices: str, said: str) -> None:
    told = refused(tmp_path, COMPUTE, f"devices: {{workers: 2, {devices}}}\n")
    assert re.search(said, told), told
    assert "\n" not in told
