"""What a parameter server is made with, whatever its clock."""

from dataclasses import dataclass

from testbed.algorithms.interface import ServerHalf
from testbed.channel import Channel
from testbed.checkpoints.due import Checkpoints
from testbed.roles.server.restoration import CameBack
from testbed.telemetry.board import Board
from testbed.training.settings import Settings
from testbed.updates import Layout


@dataclass(frozen=True, slots=True)
class Serving:
    """One run's.

    Attributes:
        settings: the run's.
        half: the server's half of its algorithm.
        layout: of the parameters.
        channel: to the orchestrator.
        board: where to write how the server stands, if there is one.
        checkpoints: which it writes, if any.
        came_back: if it is to go on from the last of them.
        spill: descriptor of the file for snapshots that wait for the evaluator, if there is one.
    """

    settings: Settings
    half: ServerHalf
    layout: Layout
    channel: Channel
    board: Board | None = None
    checkpoints: Checkpoints | None = None
    came_back: CameBack | None = None
    spill: int | None = None
