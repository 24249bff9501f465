"""Linux system calls that Python's standard library lacks; their errors name the call."""

import contextlib
import ctypes
import fcntl
import functools
import mmap
import os
import resource
import socket
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MS_BIND = 0x1000

_MNT_DETACH = 2
_SETTINGS = "/proc/sys"
_SET_INTERFACE_FLAGS = 0x8914
_INTERFACE_UP = 0x1

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_ARG_START = 48
"""The number of this field of /proc/[pid]/stat, of which the first two have no spaces to count by."""
_NS_GET_USERNS = 0xB701
_NS_GET_OWNER_UID = 0xB704

_MOUNT_SETATTR = 442
"""The number of the system call, on every architecture."""
_AT_WORKING_FOLDER, _AT_RECURSIVE = -100, 0x8000
_ATTRIBUTE_READ_ONLY, _ATTRIBUTE_NO_SET_USER_ID = 0x1, 0x2
_CAPABILITY_VERSION = 0x20080522

MAP_FIXED = 0x10
MAP_NORESERVE = 0x4000
_MADV_COLLAPSE = 25  # since Linux 6.1; needs no setting of the host

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p


class _MountAttributes(ctypes.Structure):
    """``struct mount_attr`` of mount_setattr(2)."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user"))


def _checked(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def map_memory(start: int | None, size: int, protection: int, flags: int) -> int:
    """Call mmap(2) for anonymous memory; return where it begins."""
    place = (ctypes.c_void_p(start), ctypes.c_size_t(size), protection, flags | mmap.MAP_ANONYMOUS)
    found: int | None = _libc.mmap(*place, -1, ctypes.c_long(0))
    failed = found is None or found == ctypes.c_void_p(-1).value
    _checked(-1 if failed else 0, f"mmap of {size} bytes")
    assert found is not None
    return found


def collapse(start: int, size: int) -> bool:
    """Have madvise(2) move memory into large pages; return False where the kernel has none to give."""
    place = (ctypes.c_void_p(start), ctypes.c_size_t(size))
    done: int = _libc.madvise(*place, _MADV_COLLAPSE)
    return done == 0


def unshare(flags: int) -> None:
    """Call unshare(2); with CLONE_NEWPID only later children are in the new namespace."""
    _checked(_libc.unshare(ctypes.c_int(flags)), f"unshare({flags:#x})")


def setns(fd: int, kind: int) -> None:
    """Call setns(2): move this thread into the namespace that ``fd`` refers to."""
    _checked(_libc.setns(ctypes.c_int(fd), ctypes.c_int(kind)), f"setns({kind:#x})")


def mount(source: str, target: str, filesystem: str, flags: int = 0, options: str = "") -> None:
    """Call mount(2)."""
    _checked(
        _libc.mount(
            os.fsencode(source),
            os.fsencode(target),
            filesystem.encode(),
            ctypes.c_ulong(flags),
            options.encode() or None,
        ),
        f"mount {filesystem or source} on {target}",
    )


def unmount(target: str) -> None:
    """Take a file system off its folder; what was mounted from it elsewhere stays there."""
    _checked(_libc.umount2(os.fsencode(target), ctypes.c_int(_MNT_DETACH)), f"umount {target}")


def make_read_only(folder: str) -> None:
    """Make a mounted file system and those below it read-only here, and their programs gain nothing."""
    gained = _ATTRIBUTE_READ_ONLY | _ATTRIBUTE_NO_SET_USER_ID
    _set_attributes(folder, _AT_RECURSIVE, gained=gained)


def make_writable(folder: str) -> None:
    """Make a file system that is mounted on a folder writable here, if it is so on the host."""
    _set_attributes(folder, 0, lost=_ATTRIBUTE_READ_ONLY)


def _set_attributes(folder: str, flags: int, *, gained: int = 0, lost: int = 0) -> None:
    wanted = _MountAttributes(gained, lost, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(wanted))
    place = (_AT_WORKING_FOLDER, os.fsencode(folder), flags)
    done = _libc.syscall(_MOUNT_SETATTR, *place, ctypes.byref(wanted), size)
    _checked(done, f"mount_setattr {folder}")


def give_up_capabilities() -> None:
    """Give up every capability for good: no program can regain one, whoever's it is."""
    _drop_bounding_set()
    head = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    _checked(_libc.capset(head, (ctypes.c_uint32 * 6)()), "capset")
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)")


def _drop_bounding_set() -> None:
    capability = 0
    while _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1  # until the kernel knows no more capabilities


