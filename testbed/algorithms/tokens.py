"""Synchronous SGD by tokens: Pull as TensorFlow 1.x implements it (paper 004, §2 and its footnote 3).

A queue holds tokens, each with the number of a version: n at first, and n more with every update. A
worker that asks takes the oldest token and is sent the newest parameters, though its gradient belongs
to the token's version: if that is not the newest one when the gradient arrives, it is dropped. A worker
may take several tokens of a version, and waits while there is none. So an update costs n gradients in
the end, whatever k is: those that the first k leave over have tokens that somebody still takes.

What the paper and TensorFlow leave open: the token of a worker that is lost goes back to the head of
the queue, so that k gradients of each version remain possible.
"""

import math
from typing import Literal

from testbed.algorithms.interface import Conditions
from testbed.algorithms.learning_rate import LearningRate
from testbed.algorithms.server_half import ServerHalf, UnexpectedMessageError
from testbed.algorithms.synchronous_sgd import BackupOptions, StaticBackups, SynchronousServer
from testbed.updates import FloatVector, Layout


class TokenServer(SynchronousServer):
    """A server's half that gives out tokens, and takes k gradients of the current version's."""

    def __init__(
        self, parameters: FloatVector, learning_rate: LearningRate | float, wait_for: int, each: int
    ) -> None:
        """Start at version 0.

        Args:
            parameters: w_0.
            learning_rate: η.
            wait_for: k, gradients per update, from 1 to n.
            each: n, the tokens of each version.
        """
        super().__init__(parameters, learning_rate, wait_for, "pull")
        self._each = each
        self._queue = [0] * each
        self._held: dict[int, int] = {}

    def pull(self, worker: int, *, time: float = math.nan) -> int | None:
        if not self._queue:
            return None
        self._held[worker] = self._queue.pop(0)
        return self.version

    def _takes(self, worker: int, base_version: int) -> bool:
        self._check_base(base_version)
        if worker not in self._held:
            raise UnexpectedMessageError(f"a gradient of worker {worker}, which has no token")
        return self._held.pop(worker) == self.version

    @property
    def _complete(self) -> bool:
        return self._count >= self.wait_for

    def _stepped(self, time: float) -> None:
        self._queue += [self.version] * self._each

    def forget(self, worker: int) -> None:
        token = self._held.pop(worker, None)
        if token is not None:
            self._queue.insert(0, token)
        super().forget(worker)


class TokenOptions(BackupOptions):
    """The parameters of synchronous SGD by tokens."""

    name: Literal["sync-tokens"] = "sync-tokens"


class SynchronousByTokens(StaticBackups):
    """Synchronous SGD by tokens: k gradients per update, n tokens of each version.

    With several servers a worker could hold the last token of one while another holds that of the next,
    and both would wait for ever.
    """

    options_type = TokenOptions
    sliced = False

    @staticmethod
    def server(
        options: TokenOptions, layout: Layout, parameters: FloatVector, conditions: Conditions
    ) -> ServerHalf:
        n = conditions.workers
        return TokenServer(parameters, options.rate(conditions), options.wait_for or n, n)
