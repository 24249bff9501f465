"""The checkpoints that the orchestrator keeps when it resumes a run."""

import os
from contextlib import ExitStack
from pathlib import Path

from testbed.checkpoints.checkpoint_marks import Mark, Marks
from testbed.checkpoints.files import CheckpointFiles
from testbed.checkpoints.periodic_checkpoints import Checkpoints
from testbed.orchestrator.checkpoint_store import CheckpointStores
from testbed.orchestrator.server_ingress import ServerIngress
from testbed.runs.resuming import FOLDER, Resumption
from testbed.telemetry.run_log import Kept


def mark(version: int, updates: int) -> Mark:
    return Mark(version, version / 10, updates, 0, 0, 0, 0, [{}], [0])


def test_a_killed_server_finds_no_checkpoint_later_than_the_mark(
    tmp_path: Path,
) -> None:
    folder = tmp_path / FOLDER
    with CheckpointFiles.open(folder, ()) as files:
        marks = Marks(folder)
        for version in (20, 30):
            files.write(version, {"version": version})
            marks.note(mark(version, updates=version + 5))
        # The host crashed: its journals end between the two checkpoints.
        lock = os.open(tmp_path, os.O_RDONLY)
        again = Resumption(
            *(Kept({}, {}, (), {}), {"version": 20}, [mark(20, 25)], [files]),
            host_seconds=2.0,
            lock=lock,
        )
        stores = CheckpointStores(tmp_path, 10, again, ["server"], whole=True)
        with ExitStack() as opened:
            stores.open(opened)
            server = Checkpoints(10, CheckpointFiles(files.descriptors, ()))
            assert server.newest() == {"version": 20}
            # It writes another checkpoint, whose mark is not written yet.
            server.write(30, {"version": 30})
            assert Marks.load(folder).of(30) is None
            stores.each[0].begin(mark(30, updates=31), when=1.0)
            ingress = ServerIngress()
            ingress.counted(2.0, 100)
            stores.write_marks([ingress])
            noted = Marks.load(folder).of(30)
            assert noted is not None and noted.updates == 31
        os.close(lock)
