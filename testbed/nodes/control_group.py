"""A run's control groups: one for the run and one below it for each device, to freeze it.

cgroup v1 (the freezer hierarchy) or v2 is used, as found. If none can be written, which is usual for
an ordinary user, there is no group and nodes are frozen with SIGSTOP instead. A process joins by
writing "0" itself, so that no process id crosses a pid namespace.

A group of v2 also counts the processor time of its processes, of those that have ended, too. Beside the
freezer of v1 there is a second group for that: of v2, if that is mounted as well, or of v1's cpuacct.
"""

import contextlib
import errno
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.nodes import run_names


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """A directory in a cgroup hierarchy.

    Attributes:
        version: 1 (a hierarchy of one controller) or 2.
    """

    path: Path
    version: int

    def child(self, name: str) -> "ControlGroup":
        """Return the group of one device below this one, making it if necessary."""
        group = ControlGroup(self.path / name, self.version)
        group.path.mkdir(exist_ok=True)
        return group

    @property
    def members_file(self) -> Path:
        """The file that moves a process which writes "0" to it into the group."""
        return self.path / "cgroup.procs"

    def freeze(self) -> None:
        """Freeze every process of the group; return once all are frozen."""
        self._set_frozen(frozen=True)

    def thaw(self) -> None:
        """Thaw the processes of a frozen group."""
        self._set_frozen(frozen=False)

    def _set_frozen(self, *, frozen: bool) -> None:
        if self.version == 1:
            wanted, state = ("FROZEN" if frozen else "THAWED"), self.path / "freezer.state"
            state.write_text(wanted)
        else:
            wanted, state = f"frozen {int(frozen)}", self.path / "cgroup.events"
            (self.path / "cgroup.freeze").write_text(str(int(frozen)))
        deadline = time.monotonic() + 5
        while wanted not in state.read_text():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.path} was not {'frozen' if frozen else 'thawed'} in 5 s")
            time.sleep(0.001)

    def kill(self) -> None:
        """Kill every process of the group, frozen or not, of which none runs on; then let it go on."""
        for process in self.members_file.read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
        self.thaw()  # a frozen process of v1 dies only now, and does nothing else before

    def remove(self) -> None:
        """Remove the group and those below it; their processes must have ended, or have been killed."""
        for path in sorted(self.path.glob("*/"), reverse=True):
            _remove_empty(path)
        _remove_empty(self.path)


def _is_frozen(path: Path) -> bool:
    """Return True if a group of v1 is frozen: what is killed in it dies only when it thaws."""
    state = path / "freezer.state"
    return state.exists() and state.read_text().strip() != "THAWED"


def _remove_empty(path: Path) -> None:
    """Remove a group, waiting up to 2 s for processes that are exiting, or die once it is thawed."""
    deadline = time.monotonic() + 2
    while True:
        try:
            path.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
            if _is_frozen(path):
                ControlGroup(path, 1).thaw()
            time.sleep(0.005)
        else:
            return


def processor_seconds(group: Path) -> float:
    """Return the processor time of a group's processes so far, in seconds, in v2 or v1's cpuacct.

    Raises:
        OSError: the group is gone, or does not count it.
    """
    usage = group / "cpuacct.usage"
    if usage.exists():
        return int(usage.read_text()) / 1e9
    lines = (group / "cpu.stat").read_text("utf-8", "replace").splitlines()
    return int(dict(line.split() for line in lines)["usage_usec"]) / 1e6


def paths_of(process: Path) -> dict[str, str]:
    """Return the path of a process's group by controller ("" of v2), given its folder in /proc."""
    paths: dict[str, str] = {}
    for line in (process / "cgroup").read_text("utf-8", "surrogateescape").splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    return paths


