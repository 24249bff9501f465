"""Containers and folders that killed runs left with the engine and on the host."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import docker
from docker.errors import NotFound
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


def remove_containers(client: docker.DockerClient) -> list[str]:
    """Remove the containers of runs that have ended; return their names."""
    removed = []
    for container in containers(client):
        try:
            container.remove(force=True)
        except NotFound:
            continue  # the engine has removed it meanwhile
        removed.append(str(container.name))
    return removed


def folders() -> list[Path]:
    """Return the folders of runs that have ended."""
    return [
        path
        for path in sorted(FOLDERS.glob(f"{run_names.PREFIX}*/"))
        if run_names.is_over(path.name)
    ]


def remove_folders(process: int | None = None) -> list[str]:
    """Remove the folders of ended runs, or only those that a process drove; return their paths."""
    removed = [
        path for path in folders() if process is None or path.match(run_names.pattern(process))
    ]
    for path in removed:
        shutil.rmtree(path)
    return list(map(str, removed))
