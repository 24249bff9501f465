"""Experiment files that can, or cannot, be carried out without an orchestrator."""

from pathlib import Path

import pytest

from testbed.errors import SpecError
from testbed.standalone.experiment_file import read

REPOSITORY = Path(__file__).parents[2]
FILE = REPOSITORY / "compose" / "experiment.yaml"
SECRET = "ab" * 32


def changed(folder: Path, old: str, new: str) -> Path:
    text = FILE.read_text()
    assert old in text
    path = folder / "experiment.yaml"
    path.write_text(text.replace(old, new))
    return path


def test_the_file_that_comes_with_compose_is_accepted() -> None:
    settings = read(FILE, SECRET).settings
    assert (settings.network.secret, settings.timing.own_processors) == (SECRET, True)


def test_several_servers_are_accepted_whose_addresses_are_not_known_yet(tmp_path: Path) -> None:
    settings = read(changed(tmp_path, "{workers: 3}", "{workers: 3, servers: 3}"), SECRET).settings
    assert settings.servers == 3
    assert settings.network.server_addresses == ["", "", ""]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "waiting:",
            "network: {uplink: 5mbit}\nwaiting:",
            "network.uplink: .* does not shape links",
        ),
        ("waiting:", "network: {delay: 5ms}\nwaiting:", "network.delay: .* does not shape links"),
        (
            "waiting:",
            "network: {server: {uplink: 1gbit}}\nwaiting:",
            "network.server: .* does not shape links",
        ),
        (
            "waiting:",
            "network: {clusters: [{name: a, share: 1}]}\nwaiting:",
            "network.clusters: .* does not shape links",
        ),
        ("waiting:", "clock: virtual\nwaiting:", "clock: .* only the wall clock"),
        ("waiting:", "engine: simulation\nwaiting:", "engine: .* cannot simulate"),
        ("algorithms:\n", "algorithms:\n  - asgd\n", "algorithms: .* the file names 2"),
        ("{name: adacomp, ratio: 0.01}", "all-to-all", "has no server"),
        (
            "{workers: 3}",
            "{workers: 3, servers: 2, placement: co-located}",
            "devices.placement: .* servers on hosts of their own",
        ),
        (
            "{name: adacomp, ratio: 0.01}",
            "hierarchical\nnetwork: {clusters: [{name: a, share: 1}]}",
            "algorithms: .* has no aggregators",
        ),
        ("waiting:", "checkpoints: {every: 10}\nwaiting:", "checkpoints: .* writes none"),
        (
            "waiting:",
            "faults: [{who: {number: 1}, when: {iteration: 5}, how: kill}]\nwaiting:",
            "faults: .* makes no faults happen",
        ),
        (
            "{workers: 3}",
            "{workers: 3, runtime: docker, cpus: 0.5}",
            "devices: .* does not limit devices",
        ),
    ],
)
def test_a_setting_that_needs_an_orchestrator_is_refused(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    path = changed(tmp_path, old, new)
    with pytest.raises(SpecError, match=said) as refused:
        read(path, SECRET)
    assert str(refused.value).startswith(f"{path}: ")