def own_groups(controller: str = "freezer") -> list[ControlGroup]:
    """Return this process's groups in the hierarchies that may have a controller, in mount order.

    Groups that can be frozen may be made below those with the freezer.
    """
    own = paths_of(Path("/proc/self"))
    found = []
    for mount in mounts():
        of = controller if controller in mount.controllers else ""
        if of or mount.version == 2:
            folder = mount.folder_of(own.get(of, mount.root))
            # A group that is not in the mount is no group of this process that can be seen.
            found += [ControlGroup(folder, mount.version)] if folder else []
    return found


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted cgroup hierarchy.

    Attributes:
        root: the group that is mounted, as /proc names it.
        point: the folder where it is mounted.
        version: 1 or 2.
        controllers: the mount's options, among them the controllers of v1; of v2 only "".
    """

    root: str
    point: Path
    version: int
    controllers: Sequence[str]

    def folder_of(self, group: str) -> Path | None:
        """Return the folder of a group, as /proc names it; None if it is not in what is mounted.

        In a container on a host with v1 the container's own group is mounted, and not the root.
        """
        root = self.root.rstrip("/")
        if group != self.root and not group.startswith(f"{root}/"):
            return None
        return self.point / group.removeprefix(root).lstrip("/")


def mounts() -> Iterator[Mount]:
    """Yield the hierarchies that this process sees, in mount order."""
    for line in Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines():
        fields, _, tail = line.partition(" - ")
        kind, _, options = tail.split(" ", 2)
        root, point = fields.split(" ")[3:5]
        if kind == "cgroup":
            yield Mount(root, Path(point), 1, options.split(" ")[-1].split(","))
        elif kind == "cgroup2":
            yield Mount(root, Path(point), 2, ("",))


def create(name: str | None = None) -> ControlGroup | None:
    """Make the group of the run that this process drives; return None if it may write none.

    Args:
        name: the run's name, of ``run_names``; None for a new one.
    """
    name = name or run_names.new()
    for place in own_groups():
        group = ControlGroup(place.path / name, place.version)
        with contextlib.suppress(OSError):
            group.path.mkdir()
            probe = "freezer.state" if place.version == 1 else "cgroup.freeze"
            if os.access(group.path / probe, os.W_OK) and os.access(group.members_file, os.W_OK):
                return group
            group.path.rmdir()
    return None


def create_account(group: ControlGroup | None) -> ControlGroup | None:
    """Make the group that counts the processor time of a run; return None if there can be none.

    Args:
        group: the run's, as ``create`` returned it; itself, if it counts.
    """
    if group is None or group.version == 2:
        return group
    by_v2 = sorted(own_groups("cpuacct"), key=lambda place: place.version, reverse=True)
    for place in by_v2:
        account = ControlGroup(place.path / group.path.name, place.version)
        with contextlib.suppress(OSError, KeyError):
            account.path.mkdir(exist_ok=True)
            processor_seconds(account.path)
            if os.access(account.members_file, os.W_OK):
                return account
            account.path.rmdir()
    return None


def _places() -> list[ControlGroup]:
    """Return this process's groups below which groups of runs may be, each once."""
    return list(dict.fromkeys([*own_groups(), *own_groups("cpuacct")]))


def made_by(process: int) -> list[ControlGroup]:
    """Return the groups that a process has made for its runs, even if it has ended."""
    return [
        ControlGroup(path, place.version)
        for place in _places()
        for path in sorted(place.path.glob(f"{run_names.pattern(process)}/"))
    ]


def left_over() -> list[ControlGroup]:
    """Return the groups of ended runs: their maker has ended, and none of their processes is left.

    What is frozen has been killed with that process, and dies when the group is removed.
    """
    found = []
    for place in _places():
        for path in sorted(place.path.glob(f"{run_names.PREFIX}*/")):
            members = [*path.glob("cgroup.procs"), *path.glob("*/cgroup.procs")]
            if run_names.is_over(path.name) and not any(
                file.read_text().strip() and not _is_frozen(file.parent) for file in members
            ):
                found.append(ControlGroup(path, place.version))
    return found
