"""The control groups of this process, by what /proc says of them and of the mounts."""

from pathlib import Path

import pytest

from testbed.nodes import control_group
from testbed.nodes.control_group import ControlGroup, Mount, own_groups

OWN = "/docker/0123"


def mounted(root: str) -> list[Mount]:
    folder = Path("/sys/fs/cgroup")
    of_v1 = [Mount(root, folder / name, 1, ["rw", name]) for name in ("freezer", "pids")]
    return [*of_v1, Mount(root, folder / "unified", 2, [""])]


@pytest.mark.parametrize(
    ("root", "group", "inside"),
    [
        ("/", OWN, OWN),  # the host, or a container that sees its hierarchies
        (OWN, OWN, ""),  # a container on a host with v1
        (OWN, f"{OWN}/below", "/below"),
        ("/", "/", ""),  # in a namespace of control groups
    ],
)
def test_own_groups_are_found_where_they_are_mounted(
    root: str, group: str, inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = f"9:name=systemd:{group}\n8:pids:{group}\n4:freezer:{group}\n0::{group}\n"
    monkeypatch.setattr(control_group, "mounts", lambda: mounted(root))
    monkeypatch.setattr(Path, "read_text", lambda *_: lines)
    of = {"freezer": ("freezer", "unified"), "pids": ("pids", "unified")}
    for controller, names in of.items():
        assert own_groups(controller) == [
            ControlGroup(Path(f"/sys/fs/cgroup/{name}{inside}"), 2 if name == "unified" else 1)
            for name in names
        ]


def test_a_group_that_is_not_mounted_is_none_of_the_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """``/docker/01`` begins as ``/docker/0123`` does."""
    monkeypatch.setattr(control_group, "mounts", lambda: mounted("/docker/01"))
    monkeypatch.setattr(Path, "read_text", lambda *_: f"4:freezer:{OWN}\n0::{OWN}\n")
    assert own_groups() == []
