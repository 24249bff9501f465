"""The table of a run's nodes, by which a command from outside the run finds and enters them.

A process of the run holds a table in a file without a name, which goes with the process and which every
process that may look into its /proc can read. So nothing is written anywhere, and nothing can be left.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from testbed.json_dataclasses import of_plain

_NODES = "nodes"
T = TypeVar("T")
_LARGEST = 64 << 20
"""The most bytes of a table; 100,000 nodes take 3 MB."""


@dataclass(frozen=True, slots=True)
class NodeTable:
    """The nodes of a run, as its agent has them.

    Attributes:
        networks: the agent's descriptor of each node's network namespace, by the node's name.
        routers: the names of the nodes in which no process runs.
        containers: id of the first process of each node that is a container; empty for other nodes.
        fork_server: id of the process that nodes are forked from; None if they are not forked.
        first_tunnel: number of the run's first tunnel, which no other run on this host has; None if
            there are no other hosts.
    """

    networks: Mapping[str, int]
    routers: tuple[str, ...]
    containers: Mapping[str, int]
    fork_server: int | None
    first_tunnel: int | None = None

    def publish(self) -> None:
        """Keep the table for readers until this process ends."""
        publish(_NODES, self)


def table_of(agent: Path) -> NodeTable | None:
    """Return the table that an agent has published; see ``published``."""
    return published(NodeTable, _NODES, agent)


def publish(name: str, table: Any) -> None:
    """Keep a table, which is a dataclass, for readers until this process ends."""
    file = os.memfd_create(f"testbed-{name}", os.MFD_CLOEXEC)
    with open(file, "w", closefd=False) as opened:
        json.dump(asdict(table), opened)


def published(kind: type[T], name: str, process: Path) -> T | None:
    """Return the table that a process has published; None if it has none, or has ended.

    Args:
        process: its folder in /proc.

    Raises:
        PermissionError: the process is another user's.
        ValueError: what it has published is no table.
    """
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for descriptor in (process / "fd").iterdir():
            if str(descriptor.readlink()).startswith(f"/memfd:testbed-{name}"):
                return _table(kind, name, descriptor)
    return None


def _table(kind: type[T], name: str, path: Path) -> T:
    # Another file of this name may be one at which an open would wait.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        text = file.read(_LARGEST + 1)
    try:
        if len(text) > _LARGEST:
            raise ValueError
        return of_plain(kind, json.loads(text))
    except (ValueError, RecursionError):
        raise ValueError(f"what a process of it holds is no table of {name}") from None
