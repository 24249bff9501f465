"""The table of a run's nodes, by which a command from outside the run finds and enters them.

The agent holds it in a file without a name, which goes with the agent and which every process that may
look into the agent's /proc can read. So nothing is written anywhere, and nothing can be left.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed.json_dataclasses import of_plain

_NAME = "testbed-nodes"
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
    """

    networks: Mapping[str, int]
    routers: tuple[str, ...]
    containers: Mapping[str, int]
    fork_server: int | None

    def publish(self) -> None:
        """Keep the table for readers until this process ends."""
        with open(os.memfd_create(_NAME, os.MFD_CLOEXEC), "w", closefd=False) as file:
            json.dump(asdict(self), file)


def table_of(agent: Path) -> NodeTable | None:
    """Return the table that a process has published; None if it has none, or has ended.

    Args:
        agent: its folder in /proc.

    Raises:
        PermissionError: the process is another user's.
        ValueError: what it has published is no table.
    """
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for descriptor in (agent / "fd").iterdir():
            if str(descriptor.readlink()).startswith(f"/memfd:{_NAME}"):
                return _table(descriptor)
    return None


def _table(path: Path) -> NodeTable:
    # Another file of this name may be one at which an open would wait.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        text = file.read(_LARGEST + 1)
    try:
        if len(text) > _LARGEST:
            raise ValueError
        return of_plain(NodeTable, json.loads(text))
    except (ValueError, RecursionError):
        raise ValueError("what its agent holds is no table of nodes") from None
