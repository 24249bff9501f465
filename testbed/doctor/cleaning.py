"""Remove what killed runs left on this host."""

from collections.abc import Iterator

from testbed.doctor import containers
from testbed.nodes.control_group import left_over


def clean() -> Iterator[str]:
    """Remove control groups, containers and folders of runs that are over; yield what was removed.

    Raises:
        HostError: there may be containers, and no engine answers.
    """
    for group in left_over():
        group.remove()
        yield str(group.path)
    yield from containers.clean()
