"""The fork server: a process that loads the heavy libraries once and forks every role.

A process that imports torch by itself has about ten times the private memory of one forked from a
parent that has imported it, and starts in seconds instead of milliseconds.

There are two kinds of nodes. One that is made here gets its own pid, mount, uts and ipc namespaces,
and the network namespace whose descriptor came with the request. The server is then the first process
of the run's pid namespace: when it ends, for any reason, the kernel ends every node with it. The other
kind is a container that exists already, which the forked process enters
(``testbed.nodes.joining_container``). The server is then a process of the host's pid namespace, as
only from there can the container's pid namespace be entered.

The roles are reached through one entry point that is given at the start, so that this module knows
nothing of what a role does.

Trap: a forked child has only the forking thread. Nothing imported or run before the first fork may
leave a lock held by another thread; the warm-up therefore runs with one compute thread.
"""

import contextlib
import errno
import gc
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NoReturn, TypeAlias, TypedDict, TypeVar

from testbed.channel import Channel
from testbed.messages.agent_reports import LibrariesLoaded, ProcessExited, ProcessStarted, RunFailed
from testbed.messages.codec import send
from testbed.messages.planned_nodes import PlannedNodes
from testbed.messages.processes import FORK_REQUESTS, ForkRole, SignalRole
from testbed.messages.requests import Load
from testbed.nodes import etc_files, joining_container, linux
from testbed.nodes.child_exits import ChildExits
from testbed.nodes.confinement import confine, needed, seclude
from testbed.nodes.role_output import RoleOutput
from testbed.nodes.run_names import FORK_SERVER, TITLES
from testbed.signal_handlers import STOPPING


@dataclass(frozen=True, slots=True)
class Seen:
    """What nodes see of the host's folders that are hidden.

    Attributes:
        shown: the paths that they see all the same.
        written: the one of these with a folder for each device, in which that may write.
    """

    shown: Sequence[Path] = ()
    written: Path | None = None


def _prepare(nodes: PlannedNodes) -> Seen:
    """Prepare this process's mount namespace, of which nodes get a copy; return what they see of it."""
    etc_files.cover(etc_files.shared(nodes["addresses"]))
    read, written = nodes.get("read", ()), nodes.get("written")
    if written is None:
        shown = needed(read)
        seclude(shown)
        return Seen(shown)
    if (folder := nodes.get("folder")) is not None:
        linux.mount(folder, written, "", linux.MS_BIND)
    shown = needed([*read, written])
    seclude(shown)
    return Seen(shown, Path(written))


A = TypeVar("A")
Role: TypeAlias = Callable[[A, Channel], int]
"""A node's function: takes its arguments and the channel for reports; returns the exit status."""


def _fail(control: Channel, error: Exception) -> None:
    """Report why nothing can be loaded, and wait until the other end closes.

    The first process of a pid namespace ends that, and the agent, which may be about to fork a capture
    there, would end by that (ENOMEM) before it has read the reason.
    """
    traceback.print_exc()
    send(control, RunFailed(f"{type(error).__name__}: {error}"[:2000]))
    while control.receive() is not None:
        pass


def serve(control: Channel, load: Load, nodes: PlannedNodes | None) -> None:
    """Serve requests until the other end of ``control`` closes.

    It answers with events of nodes, in which process ids are as seen from here; either
    ``LibrariesLoaded`` or ``RunFailed`` comes once.

    Args:
        load: its ``entry`` makes the ``Role``.
        nodes: those that are made here; None if nodes are containers.
    """
    linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
    linux.set_title(FORK_SERVER)
    if os.getpid() == 1:
        linux.mount_proc()
    own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    # What is loaded stays: a search of it for garbage would take a tenth of the loading.
    gc.disable()
    try:
        role: Role[Any] = resolve_name(load["entry"])(load["arguments"])
        seen = Seen() if nodes is None else _prepare(nodes)
    except Exception as error:
        _fail(control, error)
        return
    # Objects made so far are shared by all children; a collection in a child would write to each of
    # them and so copy their pages.
    gc.freeze()
    gc.enable()
    # Nodes inherit this: a node that wakes up does not preempt another's computation.
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    send(control, LibrariesLoaded())

    children: dict[int, str] = {}
    with (
        selectors.DefaultSelector() as selector,
        contextlib.closing(ChildExits()) as exits,
        contextlib.closing(RoleOutput()) as output,
    ):
        for source in (control, exits, output):
            selector.register(source, selectors.EVENT_READ)
        own = (selector.fileno(), own_pids, control.fileno())

        def forget() -> None:
            """Release, in a forked node, what belongs to the fork server only."""
            exits.close()
            output.become_own()
            for fd in own:
                os.close(fd)

        while True:
            for key, _ in selector.select():
                if key.fileobj is output:
                    output.pass_on()
                    continue
                if key.fileobj is exits:
                    ended = list(exits.read())
                    output.pass_on()  # what a role says at its end is in the log when its end is known
                    _report_exits(control, children, ended)
                    continue
                received = control.receive()
                if received is None:
                    return
                request = FORK_REQUESTS.decode(received)
                if isinstance(request, SignalRole):
                    for pid, device in children.items():
                        if device == request.device:
                            _signal(pid, request.signal)
                    continue
                try:
                    pid = _start(
                        request,
                        received.descriptors,
                        role,
                        seen,
                        own_pids=own_pids,
                        forget=forget,
                    )
                except FileNotFoundError:  # its container was killed meanwhile
                    send(control, ProcessExited(request.device, -signal.SIGKILL))
                    continue
                children[pid] = request.device
                send(control, ProcessStarted(request.device, pid))


