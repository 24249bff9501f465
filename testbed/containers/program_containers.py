"""Programs of users as containers, which share a device's network and its processes.

The device's own container only waits for the end of the run. Beside it runs the device's keeper
(``testbed.nodes.keeper``), a process of the host, whose child for each program makes that program's
container, passes its output on, and ends with its status.

The containers of a device share one pid namespace, and the first process of that is the device's own
container's. So the kernel ends every program with the device, whatever dies; and what the keeper does
with processes (it signals them, and finds out which have opened which port) is as in namespaces.
"""

import contextlib
import os
import resource
import secrets
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import requests
from docker.errors import DockerException
from docker.types import LogConfig, Mount

from testbed.channel import Channel
from testbed.containers import engine
from testbed.containers.fleet import PROGRAM_LABEL
from testbed.errors import HostError
from testbed.json_dataclasses import of_plain
from testbed.messages.keeper_messages import StartProgram
from testbed.nodes import keeper, linux
from testbed.nodes.confinement import HOME
from testbed.nodes.fork_server import Role
from testbed.nodes.keeper import CANNOT_START, KeeperArguments

HOME_INSIDE = "/home/device"
"""The home of a device's programs, as these see it.

Not the path that it has on the host: below /root, only root could enter it.
"""
SHARED_MEMORY = "1g"
"""The room in /dev/shm of a program; it is taken as files are written. The engine's own is 64 MiB."""
_NO_ENGINE = 125
"""The exit status of a program that the engine refuses or has lost, as ``docker run`` has it."""
_SIGNALLED = 128
"""A container that signal n ends has the exit status 128 + n."""


@dataclass(frozen=True, slots=True)
class Beside:
    """The container of a device, beside which its programs run.

    Attributes:
        container: the engine's id of it.
        name: its name, with which those of programs begin.
        labels: its labels, which those of programs have, too.
        images: each program's image.
        mounts: paths of the host, with their paths inside, read-only.
        cpus, memory: the limits of each program; None for all.
    """

    container: str
    name: str
    labels: Mapping[str, str]
    images: Mapping[str, str]
    mounts: Mapping[str, str]
    cpus: float | None
    memory: int | None


class KeeperBesideArguments(KeeperArguments):
    """The arguments of a keeper beside a device's container.

    Attributes:
        beside: the fields of ``Beside``.
    """

    beside: Mapping[str, object]


def load(_arguments: object) -> Role[KeeperBesideArguments]:
    """Return the function of the keepers, which the fork server calls beside each device."""
    return keep


def keep(role: KeeperBesideArguments, reports: Channel) -> int:
    """Keep the programs of a device; see ``testbed.nodes.keeper.keep``."""
    place, home, own = of_plain(Beside, role["beside"]), Path(role["folder"]) / HOME, os.getpid()

    def become(request: StartProgram, check: Sequence[str] | None) -> int:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # all processes get it: the program's, too
        linux.die_with_parent(signal.SIGKILL, own)
        if check is not None:
            return _try(place, request.program, check)
        return _end_as(_carry_out(place, home, request))

    return keeper.keep(
        {"folder": role["folder"], "home": str(home), "output": role["output"]}, reports, become
    )


def _carry_out(place: Beside, home: Path, request: StartProgram) -> int:
    """Make a program's container, pass its output on, and return its exit status."""
    image = place.images[request.program]
    try:
        api = engine.connect().api
        _open_to_its_user(api, image, home)
        container = _create(api, place, home, request)
        with contextlib.ExitStack() as undoing:
            undoing.callback(_remove, api, container)
            wanted = {"container": container, "event": ["oom", "die"]}
            ends = api.events(filters=wanted, decode=True)
            output = api.attach(container, stream=True)
            api.start(container)
            undoing.pop_all()
        for part in output:
            _say(part)
        return _status(ends, place.memory)
    except (HostError, DockerException, requests.RequestException, OSError) as error:
        text = str(error) if isinstance(error, HostError) else engine.explain(error)
        if request.command and _is_missing(text):
            _say(f"there is no program '{request.command[0]}' in the image {image}\n".encode())
            return CANNOT_START
        _say(f"{text}\n".encode())
        return _NO_ENGINE


