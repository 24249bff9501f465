"""Remove what killed runs left on this host."""

from collections.abc import Iterator

from testbed.doctor import containers
from testbed.doctor.findings import Leftover, removed, removed_folders
from testbed.nodes import run_names
from testbed.nodes.confinement import HOST_FOLDERS
from testbed.nodes.control_group import left_over


def clean() -> Iterator[Leftover]:
    """Remove control groups, folders and containers of runs that are over; yield each of them."""
    for group in left_over():
        yield removed(group.path, group.remove)
    yield from removed_folders(run_names.folders_left(HOST_FOLDERS))
    yield from containers.clean()
