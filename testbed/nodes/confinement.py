"""What a node made of namespaces sees of its host, and what it may do: as little as a role needs.

The fork server prepares its own mount namespace once, of which each node gets a copy: the host's files
are read-only; homes, sockets, control groups and devices of the host are hidden, but for what a run
reads (its code, its data). A node then gets a /tmp of its own, and gives up every capability for good.

So a role's mistakes end at its node. It is no boundary against a role that means harm: the role is a
process of the user who started the run, on the host's kernel.
"""

import contextlib
import os
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from testbed.nodes import etc_files, linux

HOME = "home"
"""The folder of a device that is the home and working folder of programs."""
HOST_FOLDERS = Path("/var/tmp")
"""The folder in which a host that is not the orchestrator's has folders for runs, by ``run_names``."""
_TMP, _SHARED_MEMORY = Path("/tmp"), "/dev/shm"
_HIDDEN = ("/root", "/run", str(HOST_FOLDERS), "/sys/fs/cgroup")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
_BUILDING = Path("/sys")
"""A folder of every host, over which a file system is put together before it gets to its place."""
_FLAGS = linux.MS_NOSUID | linux.MS_NODEV
_SIZE = "size=64m,mode=1777"
_SIZE_OF_PROGRAMS = "size=1g,mode=1777"
"""The room in the /tmp of a device with programs of users; it is taken as files are written."""


def needed(paths: Collection[str]) -> tuple[Path, ...]:
    """Return what nodes read, wherever it lies: Python, the code, the working folder and ``paths``."""
    here = Path.cwd()
    found = [Path(one) for one in (sys.prefix, sys.base_prefix, *sys.path, *paths) if one]
    # Python looks for modules where it was started. That alone is no reason to show a whole home.
    found = [path for path in found if path != here]
    if here not in _hidden():
        found.append(here)
    existing = {path.absolute() for path in found if path.exists()}
    return tuple(sorted(existing | {path.resolve() for path in existing}))


def _hidden() -> tuple[Path, ...]:
    return tuple(dict.fromkeys([*map(Path, _HIDDEN), Path.home()]))


def seclude(shown: Collection[Path]) -> None:
    """Prepare this process's mount namespace, which those of the nodes will be copies of.

    Args:
        shown: what stays visible, of ``needed``.

    Raises:
        OSError: this process may not mount anything, or Linux is older than 5.12.
    """
    here = Path.cwd()
    for folder in _hidden():
        within_tmp = _TMP in (folder, *folder.parents)
        if folder.is_dir() and not folder.is_symlink() and not within_tmp and folder not in shown:
            _hide(folder, shown)
    with _built(Path("/dev")) as place:
        for name in _DEVICES:
            (place / name).touch()
            linux.mount(f"/dev/{name}", str(place / name), "", linux.MS_BIND)
        for name, target in _LINKS.items():
            (place / name).symlink_to(target)
        (place / "shm").mkdir()
    # A copy, in which no file is open: the kernel refuses it where one is open to be written to.
    linux.unshare(linux.CLONE_NEWNS)
    linux.make_read_only("/")
    _enter(here)


def confine(device: str, shown: Collection[Path], written: Path | None = None) -> None:
    """Turn this process, in a mount namespace of its own, into one that may do what a role needs.

    Args:
        shown: as for ``seclude``.
        written: one of ``shown``, in which each device has a folder by its name, with ``HOME`` in it:
            this device sees its own there, in which it may write, and no other. Its home is at
            ``written / HOME`` as well: at the same path in all devices. None if they write nothing.
    """
    here = Path.cwd()
    size = _SIZE if written is None else _SIZE_OF_PROGRAMS
    if _TMP not in shown:
        _hide(_TMP, shown, size)
        linux.mount(str(_TMP), _SHARED_MEMORY, "", linux.MS_BIND)
    else:
        linux.mount("tmpfs", _SHARED_MEMORY, "tmpfs", _FLAGS, size)
    if written is not None:
        _show_own(written, device)
    etc_files.cover(etc_files.own(device), Path(_SHARED_MEMORY))
    (Path(_SHARED_MEMORY) / etc_files.HOST_NAME).unlink()
    linux.mount_proc()
    linux.make_read_only("/proc")
    _enter(here)
    linux.give_up_capabilities()


def _show_own(written: Path, device: str) -> None:
    """Show a device its own folder and home of a folder of all; it can write to these only."""
    own, home = written / device, written / HOME
    with _built(written) as building:
        for source, place in ((own, building / device), (own / HOME, building / HOME)):
            place.mkdir()
            linux.mount(str(source), str(place), "", linux.MS_BIND)
    linux.make_read_only(str(written))
    linux.make_writable(str(own))
    linux.make_writable(str(home))


def _enter(here: Path) -> None:
    """Enter what is now in the working folder's place: so far this process is in the folder itself.

    That may lie in a file system that is no longer mounted, and then has no path.
    """
    try:
        os.chdir(here)
    except OSError:
        os.chdir("/")


def _hide(folder: Path, shown: Collection[Path], options: str = "mode=755") -> None:
    """Put a new file system over a folder, in which there is what is shown of that."""
    below = [path for path in shown if folder in path.parents]
    if not below:
        _take_off(folder)
        linux.mount("tmpfs", str(folder), "tmpfs", _FLAGS, options)
        return
    with _built(folder, options) as building:
        for path in below:
            if any(parent in below for parent in path.parents):
                continue
            place = building / path.relative_to(folder)
            place.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                place.mkdir()
            else:
                place.touch()
            linux.mount(str(path), str(place), "", linux.MS_BIND | linux.MS_REC)


@contextlib.contextmanager
def _built(folder: Path, options: str = "mode=755") -> Iterator[Path]:
    """Put a new file system over a folder, once it is filled in the body."""
    linux.mount("tmpfs", str(_BUILDING), "tmpfs", _FLAGS, options)
    try:
        yield _BUILDING
        _take_off(folder)
        linux.mount(str(_BUILDING), str(folder), "", linux.MS_BIND | linux.MS_REC)
    finally:
        linux.unmount(str(_BUILDING))


def _take_off(folder: Path) -> None:
    """Unmount what is mounted on a folder, or else leave it below what will be mounted there.

    Each mount of the host is one to copy for each node; there are a dozen of control groups of v1.
    """
    with contextlib.suppress(OSError):  # nothing is; or an ordinary user may not look below it
        linux.unmount(str(folder))
