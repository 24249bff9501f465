"""The arguments of a run's roles, as the orchestrator sends them and a role's process receives them.

All roles of a run on one host get the run's arguments, once: its settings, and descriptors of what
the roles share. Each role gets arguments of its own when it is started. They travel as JSON objects,
in which a tuple is a list; the agent and the nodes pass a role's arguments on without reading them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

RoleKind: TypeAlias = Literal["server", "aggregator", "evaluator", "worker", "peer", "coordinator"]
"""The names of roles; ``testbed.roles.entry`` has the function of each."""


class SharedArguments(TypedDict, total=False):
    """The descriptors of what a run's roles share; a key is left out if there is nothing to share.

    Attributes:
        board: of the board.
        paces: of the devices' paces, if faults may change them.
        checkpoints: of the checkpoint files, two of each server. Under the virtual clock there are two:
            a checkpoint is one of the whole run.
        checkpoint_every: the number of updates between two checkpoints.
        orders: of the channels of orders between hosts, by the devices' numbers in decimal: the clock's
            ends where the clock is, and on another host the devices'.
        spill: of the files for snapshots that wait for the evaluator, one for each server by its index.
        states: of the files in which devices keep states of their own, by their numbers: those from
            which peers come back, and workers go on from checkpoints. Empty if they keep none, -1 for
            a device on another host.
    """

    board: int
    paces: int
    checkpoints: Sequence[int]
    checkpoint_every: int | None
    orders: Mapping[str, int]
    spill: Sequence[int]
    states: Sequence[int]


class RunArguments(SharedArguments):
    """The arguments that all roles of a run have on one host.

    Attributes:
        settings: the run's ``Settings`` as JSON.
    """

    settings: Mapping[str, Any]


class RestartArguments(TypedDict, total=False):
    """The further arguments of a role that is started again, or that goes on from a checkpoint.

    Attributes:
        restore: True for a server that restores its newest checkpoint.
        kills: the number of times that the server was killed so far.
        training: when training began, in seconds of CLOCK_MONOTONIC; None for an interrupted run.
        elapsed: seconds that an interrupted run had trained, by the host's clock.
        incarnation: the number of times that a worker or peer has come back.
        pushes: the number of pushes of a worker's incarnations so far.
        others: the peers that a peer calls as it comes back.
    """

    restore: bool
    kills: int
    training: float | None
    elapsed: float
    incarnation: int
    pushes: int
    others: Sequence[int]


class RoleArguments(RestartArguments):
    """The arguments of one role.

    Attributes:
        role: which role it is.
        number: the device's number; below 0 for servers, aggregators and the coordinator.
    """

    role: RoleKind
    number: int
