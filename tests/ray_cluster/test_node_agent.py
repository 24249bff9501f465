"""The agent that an actor of Ray's starts, without Ray."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.doctor.cleaning import clean
from testbed.nodes import run_names
from tests.end_to_end.conftest import until


@pytest.mark.real
@pytest.mark.exercises("namespaces")
@pytest.mark.skipif(os.geteuid() != 0, reason="agents need root")
@pytest.mark.parametrize("ending", ["driver", "actor", "kill"])
def test_it_ends_with_the_driver_and_with_the_actor_and_its_folder_goes(ending: str) -> None:
    driver = socket.create_server(
        ("127.0.0.1", 0), backlog=1
    )  # which accepts nothing, as the real one
    arguments = ["127.0.0.1", "127.0.0.1", str(driver.getsockname()[1])]
    actor = subprocess.Popen(
        [sys.executable, "-m", "testbed.ray_cluster.node_agent", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"TESTBED_SECRET": "0123456789abcdef"},
        text=True,
    )
    assert actor.stdin is not None
    assert actor.stdout is not None
    with actor.stdin, actor.stdout, driver:
        folder = Path(actor.stdout.readline().strip().removeprefix("files are in "))
        assert not run_names.is_over(folder.name)
        actor.stdin.write("\n")
        actor.stdin.flush()
        assert actor.stdout.readline().startswith("waiting on 127.0.0.1:")
        if ending == "kill":
            os.kill(int(folder.name.split("-")[1]), signal.SIGKILL)
        else:
            (driver if ending == "driver" else actor.stdin).close()
        assert actor.stdout.read() == ""  # until its end
    if ending == "kill":
        assert str(folder) in [one.name for one in clean()]
    until(lambda: not folder.exists(), "the end of the folder")
    assert actor.wait(10) == 0  # the process that has forked it
