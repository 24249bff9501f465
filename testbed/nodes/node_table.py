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

_NAME = "testbed-nodes"


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


def table_of(agent: int) -> NodeTable | None:
    """Return the table that a process has published; None if it has none, or has ended.

    Raises:
        PermissionError: the process is another user's.
    """
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for descriptor in Path(f"/proc/{agent}/fd").iterdir():
            if _NAME in str(descriptor.readlink()):
                content = json.loads(descriptor.read_bytes())
                return NodeTable(**content | {"routers": tuple(content["routers"])})
    return None
