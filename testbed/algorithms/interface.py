"""The interface of an algorithm: its halves. Everything else is framework.

Halves are pure state machines: arrays and updates in, arrays and updates out. They use no socket,
clock, sleep, file or global randomness, so that the same objects run inside a container, in the
simulator and in a test, and every run can be replayed. Times that a half may need are passed to it;
it must not depend on which clock they come from.

Algorithms have one of four shapes (``docs/algorithms.md``):

- *asynchronous parameter server*: a ``WorkerHalf`` and an ``AsynchronousServer``. A worker *pulls* (it
  gets the parameters and their version, its *base version*) and later *pushes* an update computed
  from them; every push is an update and increments the version. The *delay* of an update is the number
  of other updates applied since its base version;
- *synchronous parameter server*: a ``WorkerHalf`` and a ``ServerHalf`` that makes one update of several
  pushes and drops pushes that arrive too late. The server's half decides when a worker that asks for
  parameters may have them; its *protocol* says how the workers get a new version;
- *hierarchical*: a worker's and a server's half as above and, between them, an ``AggregatorHalf`` for
  each cluster of workers, which is a server to them and a worker to the server;
- *peer to peer*: a ``PeerHalf`` on every device, which owns a model, sends updates to other peers and
  applies the updates that arrive.

A shape is a base class that says the algorithm's *parts* and its *conversations*: which roles there
are, and which of them talk to each other. A subclass may have other conversations.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from testbed.algorithms.aggregator_half import AggregatorHalf
from testbed.algorithms.diagnostic import Diagnostic
from testbed.algorithms.learning_rate import ConstantRate, LearningRate
from testbed.algorithms.peer_half import PeerHalf
from testbed.algorithms.roles import Part, Population, Role
from testbed.algorithms.server_half import Protocol, ServerHalf
from testbed.algorithms.worker_half import ONE_GRADIENT, Leg, WorkerHalf
from testbed.encoding_choice import EncodingChoice, Pulls
from testbed.updates import FloatVector, Layout


class Options(BaseModel):
    """An algorithm's parameters as in the experiment file; ``name`` selects the algorithm."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    name: str
    label: str | None = Field(
        default=None,
        description="What this run is called in folders, tables and figures; default: the name and "
        "whatever tells it from the algorithm's defaults, e.g. adacomp-0.01.",
    )
    learning_rate: float | None = Field(
        default=None,
        gt=0,
        le=1e30,
        description="This run's learning rate; default (null): the experiment's.",
    )
    encoding: EncodingChoice | None = Field(
        default=None,
        description="How this run's updates are encoded: a short name or a mapping, in place of the "
        "experiment's as a whole; default (null): the experiment's.",
    )
    pulls: Pulls | None = Field(
        default=None,
        description="What this run's pulls bring, full or changed; default (null): the "
        "experiment's.",
    )


class AsynchronousOptions(Options):
    """The options of an algorithm whose server applies every push at once."""

    staleness_bound: int | None = Field(
        default=None,
        ge=0,
        description="τ of bounded staleness (SSP): a worker that has pushed over τ times more often "
        "than the slowest one is sent parameters when that one has caught up; with several servers, by "
        "the first one. Default (null): no worker waits for another.",
    )
    send_queue: Literal[1] | None = Field(
        default=None,
        description="1: a worker computes its next gradient while its last push is on its way, at the "
        "parameters that it has. Default (null): it waits for the answer to each push.",
        examples=[1],
    )

    @property
    def overlaps(self) -> bool:
        """True if workers compute while their pushes are on their way."""
        return self.send_queue is not None

    @property
    def versions_sent(self) -> int:
        """The number of versions, the last ones that a worker was sent, for which it may push."""
        return 1 + self.overlaps


def _limit(value: Any) -> Any:
    if value in (None, "unlimited") or (type(value) is int and value >= 1):
        return value
    raise ValueError(f"must be a number of rounds from 1 on, or unlimited, not {value!r}")


class PeerOptions(Options):
    """The options of an algorithm whose peers send in rounds, and need not wait for them to leave."""

    send_queue: Annotated[
        Annotated[int, Field(ge=1)] | Literal["unlimited"] | None, BeforeValidator(_limit)
    ] = Field(
        default=None,
        description="Rounds whose messages may wait to leave a peer while it computes its next "
        "gradient, or unlimited: it never waits for its own messages. Default (null): 1.",
        examples=[3, "unlimited"],
    )

    @property
    def queued_rounds(self) -> int | None:
        """The number of rounds that may wait; None: any."""
        return None if self.send_queue == "unlimited" else self.send_queue or 1