def die_with_parent(signal_number: int, parent: int | None = None) -> None:
    """Ask the kernel to send this process a signal when its parent dies.

    Args:
        parent: the parent's process id; if that parent has died already, this process ends at once
            (the kernel sends no signal for a parent that died before the call). ``None`` skips the
            check, for a parent outside this process's pid namespace.
    """
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def become_subreaper() -> None:
    """Make this process, not the first one, the parent of what its descendants leave behind."""
    _checked(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl(PR_SET_CHILD_SUBREAPER)")


def set_title(title: str) -> None:
    """Show this process under another title: ``ps`` and ``pgrep -f`` find that in place of its command.

    The kernel reads a command from where it lies in the process's memory, so that a title is cut to the
    length of the command. What follows the last colon is the short name, which ``top`` shows.
    """
    _libc.prctl(_PR_SET_NAME, title.rpartition(":")[2].encode()[:15], 0, 0, 0)
    begin, end = _place_of_command()
    if room := max(0, end - begin - 1):  # 0 where the kernel shows no addresses
        ctypes.memmove(begin, title.encode()[:room].ljust(room, b"\0"), room)


@functools.cache
def _place_of_command() -> tuple[int, int]:
    """Return where this process's command begins and ends; that of a forked process lies there, too."""
    fields = stat_of("self")
    return int(fields[_ARG_START - 3]), int(fields[_ARG_START - 2])


def stat_of(process: int | str) -> list[str]:
    """Return the fields of a process's ``stat`` that follow its name: its state, its parent, and so on.

    Raises:
        OSError: there is no such process, or it is another user's.
    """
    text = Path(f"/proc/{process}/stat").read_text("utf-8", "replace")
    return text.rpartition(")")[2].split()


def fields_of(path: str | Path) -> dict[str, list[str]]:
    """Return the words of each line of a file in /proc such as ``status``, by what is before its colon.

    Raises:
        OSError: there is no such process, or it is another user's.
    """
    lines = Path(path).read_text("utf-8", "replace").split("\n")
    return {name: words.split() for name, _, words in (line.partition(":") for line in lines)}


def one_level_up(process: int) -> int:
    """Return the id of a process in the parent of its pid namespace.

    Raises:
        OSError, LookupError: there is no such process, or it is in this process's pid namespace.
    """
    return int(fields_of(f"/proc/{process}/status")["NSpid"][-2])


def children_of(process: int) -> list[int]:
    """Return the ids of a process's children; none if it has ended, or the kernel has no such list."""
    try:
        path = Path(f"/proc/{process}/task/{process}/children")
        return [int(one) for one in path.read_text("utf-8", "replace").split()]
    except OSError:
        return []


def is_over(process: int | str) -> bool:
    """Return True if a process has ended or is a zombie."""
    try:
        return stat_of(process)[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def processes() -> list[int]:
    """Return the ids of the processes that are in /proc."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def open_descriptors() -> list[int]:
    """Return the descriptors that this process has open."""
    listed = [int(name) for name in os.listdir("/proc/self/fd")]
    # Among them is the one of the listing itself, which is closed.
    return [one for one in listed if os.path.lexists(f"/proc/self/fd/{one}")]


def close_all_but(kept: Iterable[int]) -> None:
    """Close the descriptors of this forked process, but not the parent's Python objects that hold them.

    These stay where the parent had them: to free them would close what has their numbers by then.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    begun = 0
    for descriptor in (*sorted(kept), soft):
        if begun < descriptor:  # asked for none of those from 0 on, Python would close all
            os.closerange(begun, descriptor)
        begun = descriptor + 1


def show_own_proc() -> None:
    """Show this process's /proc to other processes of this user, as before a change of user.

    The kernel hides that of a process that has gained capabilities, as one does that makes a user
    namespace. Children inherit the setting.
    """
    _checked(_libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0), "prctl(PR_SET_DUMPABLE)")


def hide_own_proc() -> None:
    """Keep other processes of this user from tracing this process and reading its memory.

    It lasts until the next exec.
    """
    _checked(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "prctl(PR_SET_DUMPABLE)")


def mount_proc() -> None:
    """Mount the /proc of this process's pid namespace."""
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def uncover_settings() -> None:
    """Take off the read-only mount with which a container engine covers /proc/sys, if there is one.

    The caller is in a mount namespace of its own. Where it may not, writing a setting fails.
    """
    with contextlib.suppress(OSError):
        unmount(_SETTINGS)


def give_up_privileges(user: int, group: int, groups: Sequence[int] = ()) -> None:
    """Become an ordinary user for good: without capabilities, which no program can regain.

    Args:
        groups: the supplementary groups.

    Raises:
        OSError: the calling process may not change its user.
    """
    _drop_bounding_set()
    os.setgroups(groups)
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)")


def owning_user_namespace(namespace: int) -> int:
    """Return a new descriptor of the user namespace in which ``namespace`` was made.

    Raises:
        PermissionError: that is not this process's own user namespace, and none below it.
    """
    return fcntl.ioctl(namespace, _NS_GET_USERNS)


def owner_of_user_namespace(user_namespace: int) -> int:
    """Return the user, as this process numbers users, who made a user namespace."""
    return int.from_bytes(fcntl.ioctl(user_namespace, _NS_GET_OWNER_UID, bytes(4)), sys.byteorder)


@contextlib.contextmanager
def inside_network(namespace: int) -> Iterator[None]:
    """Run the body in another network namespace; sockets made there stay there.

    Only the calling thread moves.
    """
    with _away_from_home():
        setns(namespace, CLONE_NEWNET)
        yield


def new_network() -> int:
    """Make a network namespace, whose loopback is up, and return its descriptor.

    The caller stays in its own.
    """
    with _away_from_home():
        unshare(CLONE_NEWNET)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            request = struct.pack("16sH14x", b"lo", _INTERFACE_UP)
            fcntl.ioctl(any_socket, _SET_INTERFACE_FLAGS, request)
        return own_network()


@contextlib.contextmanager
def _away_from_home() -> Iterator[None]:
    """Bring this thread back into its network namespace after the body."""
    home = own_network()
    try:
        yield
    finally:
        setns(home, CLONE_NEWNET)
        os.close(home)


def own_network() -> int:
    """Return a new descriptor of this thread's network namespace."""
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def namespace_id(kind: str) -> str:
    """Return an id of this process's namespace of a kind, such as ``net``, that no other host has."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8", "replace").strip()
    return f"{boot}:{Path(f'/proc/self/ns/{kind}').stat().st_ino}"


def set_sysctl(name: str, value: str) -> None:
    """Write a sysctl (``net.ipv4.ip_forward``) of the namespaces that this thread is in."""
    (Path(_SETTINGS) / name.replace(".", "/")).write_text(value)
