"""Containers of a real engine: what they see of the host."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.containers.fleet import Fleet
from testbed.nodes import run_names
from testbed.nodes.interface import Device
from tests.containers.private_engine import TINY, PrivateEngine, private_engine

pytestmark = [pytest.mark.real, pytest.mark.exercises("Docker, roles started by the image")]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateEngine]:
    with private_engine(tmp_path_factory.mktemp("engine")) as one:
        yield one


def test_a_folder_whose_path_has_a_colon_is_seen_inside(
    engine: PrivateEngine, tmp_path: Path
) -> None:
    """A colon is what an engine's bind strings are separated by."""
    folder = tmp_path / "data:of 2026,read-only"
    folder.mkdir()
    (folder / "labels").write_text("seven")
    trace = tmp_path / "12:30.csv"
    trace.write_text("0.5")
    mounts = {str(folder): "/data", str(trace): str(trace)}
    fleet = Fleet(engine.client, run_names.new(), TINY, mounts=mounts)
    try:
        fleet.create([Device("worker-0")], lambda made: False)
        process = Path(f"/proc/{fleet['worker-0'].first}")
        assert (process / "root/data/labels").read_text() == "seven"
        assert (process / "root" / trace.relative_to("/")).read_text() == "0.5"
        lines = (process / "mountinfo").read_text().splitlines()
        (options,) = (line.split()[5] for line in lines if line.split()[4] == "/data")
        assert "ro" in options.split(",")
    finally:
        assert fleet.take_down() is None
    assert engine.containers() == []