def _signal(process: int, number: int) -> None:
    """Send a node's first process a signal; one that stops or continues goes to all of the node's.

    A process that is stopped starts no other one, so that this ends.
    """
    os.kill(process, number)
    if number not in (signal.SIGSTOP, signal.SIGCONT):
        return
    reached = {process}
    while new := set(_beside(process)) - reached:
        for one in new:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, number)
        reached |= new


def _beside(process: int) -> Iterator[int]:
    """Yield the processes in the pid namespace of a process."""
    with contextlib.suppress(OSError):  # it has just ended
        own = Path(f"/proc/{process}/ns/pid").stat().st_ino
        for one in linux.processes():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{one}/ns/pid").stat().st_ino == own:
                    yield one


def _report_exits(
    control: Channel, children: dict[int, str], exits: Iterable[tuple[int, int]]
) -> None:
    """Report the nodes that have ended and remove them from ``children``."""
    for pid, status in exits:
        if pid in children:  # others are orphans that the kernel has made children of this process
            send(control, ProcessExited(children.pop(pid), status))


def _start(
    request: ForkRole,
    descriptors: Sequence[int],
    role: Role[Any],
    seen: Seen,
    *,
    own_pids: int,
    forget: Callable[[], None],
) -> int:
    """Fork one node, which first calls ``forget``; return its process id as seen from here.

    Closes the descriptors in any case.

    Raises:
        FileNotFoundError: the container that it should enter has ended.
    """
    with contextlib.ExitStack() as handed:
        for fd in descriptors:
            handed.callback(os.close, fd)
        first = request.container
        if first is None:
            linux.unshare(linux.CLONE_NEWPID)
        else:
            with Path(f"/proc/{first}/ns/pid").open() as pids:
                linux.setns(pids.fileno(), linux.CLONE_NEWPID)
        try:
            pid = os.fork()
        except OSError as error:
            linux.setns(own_pids, linux.CLONE_NEWPID)
            if first is not None and error.errno == errno.ENOMEM:  # the namespace has ended
                raise FileNotFoundError(f"container of process {first}") from error
            raise
        if pid == 0:
            status = 70
            try:
                forget()
                linux.set_title(f"{TITLES}{request.device}")
                _begin_anew()
                if first is None:
                    _contain(request.device, descriptors[1:], seen)
                elif request.beside:
                    joining_container.join(first)
                else:
                    joining_container.enter(first)
                status = role(request.role, Channel.from_descriptor(descriptors[0]))
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        # Without this the next unshare(CLONE_NEWPID) is refused: the namespace for children is no
        # longer this process's own.
        linux.setns(own_pids, linux.CLONE_NEWPID)
        return pid


def _begin_anew() -> None:
    """Reset what the forked process has inherited from its parent: signal handlers, session."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_DFL)
    os.setsid()


def _contain(device: str, descriptors: Sequence[int], seen: Seen) -> None:
    """Turn the forked process into a node: control groups, namespaces, host name, confinement."""
    network, *groups = descriptors
    for group in groups:
        os.write(group, b"0")
        os.close(group)
    linux.setns(network, linux.CLONE_NEWNET)
    os.close(network)
    linux.unshare(linux.CLONE_NEWNS | linux.CLONE_NEWUTS | linux.CLONE_NEWIPC)
    linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
    socket.sethostname(device)
    confine(device, seen.shown, seen.written)


# -- in a new interpreter, which has loaded what roles need and nothing else
#
# A device copies each page on which it counts references. Of a process that has planned a run these are
# more pages than of a new interpreter, which has fewer Python objects; with many devices they cost more
# than loading torch a second time.

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]);"
    f"from {__name__} import serve_handed; serve_handed(int(sys.argv[1]))"
)
"""Looks for modules where this process does: a plug-in's are not where the interpreter's are."""


class _Handed(TypedDict):
    """The content of the file that the new interpreter reads, as JSON; the file has no name."""

    control: int
    load: Load
    nodes: PlannedNodes | None


def serve_anew(control: Channel, load: Load, nodes: PlannedNodes | None) -> NoReturn:
    """Serve as ``serve`` does, in a new interpreter in place of this one.

    All descriptors that are open are inherited, at their numbers, as a fork would.

    Raises:
        OSError: the interpreter cannot be started.
    """
    handed = _Handed(control=control.fileno(), load=load, nodes=nodes)
    file = os.memfd_create("load")
    with os.fdopen(os.dup(file), "w", encoding="utf-8") as written:
        json.dump(handed, written)
    for descriptor in linux.open_descriptors():
        os.set_inheritable(descriptor, True)
    options = ("-P", "-X", f"utf8={sys.flags.utf8_mode}", "-c", _PROGRAM)
    os.execv(
        sys.executable, [sys.executable, *options, str(file), json.dumps([*map(str, sys.path)])]
    )


def serve_handed(file: int) -> None:
    """Serve with what ``serve_anew`` has handed; the only call of the new interpreter."""
    with os.fdopen(file, "rb") as read:
        read.seek(0)
        handed: _Handed = json.load(read)
    serve(Channel.from_descriptor(handed["control"]), handed["load"], handed["nodes"])