@dataclass(frozen=True, slots=True)
class Conditions:
    """The facts about a run that its algorithm may use.

    Attributes:
        learning_rate: α (η), where no schedule changes it.
        workers: n, the number of workers or peers, which are numbered from 0.
        batch_size: b, images per gradient.
        updates: the number of updates of the run.
        uplink: rate of the device's uplink in bit/s, that of its device class; for the server's half
            that of network.uplink. None where links are not shaped.
        gradient_time: mean seconds that a device computes and then waits, as in the spec; None where
            they depend on the host.
        schedule: α at each version; None: it is constant.
        profiled: True if devices measure for themselves how fast they compute and send (wall clock).
        seed: the run's, for ``testbed.random_streams.stream``.
        images: training images of each worker or peer that computes; empty before they are shared out.
        device: the number of the worker or peer whose half this is; None for the server's.
    """

    learning_rate: float
    workers: int
    batch_size: int
    updates: int
    uplink: int | None = None
    gradient_time: float | None = None
    schedule: LearningRate | None = None
    profiled: bool = False
    seed: int = 1
    images: Sequence[int] = field(default_factory=list)
    device: int | None = None

    @property
    def own_images(self) -> int | None:
        """The number of training images of this worker or peer; None if it has none, or is none."""
        if self.device is None or self.device >= len(self.images):
            return None
        return self.images[self.device]

    @property
    def rate(self) -> LearningRate:
        """α at each version, by the schedule if there is one."""
        return self.schedule or ConstantRate(self.learning_rate)


class Algorithm(ABC):
    """An algorithm: the type of its options, its parts, and functions that make its halves.

    Attributes:
        parts: the parts of its roles; a half is made for each role by the function of its part's name,
            which the algorithm must have.
        diagnostics: the numbers that its server's or peers' halves report with each update.
        sliced: True if each of several servers can apply it to its own part of Θ.
        scheduled: True if its halves take α from ``conditions.rate`` at the version of each step; with
            any other algorithm, a schedule is refused.
        bears_loss: True if peers go on without one that is killed; if not, such faults are refused.
        imports: modules that its halves import when they first need them. They are loaded before a
            role is forked: it may be in a container, which does not have them at the host's paths.
    """

    sliced: ClassVar[bool] = True
    scheduled: ClassVar[bool] = False
    bears_loss: ClassVar[bool] = True
    imports: ClassVar[tuple[str, ...]] = ()
    options_type: ClassVar[type[Options]]
    parts: ClassVar[tuple[Part, ...]]
    diagnostics: ClassVar[tuple[Diagnostic, ...]] = ()

    @staticmethod  # noqa: B027 - most options fit any run
    def check(options: Any, conditions: Conditions) -> None:
        """Check, before anything is started, that the options fit the run.

        Raises:
            SpecError: they do not.
        """

    @staticmethod
    def explain(options: Any, layout: Layout, conditions: Conditions) -> str | None:
        """Return what the algorithm chooses for a device under these conditions, and why.

        ``testbed plan`` prints it. None: there is nothing to say.
        """
        return None

    @staticmethod
    @abstractmethod
    def conversations(
        options: Any, conditions: Conditions, population: Population
    ) -> Iterable[tuple[Role, Role]]:
        """Return the pairs of roles that talk to each other, and the role that calls first.

        No others are connected. Of two peers either may be the first.
        """

    @classmethod
    def averages(cls, options: Any) -> bool:
        """Return True if each shared buffer moves by −α times a mean of whole gradients of it.

        It may be divided by a staleness. Only such algorithms can share a model's buffers: the
        last ``Layout.buffers`` entries of Θ.
        """
        return False

    @classmethod
    def vectors_per_worker(cls, options: Any) -> int:
        """Return how many vectors as long as Θ its servers together keep for each worker."""
        return 0

    @classmethod
    def gradients_per_update(cls, options: Any, conditions: Conditions) -> int | None:
        """Return the number of workers' gradients in each update; None if it is not known before.

        Lengths in epochs need it.
        """
        return 1

    @staticmethod
    def computing(options: Any, conditions: Conditions) -> int:
        """Return the number of workers or peers, from 0 on, that compute gradients.

        The training images are partitioned among them; the others only answer.
        """
        return conditions.workers

    @staticmethod
    def protocol(options: Any) -> Protocol:
        """Return how workers get parameters; the server's half must say the same."""
        return "pull"

    @staticmethod
    def legs(options: Any, conditions: Conditions) -> Sequence[Leg]:
        """Return what a worker does from one message to the next, over and over again.

        The first leg begins with parameters that have just arrived. Legs that do not push, or do not
        ask, need the protocol ``pull``. Workers' legs may differ in their gradients only.

        Args:
            conditions: the worker's.
        """
        return ONE_GRADIENT

    @classmethod
    def trains_locally(cls, options: Any) -> bool:
        """Return True if workers train on copies of the parameters: their legs are not one gradient."""
        return False

    @classmethod
    def synchronous(cls, options: Any) -> bool:
        """Return True if an update may wait for a worker, so that a silent worker delays the others."""
        return (
            cls.protocol(options) != "pull" or getattr(options, "staleness_bound", None) is not None
        )

    @staticmethod
    def worker(options: Any, layout: Layout, conditions: Conditions) -> WorkerHalf:
        """Make one worker's half."""
        raise AssertionError("the algorithm has no workers")

    @staticmethod
    def server(
        options: Any, layout: Layout, parameters: FloatVector, conditions: Conditions
    ) -> ServerHalf:
        """Make the server's half, which owns ``parameters`` from now on and changes them in place.

        With several servers, each has a half, and ``layout`` and ``parameters`` are those of its slice.
        """
        raise AssertionError("the algorithm has no server")

    @staticmethod
    def aggregator(
        options: Any,
        layout: Layout,
        parameters: FloatVector,
        devices: int,
        conditions: Conditions,
    ) -> AggregatorHalf:
        """Make the half of one cluster's aggregator, to which ``parameters`` belong from now on.

        Args:
            devices: the number of workers and aggregators that talk to it.
        """
        raise AssertionError("the algorithm has no aggregators")

    @staticmethod
    def peer(
        options: Any, layout: Layout, parameters: FloatVector, number: int, conditions: Conditions
    ) -> PeerHalf:
        """Make one peer's half, which owns ``parameters`` from now on and changes them in place."""
        raise AssertionError("the algorithm has no peers")


