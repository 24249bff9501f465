"""Make a process part of a container that an engine made, as the engine's exec does.

The container's first process gives its namespaces, control groups and user. The pid namespace is set
before the fork, by the forking process: only the children of a process enter one.

Unlike the engine's own exec, this does not apply the container's seccomp filter and AppArmor profile,
which the engine loads and which are no properties of the container.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from testbed.nodes import linux
from testbed.nodes.control_group import mounts, paths_of

NAMESPACES = {
    "net": linux.CLONE_NEWNET,
    "uts": linux.CLONE_NEWUTS,
    "ipc": linux.CLONE_NEWIPC,
    "cgroup": linux.CLONE_NEWCGROUP,
    "mnt": linux.CLONE_NEWNS,  # last, as it replaces this process's /proc
}
"""The namespaces of a node but those of its processes and users, in the order to enter them."""


def enter(first: int) -> None:
    """Enter the container of process ``first``, become its user and give up every capability.

    The calling process must have one thread and be in the container's pid namespace already.

    Args:
        first: id of the container's first process in this process's /proc.

    Raises:
        OSError: the container has ended, or this process is not root.
    """
    user, group = _share(first, NAMESPACES)
    os.chdir("/")
    linux.give_up_privileges(user, group)


def join(first: int) -> None:
    """Share processes, network and control groups with a container, and see the host's files.

    This process stays who it is, and the container's cannot look into it.

    Args:
        first: as for ``enter``, in the same circumstances.

    Raises:
        OSError: the container has ended, or this process is not root.
    """
    _share(first, ("net",))
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
    linux.mount_proc()
    linux.hide_own_proc()


def _share(first: int, namespaces: Iterable[str]) -> tuple[int, int]:
    """Enter control groups and namespaces of process ``first``; return its user and group."""
    # A process that has taken the id of one that ended is not found through a descriptor.
    opened = os.open(f"/proc/{first}", os.O_RDONLY | os.O_CLOEXEC)
    process = Path(f"/proc/self/fd/{opened}")
    if not (process / "ns" / "pid").samefile("/proc/self/ns/pid"):
        raise ProcessLookupError(f"process {first} is not the container's")
    status = linux.fields_of(process / "status")
    user, group = (int(status[which][1]) for which in ("Uid", "Gid"))  # the effective ones
    handles = {
        name: os.open(process / "ns" / name, os.O_RDONLY | os.O_CLOEXEC) for name in namespaces
    }
    groups = list(control_groups(process))
    os.close(opened)
    for members in groups:
        members.write_text("0")
    for name, handle in handles.items():
        linux.setns(handle, NAMESPACES[name])
        os.close(handle)
    return user, group


def control_groups(process: int | Path) -> Iterator[Path]:
    """Yield the ``cgroup.procs`` files of a process's groups, one for each mounted hierarchy.

    Args:
        process: its id, or its folder in /proc.
    """
    groups = paths_of(Path("/proc", str(process)))
    done = set()
    for mount in mounts():
        for controller in mount.controllers:
            group = groups.get(controller)
            own = None if group is None else mount.folder_of(group)
            if own is None or mount.point in done:
                continue
            done.add(mount.point)
            yield own / "cgroup.procs"
