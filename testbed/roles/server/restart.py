"""The arguments of a parameter server that is restored from a checkpoint."""

import time
from dataclasses import dataclass
from typing import Self

from testbed.clock import worker_faults
from testbed.errors import RunError
from testbed.roles.arguments import RestartArguments
from testbed.roles.server import outstanding_work
from testbed.roles.server.remote_servers import UpdateElsewhere

STORED = (*worker_faults.STORED, *outstanding_work.STORED, UpdateElsewhere)
"""The types in a server's checkpoints, in addition to plain values and arrays."""


def cannot_be_written(version: int, error: OSError) -> RunError:
    """Return the error of a run whose checkpoint of a version cannot be written."""
    return RunError(
        f"the checkpoint of update {version:,} cannot be written: {error.strerror or error}; free "
        "some room and resume the run"
    )


@dataclass(frozen=True, slots=True)
class Restart:
    """The restart of a server that was killed, or whose run was interrupted.

    Attributes:
        kills, training, elapsed: as in ``RestartArguments``.
        server: the index of the server that was killed last; 0 for an interrupted run.
    """

    kills: int
    training: float | None
    elapsed: float = 0.0
    server: int = 0

    @classmethod
    def of_role(cls, role: RestartArguments) -> Self | None:
        """Return the restart that a role's arguments describe; None if the server starts a new run."""
        if not role.get("restore"):
            return None
        return cls(role["kills"], role.get("training"), role.get("elapsed", 0.0))

    def began(self) -> float:
        """Return when training began (CLOCK_MONOTONIC), as if an interrupted run went on just now."""
        return time.monotonic() - self.elapsed if self.training is None else self.training