class ServedAlgorithm(Algorithm):
    """An algorithm with one or several servers, asynchronous or synchronous; workers talk to each."""

    parts: ClassVar[tuple[Part, ...]] = ("server", "worker")

    @classmethod
    def pushes_per_update(cls, options: Any, conditions: Conditions) -> int | None:
        """Return the number of pushes in each update; None if it is not known before."""
        return 1 if cls.trains_locally(options) else cls.gradients_per_update(options, conditions)

    @staticmethod
    def conversations(
        options: Any, conditions: Conditions, population: Population
    ) -> Iterable[tuple[Role, Role]]:
        for worker in range(population.devices):
            for server in range(population.servers):
                yield Role("worker", worker), Role("server", server)


class AggregatedAlgorithm(ServedAlgorithm):
    """An algorithm with a server and, between it and the workers, an aggregator in each cluster.

    Workers talk to their cluster's aggregator, and aggregators to that of the cluster in which their
    own one is, or to all servers, by the same protocol.
    """

    parts: ClassVar[tuple[Part, ...]] = ("server", "aggregator", "worker")

    @staticmethod
    def conversations(
        options: Any, conditions: Conditions, population: Population
    ) -> Iterable[tuple[Role, Role]]:
        servers = [Role("server", index) for index in range(population.servers)]
        for caller, called in enumerate(population.aggregator_of):
            above = caller - population.devices
            one = Role("worker", caller) if above < 0 else Role("aggregator", above)
            for other in servers if called < 0 else [Role("aggregator", called)]:
                yield one, other


class PeerAlgorithm(Algorithm):
    """An algorithm without a server, or whose servers are peers themselves; all peers talk to all."""

    parts: ClassVar[tuple[Part, ...]] = ("peer",)

    @staticmethod
    def conversations(
        options: Any, conditions: Conditions, population: Population
    ) -> Iterable[tuple[Role, Role]]:
        for one, other in combinations(range(population.devices), 2):
            yield Role("peer", one), Role("peer", other)