def _create(api: docker.APIClient, place: Beside, home: Path, request: StartProgram) -> str:
    """Create a program's container; return the engine's id of it."""
    beside = f"container:{place.container}"
    host = api.create_host_config(
        network_mode=beside,
        pid_mode=beside,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        auto_remove=True,
        shm_size=SHARED_MEMORY,
        mounts=[
            Mount(HOME_INSIDE, str(home), type="bind"),
            *(
                Mount(inside, path, type="bind", read_only=True)
                for path, inside in place.mounts.items()
            ),
        ],
        log_config=LogConfig(type="none"),
        mem_limit=place.memory,
        memswap_limit=place.memory,
        nano_cpus=round(1e9 * (place.cpus or 0)),  # 0 is no limit
    )
    # Without a command, the image's entry point, command and working folder stay.
    own: dict[str, Any] = {}
    if request.command:
        own = {
            "command": list(request.command),
            "entrypoint": [],
            "working_dir": HOME_INSIDE,
        }
    made = api.create_container(
        place.images[request.program],
        # Another container of this program may be about to be removed.
        name=f"{place.name}-{request.program}-{secrets.token_hex(2)}",
        environment=dict(request.environment),
        labels={**place.labels, PROGRAM_LABEL: request.program},
        host_config=host,
        **own,
    )
    return str(made["Id"])


def _remove(api: docker.APIClient, container: str) -> None:
    with contextlib.suppress(DockerException, requests.RequestException, OSError):
        api.remove_container(container, force=True, v=True)


def _open_to_its_user(api: docker.APIClient, image: str, home: Path) -> None:
    """Open a home, which root has made, to an image's user, if that is not root."""
    content = api.inspect_image(image)  # type: ignore[no-untyped-call]
    user = str(content["Config"].get("User") or "")
    if user.partition(":")[0] in ("", "0", "root"):
        return
    for folder, _, files in os.walk(home):
        os.chmod(folder, 0o777)  # noqa: PTH101 - a folder, and no link: os.walk follows none
        for name in files:
            path = Path(folder, name)
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | 0o666)


def _say(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def _status(ends: Iterator[Mapping[str, Any]], memory: int | None) -> int:
    """Wait for the end of a container; return its exit status."""
    for event in ends:
        if event["Action"] == "oom" and memory is not None:
            limit = f"{memory / 2**20:.0f}MiB"
            _say(
                f"the kernel killed a process for using more than the {limit} of memory\n".encode()
            )
        elif event["Action"] == "die":
            return int(event["Actor"]["Attributes"]["exitCode"])
    raise HostError(engine.lost("it ended its answer"))


def _end_as(status: int) -> int:
    """End by the signal that has ended a container; return the status of one that ended otherwise."""
    number = status - _SIGNALLED
    if number not in set(signal.Signals):
        return status
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # SIGKILL has no handler
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return status  # one that ends nothing by default


def _try(place: Beside, program: str, command: Sequence[str]) -> int:
    """Run a command in a program's container; return its exit status."""
    try:
        api = engine.connect().api
        own = {**place.labels, PROGRAM_LABEL: program}
        wanted = {"label": [f"{name}={value}" for name, value in own.items()]}
        found = api.containers(filters=wanted)
        if not found:
            return CANNOT_START
        made = api.exec_create(found[0]["Id"], list(command))
        api.exec_start(made["Id"])
        status = api.exec_inspect(made["Id"])["ExitCode"]
    except (HostError, DockerException, requests.RequestException, OSError):
        return CANNOT_START  # if the engine is gone, the end of the program tells of it
    return CANNOT_START if status is None else int(status)


def _is_missing(text: str) -> bool:
    """Return True if an engine's error is that there is no such program to execute."""
    return "executable file not found" in text or (
        "exec: " in text and "no such file or directory" in text
    )
