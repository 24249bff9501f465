"""The parts that a parameter server is made with, under either clock."""

from dataclasses import dataclass

from testbed.algorithms.server_half import ServerHalf
from testbed.channel import Channel
from testbed.checkpoints.periodic_checkpoints import Checkpoints
from testbed.roles.pace import Paces
from testbed.roles.server.restart import Restart
from testbed.telemetry.state_board import Board
from testbed.training.settings import Settings
from testbed.updates import Layout


@dataclass(frozen=True, slots=True)
class ServerInputs:
    """The parts of one run's server.

    Attributes:
        layout: of the slice; with one server, of all parameters.
        paces: those of the workers, which tell who never comes back; None if no fault may strike any.
        spill: descriptor of the file for snapshots that wait for the evaluator, if there is one.
        index: the server's, of several; an aggregator's, from 1.
        is_saved: True if the process with the clock puts this server's state into its checkpoints.
        workers_remember: True if workers write what they remember, for checkpoints.
    """

    settings: Settings
    half: ServerHalf
    layout: Layout
    channel: Channel
    board: Board | None = None
    checkpoints: Checkpoints | None = None
    restart: Restart | None = None
    paces: Paces | None = None
    spill: int | None = None
    index: int = 0
    is_saved: bool = False
    workers_remember: bool = False

    @property
    def remembers(self) -> bool:
        """True if checkpoints are written, by this server or by the process with the clock."""
        return self.is_saved or self.checkpoints is not None
