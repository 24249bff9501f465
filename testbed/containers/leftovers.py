"""Containers and folders that killed runs left with the engine and on the host."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import docker
from docker.models.containers import Container

from testbed.containers.fleet import FOLDERS, MAKER_LABEL, RUN_LABEL
from testbed.nodes import linux, run_names


def containers(client: docker.DockerClient) -> Iterator[Container]:
    """Yield the containers, in any state, of runs of this host that have ended.

    Runs in another pid namespace (a testbed inside a container that uses the same engine) are left
    out: it cannot be seen from here if they have ended.
    """
    here = linux.namespace_id("pid")
    for container in client.containers.list(
        all=True, filters={"label": RUN_LABEL}, ignore_removed=True
    ):
        maker = container.labels.get(MAKER_LABEL, "")
        rebooted = maker.split(":")[0] != here.split(":")[0]
        if rebooted or (maker == here and run_names.is_over(container.labels[RUN_LABEL])):
            yield container


def folders() -> list[Path]:
    """Return the folders of runs that have ended."""
    return run_names.folders_left(FOLDERS)


def remove_folders(process: int) -> None:
    """Remove the folders of ended runs that a process drove.

    Raises:
        OSError: one cannot be removed.
    """
    for path in folders():
        if path.match(run_names.pattern(process)):
            shutil.rmtree(path)
