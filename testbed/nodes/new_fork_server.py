"""A fork server in a new interpreter, which has loaded what roles need and nothing else.

A device copies each page on which it counts references. Of a process that has planned a run these are
more pages than of a new interpreter, which has fewer Python objects; with many devices they cost more
than loading torch a second time.
"""

import json
import os
import sys
from dataclasses import asdict
from typing import NoReturn, TypedDict

from testbed.channel import Channel
from testbed.json_dataclasses import of_plain
from testbed.messages.requests import Load
from testbed.nodes import fork_server, linux

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]);"
    f"from {__name__} import serve; serve(int(sys.argv[1]))"
)
"""Looks for modules where this process does: a plug-in's are not where the interpreter's are."""


class _Handed(TypedDict):
    """The content of the file that the new interpreter reads, as JSON; the file has no name."""

    control: int
    load: Load
    surroundings: dict[str, object] | None


def execute(
    control: Channel, load: Load, surroundings: fork_server.Surroundings | None
) -> NoReturn:
    """Serve as ``fork_server.serve`` does, in a new interpreter in place of this one.

    All descriptors that are open are inherited, at their numbers, as a fork would.

    Raises:
        OSError: the interpreter cannot be started.
    """
    seen = None if surroundings is None else asdict(surroundings)
    handed = _Handed(control=control.fileno(), load=load, surroundings=seen)
    file = os.memfd_create("load")
    with os.fdopen(os.dup(file), "w", encoding="utf-8") as written:
        json.dump(handed, written)
    for descriptor in linux.open_descriptors():
        os.set_inheritable(descriptor, True)
    options = ("-P", "-X", f"utf8={sys.flags.utf8_mode}", "-c", _PROGRAM)
    os.execv(
        sys.executable, [sys.executable, *options, str(file), json.dumps([*map(str, sys.path)])]
    )


def serve(file: int) -> None:
    """Serve with what ``execute`` has handed; the only call of the new interpreter."""
    with os.fdopen(file, "rb") as read:
        read.seek(0)
        handed: _Handed = json.load(read)
    seen = handed["surroundings"]
    surroundings = None if seen is None else of_plain(fork_server.Surroundings, seen)
    fork_server.serve(Channel.from_descriptor(handed["control"]), handed["load"], surroundings)
