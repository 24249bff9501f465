"""A run that an ordinary user pretends, with namespaces and programs of the user's own."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil

from testbed.nodes.run_names import AGENT
from tests.end_to_end.conftest import until

USER = 65534

_SCRIPT = textwrap.dedent(
    """
    import ctypes, json, os, sys, time
    from pathlib import Path

    directory, user, outside = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "outside"
    libc = ctypes.CDLL(None, use_errno=True)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    libc.prctl(4, 1, 0, 0, 0)  # dumpable

    def unshare(flags):
        if libc.unshare(flags):
            raise OSError(ctypes.get_errno(), "unshare")

    def namespaces():
        unshare(0x10000000)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {user} 1")
        unshare(0x40000000 | 0x20000 | 0x4000000 | 0x8000000 | 0x20000000)
        network = os.open("/proc/self/ns/net", os.O_RDONLY)
        if os.fork():
            libc.prctl(4, 1, 0, 0, 0)
            return network
        libc.mount(b"none", b"/", b"", 0x44000, None)
        libc.mount(b"proc", b"/proc", b"proc", 0, None)
        for program in ("/usr/bin/id", "/usr/bin/dash"):
            if libc.mount(str(directory / "program").encode(), program.encode(), b"", 4096, None):
                raise OSError(ctypes.get_errno(), program)
        (directory / "ready").write_text("")
        time.sleep(600)

    events = open(directory / "events.jsonl", "a")
    if os.fork():
        time.sleep(600)
    if outside:  # the agent stays in the host's user namespace
        reading, writing = os.pipe()
        holder = os.fork()
        if holder == 0:
            namespaces()
            os.write(writing, b"1")
            time.sleep(600)
        os.read(reading, 1)
        network = os.open(f"/proc/{holder}/ns/net", os.O_RDONLY)
    else:
        network = namespaces()
    table = os.memfd_create("testbed-nodes", 0)
    names = {"worker-0": network, "core": network}
    content = {"networks": names, "routers": ["core"], "containers": {}, "fork_server": None}
    os.write(table, json.dumps(content).encode())
    os.set_inheritable(network, True)
    os.set_inheritable(table, True)
    os.execv("/usr/bin/tail", [sys.argv[4], "-f", "/dev/null"])
    """
)


class Pretended:
    """The run; its processes end with ``close``.

    Attributes:
        directory: its run directory.
    """

    def __init__(self, folder: Path, program: str, *, outside: bool) -> None:
        """Start it.

        Args:
            folder: holds the runs; the user gets it.
            program: the text of the script that ``id`` and ``sh`` are in the devices.
            outside: True if its agent is not in the user namespace of its devices.
        """
        self.directory = folder / "runs" / "pretended" / "20261126-120000-1" / "asgd"
        self.directory.mkdir(parents=True)
        (self.directory / "program").write_text(program)
        (self.directory / "program").chmod(0o755)
        for path in (folder, *folder.rglob("*")):
            os.chown(path, USER, USER)
        where = "outside" if outside else "inside"
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SCRIPT, self.directory, str(USER), where, AGENT],
            cwd=self.directory,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._own = psutil.Process(self.process.pid)
        self.manifest()
        until((self.directory / "ready").exists, "its namespaces")
        until(self._has_agent, "its agent")

    def manifest(self, **other: object) -> None:
        """Write its manifest anew, with other values."""
        content = {
            "format": 1,
            "experiment": "pretended",
            "algorithm": "asgd",
            "seed": 1,
            "started": "2026-11-26T12:00:00+00:00",
            "ended": "running",
            "workers": 1,
            "pid": self.process.pid,
            "pid_started": self._own.create_time(),
        }
        path = self.directory / "manifest.json"
        path.write_text(json.dumps(content | other))
        os.chown(path, USER, USER)

    def _has_agent(self) -> bool:
        return any(child.cmdline()[:1] == [AGENT] for child in self._own.children())

    def close(self) -> None:
        for process in (*self._own.children(recursive=True), self._own):
            process.kill()
        self.process.wait()
