"""The file of hosts: what it may say, and who is placed where."""

from pathlib import Path

import pytest

from testbed.errors import SpecError
from testbed.orchestrator.hosts.hosts_file import HostsFile, patterns

GOOD = """underlay: 10.0.0.1
hosts: {b: {agent: '10.0.0.2:99'}, c: {agent: 10.0.0.3, underlay: 10.1.0.3}}
"""


def loaded(folder: Path, text: str) -> HostsFile:
    path = folder / "hosts.yaml"
    path.write_text(text, encoding="utf-8")
    return HostsFile.load(path)


def test_devices_are_divided_by_the_hosts_processors(tmp_path: Path) -> None:
    file = loaded(tmp_path, GOOD)
    assert [(one.port, one.underlay) for one in file.others] == [
        (99, "10.0.0.2"),
        (14_790, "10.1.0.3"),
    ]
    devices = [f"worker-{number}" for number in range(10)]
    placed = file.placed(devices, {"": 1, "b": 3, "c": 1})
    assert placed == dict.fromkeys(devices[2:8], "b") | dict.fromkeys(devices[8:], "c")
    assert file.placed(devices, {"": 7, "b": 0, "c": 0}) == {}


def test_devices_are_placed_by_name_and_by_range(tmp_path: Path) -> None:
    text = f"{GOOD}place: {{peer-0: c, 'peer-3..11': b}}\n"
    devices = [f"peer-{number}" for number in range(13)]
    placed = loaded(tmp_path, text).placed(devices, {})
    assert placed == {"peer-0": "c"} | {f"peer-{number}": "b" for number in range(3, 12)}
    assert patterns(placed) == ["peer-0", "peer-3..11"]
    with pytest.raises(SpecError, match="place: peer-0 is no device of the experiment"):
        loaded(tmp_path, text).placed(["worker-0"], {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"underlay"),
        ("hosts: 3\nunderlay: 10.0.0.1", r"hosts.yaml:1: hosts: "),
        (GOOD + "secret: abc\n", r"hosts.yaml:3: secret: unknown key"),
        (GOOD.replace("10.0.0.1", "here"), r"underlay: 'here' is no IPv4 address"),
        (GOOD.replace(":99", ":99999"), r"hosts.b.agent: '99999' is no port"),
        (GOOD.replace(":99", ":²"), r"hosts.b.agent: '²' is no port"),
        (GOOD.replace("'10.0.0.2:99'", "'fd00::1'"), r"hosts.b.agent: 'fd00' is no IPv4 address"),
        (GOOD + "port: 0\n", r"hosts.yaml:3: port: "),
        (GOOD + "port: 70000\n", r"hosts.yaml:3: port: "),
        (GOOD.replace("b:", "'':"), r"hosts: '' is no name"),
        (GOOD.replace("b:", '"\\e[31mb":'), r"hosts: '\\x1b\[31mb' is no name"),
        (GOOD.replace("10.0.0.2:", "10.0.0.1:"), r"hosts.b: 10.0.0.1 is the address of this host"),
        (GOOD.replace("10.1.0.3", "10.0.0.2"), r"hosts.c: 10.0.0.2 is the address of host b for"),
        (GOOD + "place: {worker-0: d}\n", r"place: worker-0 is on d, which is none of the hosts"),
        (GOOD.replace("10.0.0.3", "8.8.8.8"), r"8.8.8.8 is no private address.*trusted: true"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        loaded(tmp_path, text)


def test_another_network_may_be_trusted(tmp_path: Path) -> None:
    text = GOOD.replace("10.0.0.3", "8.8.8.8") + "trusted: true\n"
    assert loaded(tmp_path, text).others[1].address == "8.8.8.8"
