"""A peer's half of an algorithm without a parameter server, and what peers send each other."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.checkpoints.stateful import Stateful
from testbed.errors import TestbedError
from testbed.updates import FloatVector, Update, half_in_words


@dataclass(frozen=True, slots=True)
class Parcel:
    """An update for some peers, each of which is sent a copy.

    Attributes:
        update: the update to send.
        peers: their numbers, in the order in which the copies are sent.
        exact: True if no value may be rounded, whatever the run's encoding: it holds parameters.
    """

    update: Update
    peers: Sequence[int]
    exact: bool = False


class PeerHalf(Stateful, ABC):
    """One peer's model, and the rule by which it exchanges updates with the others.

    All attributes except those named in ``not_saved`` are its state, as in ``WorkerHalf``.

    Attributes:
        parameters: float32, shape (|Θ|,), contiguous; changed in place, by these methods only.
        version: the number of updates, its own and others', that it has applied.
        paced: True if ``ready`` may ever be false.
        answers: True if ``receive`` may ever return something to send.
        needs_profile: True if ``profiled`` is to be called after the first step of a run under the wall
            clock, and before the second.
    """

    paced: bool = False
    answers: bool = False
    needs_profile: bool = False

    def __init__(self, parameters: FloatVector) -> None:
        self.parameters = parameters
        self.version = 0

    @abstractmethod
    def step(self, gradient: FloatVector) -> Sequence[Parcel]:
        """Apply the peer's own gradient, float32 of shape (|Θ|,); return the parcels to send.

        Parcels may share memory with ``gradient``; they are sent before the next gradient.
        """

    @abstractmethod
    def receive(self, sender: int, update: Update) -> Sequence[Parcel]:
        """Take an update that arrived from another peer; updates of one sender arrive in order.

        Returns:
            The parcels to send in answer; none unless the class sets ``answers``.
        """

    def forget(self, peer: int) -> None:
        """Drop all that is kept for a peer that is lost: it sends and receives nothing any more."""

    def joined(self, peer: int) -> None:
        """Take a peer in that was lost and is there again, with nothing of what it had been sent."""

    def suspect(self, peer: int) -> None:
        """Wait for a peer no longer, which is silent, until something is received from it."""

    @property
    def waits_for(self) -> Sequence[int]:
        """The peers of which any has to send something before ``ready`` is true again; in order."""
        return ()

    def profiled(self, gradient_time: float, bandwidth: float) -> None:
        """Take in what the device has measured in its first round.

        Args:
            gradient_time: seconds that the first gradient took, waiting included.
            bandwidth: bytes per second at which the messages of the first step left the device.
        """
        raise NotImplementedError("a half that needs a profile says what it does with it")

    def diagnose(self) -> Mapping[str, float]:
        """Return the algorithm's declared diagnostics after the last step, by name."""
        return {}

    @property
    def ready(self) -> bool:
        """True if the peer may compute its next gradient now; asked again after every ``receive``."""
        return True


def parcels_of(half: PeerHalf, returned: object, *, answer: bool = False) -> Sequence[Parcel]:
    """Return what a half's ``step``, or ``receive``, has returned, if it is what they may return.

    Args:
        answer: True for what ``receive`` has returned.

    Raises:
        TestbedError: it is not; the text names the half's class.
    """
    if not isinstance(returned, Sequence) or not all(isinstance(one, Parcel) for one in returned):
        raise TestbedError(
            f"{half_in_words(half)} returned {type(returned).__name__}, and not a sequence of Parcel "
            "(testbed.algorithms.peer_half), which may be empty"
        )
    if answer and returned and not half.answers:
        raise TestbedError(
            f"{half_in_words(half)} returned parcels from receive(): set `answers = True` in its class"
        )
    return returned
