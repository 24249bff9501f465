"""ASGD whose workers send the signs of their gradients, and keep what the signs do not say."""

import numpy as np

from testbed.algorithms.asgd import StalenessDivided
from testbed.algorithms.interface import Conditions, Options, ServedAlgorithm
from testbed.algorithms.server_half import ServerHalf
from testbed.algorithms.worker_half import WorkerHalf
from testbed.updates import DenseUpdate, FloatVector, Layout, Update


class SignOptions(Options):
    """The signs have no options of their own."""


class SignWorker(WorkerHalf):
    """w ← g + e; send s·sign(w), s the mean of |w| in each tensor; e ← w − s·sign(w)."""

    def __init__(self, layout: Layout) -> None:
        self._tensors = layout.slices  # where each weight matrix and bias vector is in g
        self._kept = np.zeros(layout.total, np.float32)

    def compress(self, gradient: FloatVector) -> Update:
        wanted = gradient + self._kept
        sent = np.empty_like(wanted)
        for tensor in self._tensors:
            scale = np.abs(wanted[tensor]).mean()
            sent[tensor] = np.where(wanted[tensor] < 0, -scale, scale)
        self._kept = wanted - sent
        return DenseUpdate(sent)

    def lost(self, update: Update, received: Update) -> None:
        self._kept += update.values - received.values


class Sign(ServedAlgorithm):
    """The server takes the steps of ASGD."""

    options_type = SignOptions

    @staticmethod
    def worker(options: SignOptions, layout: Layout, conditions: Conditions) -> WorkerHalf:
        return SignWorker(layout)

    @staticmethod
    def server(
        options: SignOptions, layout: Layout, parameters: FloatVector, conditions: Conditions
    ) -> ServerHalf:
        return StalenessDivided(parameters, conditions.rate)
