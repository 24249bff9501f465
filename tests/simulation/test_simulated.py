"""Simulated systems: the same seed gives the same bits, and every byte follows from the rows."""

import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from testbed.algorithms.peer_half import Parcel, PeerHalf
from testbed.experiment.spec import Spec
from testbed.learning.data import datasets
from testbed.learning.data.batches import Batches
from testbed.learning.data.partitions import equal
from testbed.learning.learner import Learner
from testbed.learning.models import initialise
from testbed.messages.fault_changes import FaultChange
from testbed.network.segments import wire_bytes
from testbed.planning.plan import plan
from testbed.random_streams import stream
from testbed.simulation.batching import Begun
from testbed.simulation.sent_versions import Part
from testbed.simulation.served_system import ServedSystem
from testbed.simulation.simulated_devices import SimulatedDevices
from testbed.simulation.system import System
from testbed.simulation.systems import MeshSystem, system
from testbed.simulation.wire_model import Acknowledgements, ModelledConnection
from testbed.telemetry.update_rows import UPDATE
from testbed.training import computation
from testbed.training.service_entries import Entry, EvaluationPoint, UpdateEntry
from testbed.training.settings import Settings
from testbed.updates import DenseUpdate, FloatVector, Update
from tests.notes import Notes

UPDATES = 40
WORKERS = 4
NETWORKS = {
    "unshaped": {},
    "shaped": {"uplink": "2mbit", "downlink": "10mbit", "delay": "5ms"},
}

ALGORITHMS: dict[str, dict[str, Any]] = {
    "asgd": {"name": "asgd"},
    "comp-asgd": {"name": "comp-asgd", "ratio": 0.05, "error_feedback": True},
    "adacomp": {"name": "adacomp", "ratio": 0.05},
    "sync-all": {"name": "sync-sgd"},
    "pull": {"name": "sync-sgd", "wait_for": 3},
    "push-and-wait": {"name": "sync-sgd", "wait_for": 3, "protocol": "push-and-wait"},
    "push-and-interrupt": {"name": "sync-sgd", "wait_for": 3, "protocol": "push-and-interrupt"},
    "all-to-all": {"name": "all-to-all"},
}
SERVED = [name for name in ALGORITHMS if name != "all-to-all"]


def settings(algorithm: str, **changes: Any) -> Settings:
    spec = {
        "name": "simulated",
        "seed": 3,
        "dataset": "digits",
        "model": "mlp",
        "training": {"batch_size": 10, "learning_rate": 0.05, "updates": UPDATES},
        "algorithms": [ALGORITHMS[algorithm]],
        "devices": {"workers": WORKERS},
        "clock": "virtual",
        "engine": "simulation",
        "compute": {"distribution": "gamma", "mean": "100ms", "variation": 0.5},
        "waiting": {"distribution": "exponential", "mean": "30ms"},
        "evaluation": {"every": 10},
    }
    return plan(Spec.model_validate(spec | changes))[0].settings


@dataclass(frozen=True)
class Checkpoint:
    version: int
    ledger: dict[str, int]
    digest: str


@functools.cache
def _digits(seed: int) -> datasets.Dataset:
    return datasets.load("digits", "standardised", None, seed)


class Simulated:
    """One run, and its record."""

    def __init__(self, settings: Settings, between: Callable[[System], None] | None = None) -> None:
        self.settings = settings
        self.notes = Notes()
        self.checkpoints: list[Checkpoint] = []
        self.faults: list[FaultChange] = []
        self.returns: list[tuple[int, int]] = []
        data = _digits(settings.seed)
        learner = computation.learner(settings, data.inputs)
        initial = computation.initial(settings, data.inputs)
        self.size = 4 * learner.layout.total
        self.system = system(settings)(settings, data, learner, initial, self)
        self.system.clock.run(lambda: between(self.system) if between else None)
        self.digest = self._digest()
        self.before = self.system.ledger()
        self.system.drain()
        self.after = self.system.ledger()

    def naive(self) -> tuple[Learner, Batches, FloatVector]:
        """Return what a naive loop begins with: a learner, the only worker's batches, parameters."""
        settings, data = self.settings, _digits(self.settings.seed)
        (part,) = computation.parts(settings, data.train_labels)
        batches = computation.batches(settings, data, part, 0)
        learner = Learner("mlp", settings.training.batch_size)
        return learner, batches, computation.initial(settings, data.inputs)

    def _digest(self) -> str:
        return hashlib.sha256(self.system.parameters.tobytes()).hexdigest()

    @property
    def rows(self) -> npt.NDArray[np.void]:
        """The rows as the run's record has them, with the host's time set to 0."""
        rows = np.array(self.notes.rows, UPDATE)
        rows["host_time"] = 0
        return rows

    def record(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            match entry:
                case UpdateEntry(_, version):
                    assert version == self.system.version
                case EvaluationPoint(version):
                    evaluated = self.system.evaluated
                    assert version == evaluated.version
                    digest = hashlib.sha256(evaluated.parameters.tobytes()).hexdigest()
                    self.checkpoints.append(Checkpoint(version, evaluated.ledger, digest))
        self.notes.take(entries)

    def fault(self, record: FaultChange) -> None:
        self.faults.append(record)

    def returned(self, peer: int, version: int) -> None:
        self.returns.append((peer, version))


@functools.cache
def simulated(algorithm: str, network: str) -> Simulated:
    """Return a run that many tests look at, and none changes."""
    return Simulated(settings(algorithm, network=NETWORKS[network]))


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_same_seed_gives_the_same_bits_and_another_one_does_not(
    algorithm: str, network: str
) -> None:
    one = simulated(algorithm, network)
    two = Simulated(settings(algorithm, network=NETWORKS[network]))
    assert one.digest == two.digest
    assert one.checkpoints == two.checkpoints
    assert one.rows.tobytes() == two.rows.tobytes()
    assert one.after == two.after
    assert one.system.own_summary() == two.system.own_summary()
    other = Simulated(settings(algorithm, network=NETWORKS[network], seed=4))
    assert other.digest != one.digest
    assert other.rows["time"].tolist() != one.rows["time"].tolist()


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("algorithm", ["adacomp", "sync-all", "push-and-wait"])
def test_suspicions_are_reproducible(algorithm: str, network: str) -> None:
    how = {
        "network": NETWORKS[network],
        "devices": {"workers": WORKERS, "suspect_after": "200ms"},
        "compute": {"distribution": "exponential", "mean": "100ms"},
    }
    one, two = (Simulated(settings(algorithm, **how)) for _ in range(2))
    assert one.system.version == UPDATES
    assert {what for what, *_ in one.notes.noticed} == {"suspected", "welcomed"}
    assert one.notes.noticed == two.notes.noticed
    assert one.rows.tobytes() == two.rows.tobytes()
    assert (one.digest, one.after) == (two.digest, two.after)
    returned = [what for what, *_ in one.notes.noticed].count("welcomed")
    assert returned <= int((~one.rows["applied"]).sum())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_rows_are_consistent_with_each_other(algorithm: str) -> None:
    run = simulated(algorithm, "unshaped")
    rows = run.rows
    assert run.system.version == UPDATES
    assert (np.diff(rows["time"]) >= 0).all()
    applied = rows[rows["applied"]]
    needed = WORKERS if algorithm == "sync-all" else ALGORITHMS[algorithm].get("wait_for", 1)
    assert applied["iteration"].tolist() == np.repeat(np.arange(1, UPDATES + 1), needed).tolist()
    assert set(rows["worker"].tolist()) == set(range(WORKERS))
    assert [one.version for one in run.checkpoints] == [0, 10, 20, 30, 40]
    assert run.checkpoints[-1].digest == run.digest
    assert len({one.digest for one in run.checkpoints}) == 5
    if algorithm in SERVED:
        late = rows[~rows["applied"]]
        if needed == 1:
            assert (rows["staleness"] == rows["iteration"] - 1 - rows["base_version"]).all()
        else:
            assert (applied["base_version"] == applied["iteration"] - 1).all()
            assert (applied["staleness"] == 0).all()
            assert (late["staleness"] == late["iteration"] - late["base_version"]).all()
        assert (late["base_version"] < late["iteration"]).all()
        # Only with push-and-wait does a worker finish although it knows that it is late.
        reports = rows["payload_bytes"] == 0
        assert reports.any() == (algorithm == "push-and-wait")
        assert np.isnan(rows["loss"]).tolist() == reports.tolist()


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("algorithm", SERVED)
def test_the_bytes_at_a_server_follow_from_its_rows(algorithm: str, network: str) -> None:
    run = simulated(algorithm, network)
    rows, asks = run.rows, not algorithm.startswith("push")
    payload = int(rows["payload_bytes"].sum())
    assert run.checkpoints[-1].ledger["payload_bytes"] == payload
    # Each worker sends a greeting with the secret; every push or report has a header; a pull follows
    # every greeting, and every push but the last.
    greetings = WORKERS * (64 + 32 * asks)
    message = greetings + payload + 32 * len(rows) + 32 * asks * (len(rows) - 1)
    assert run.checkpoints[-1].ledger["message_bytes"] == message
    own = rows["message_bytes"].sum()
    assert message - 64 * WORKERS - 32 * asks * WORKERS <= own <= message
    assert run.before["message_bytes"] == message + 32 * asks
    # Messages under way at the end are counted after it, whole.
    more = {key: run.after[key] - run.before[key] for key in run.after}
    assert more["message_bytes"] >= more["payload_bytes"]
    if algorithm in ("asgd", "sync-all", "pull"):
        pushes, rest = divmod(more["payload_bytes"], run.size)
        assert rest == 0
        assert pushes < WORKERS
        assert more["message_bytes"] == pushes * (run.size + 64)


def test_wire_bytes_follow_from_the_messages() -> None:
    run = simulated("asgd", "shaped")
    assert isinstance(run.system, ServedSystem)
    pulls = Counter(run.rows["worker"][:-1].tolist())  # after every push but the last
    acknowledged = 0
    for worker in range(WORKERS):
        way = Acknowledgements()
        acknowledged += sum(way.of(run.size + 32) for _ in range(pulls[worker] + 1))
    connection = ModelledConnection()
    connection.greeted([64, 32], answer=32)
    connection.closed()
    pushes = run.after["payload_bytes"] // run.size
    assert run.after["wire_bytes"] == (
        WORKERS * connection.sent[True] + pushes * wire_bytes(run.size + 64) + acknowledged
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_bytes_between_devices_add_up_to_the_ingress(algorithm: str) -> None:
    run = Simulated(settings(algorithm))
    sent = run.system.over_links()
    hub = {receiver for _, receiver in sent} if algorithm == "all-to-all" else {"server"}
    entered = sum(size for (_, receiver), size in sent.items() if receiver in hub)
    assert entered == run.after["wire_bytes"]
    # Every message also takes the other way: as an acknowledgement, or as the parameters asked for.
    assert {(receiver, sender) for sender, receiver in sent} == sent.keys()
    assert min(sent.values()) > 74 + 2 * 66


@pytest.mark.parametrize("network", NETWORKS)
def test_the_bytes_at_peers_follow_from_their_steps(network: str) -> None:
    run = simulated("all-to-all", network)
    rows = run.rows
    others = WORKERS - 1
    assert set(rows["payload_bytes"].tolist()) == {others * run.size}
    assert set(rows["message_bytes"].tolist()) == {others * (run.size + 32)}
    assert run.after["payload_bytes"] == rows["payload_bytes"].sum()
    meeting, parting = WORKERS * others // 2 * (64 + 32), WORKERS * others * 32
    assert run.after["message_bytes"] == rows["message_bytes"].sum() + meeting + parting
    assert isinstance(run.system, MeshSystem)
    peers = run.system.own_summary()["peers"]
    for key in ("payload_bytes", "message_bytes", "wire_bytes"):
        assert sum(peer[key] for peer in peers.values()) == run.after[key]
    steps = np.bincount(rows["worker"], minlength=WORKERS)
    for peer, name in enumerate(peers):
        assert name == f"peer-{peer}"
        assert peers[name]["payload_bytes"] == (UPDATES - steps[peer]) * run.size
    assert peers["peer-0"]["parameters_sha256"] == run.digest
    assert len({peer["parameters_sha256"] for peer in peers.values()}) > 1


def held(workers: SimulatedDevices) -> Counter[Part]:
    """Count by hand, for each part of a version, how many computations still need it."""
    needed: Counter[Part] = Counter()
    for there in workers._there:
        needed.update(part for part, _ in there)
    begun = {one for one in workers._computing if one is not None}
    for outbox in workers._outbox:
        begun |= {one for one in outbox if isinstance(one, Begun)}
    for one in begun:
        needed.update(one.parts if one.result is None and one.messages is None else ())
    return needed


def stored(workers: SimulatedDevices) -> Counter[Part]:
    """Return how many holders each part of a version has."""
    found: Counter[Part] = Counter()
    for index, copies in enumerate(workers._compute.versions._copies):
        found.update({(index, key): count for key, count in copies._holders.items()})
    return found


@pytest.mark.parametrize("batched", [False, True], ids=["serial", "batched"])
@pytest.mark.parametrize("algorithm", SERVED)
def test_versions_are_stored_once_and_as_long_as_they_are_needed(
    algorithm: str, batched: bool
) -> None:
    most = 0

    def look(star: System) -> None:
        nonlocal most
        assert isinstance(star, ServedSystem)
        workers = star._devices
        assert held(workers) == stored(workers)
        most = max(most, len(workers._compute.versions))

    how = {"network": NETWORKS["shaped"], "simulation": {"batched": batched}}
    run = Simulated(settings(algorithm, **how), look)
    assert isinstance(run.system, ServedSystem)
    workers = run.system._devices
    look(run.system)
    assert most > 0 or workers._compute.at_once
    assert most <= WORKERS + 1  # one for each worker, and one under way
    for part, count in held(workers).items():
        for _ in range(count):
            workers._compute.versions.release(part)
    assert len(workers._compute.versions) == 0


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("algorithm", ["asgd", "sync-all", "pull", "push-and-wait"])
def test_batched_gradients_change_rounding_and_nothing_else(algorithm: str, network: str) -> None:
    batched = Simulated(
        settings(algorithm, network=NETWORKS[network], simulation={"batched": True})
    )
    assert_differ_by_rounding(batched, simulated(algorithm, network))


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "cnn-5x5", "augmentation": {"crop": 2, "flip": True}, "clip": 0.5},
        {"model": {"name": "resnet20", "buffers": "shared"}, "updates": 8, "batch_size": 4},
    ],
    ids=["plain", "batch-norm"],
)
def test_batched_gradients_are_those_of_the_objective(changes: dict[str, Any]) -> None:
    """Weight decay, a clip, augmentation, and buffers that are shared."""
    own = {"model": changes["model"]} | {
        "training": {"batch_size": 10, "learning_rate": 0.05, "updates": UPDATES}
        | {"weight_decay": 0.1}
        | {key: value for key, value in changes.items() if key != "model"}
    }
    batched = Simulated(settings("asgd", **own, simulation={"batched": True}))
    assert_differ_by_rounding(batched, Simulated(settings("asgd", **own)))


def assert_differ_by_rounding(batched: Simulated, serial: Simulated) -> None:
    """Assert that runs with batched and with serial gradients differ by rounding and nothing else."""
    assert batched.before == serial.before
    assert batched.after == serial.after
    assert batched.rows.dtype.names is not None
    for name in set(batched.rows.dtype.names) - {"loss"}:
        assert batched.rows[name].tolist() == serial.rows[name].tolist()
    np.testing.assert_allclose(batched.rows["loss"], serial.rows["loss"], rtol=1e-3)
    np.testing.assert_allclose(
        batched.system.parameters, serial.system.parameters, rtol=1e-3, atol=1e-5
    )


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("algorithm", ["asgd", "sync-all", "pull", "push-and-wait"])
def test_a_run_can_be_computed_again_from_its_rows(algorithm: str, network: str) -> None:
    """Each gradient is computed at its row's base version, on its worker's next mini-batch."""
    run = simulated(algorithm, network)
    learner, data = Learner("mlp", 10), _digits(3)
    versions = [initialise("mlp", "paper", stream(3, "initial"))]
    shards = equal(len(data.train_images), WORKERS, 3)
    batches = [Batches(data, s, 10, stream(3, "batches", i)) for i, s in enumerate(shards)]
    gathered: list[npt.NDArray[np.float32]] = []
    k = WORKERS if algorithm == "sync-all" else ALGORITHMS[algorithm].get("wait_for", 1)
    for row in run.rows:
        images, labels = batches[row["worker"]].next()
        if np.isnan(row["loss"]):
            continue  # a late worker's report
        learner.parameters[:] = versions[row["base_version"]]
        gradient, loss = learner.gradient(images, labels)
        assert row["loss"] == np.float32(loss) or abs(row["loss"] - loss) < 1e-4
        if row["applied"]:
            gathered.append(gradient / np.float32(max(1, row["staleness"])))
        if len(gathered) == k:
            mean = np.mean(gathered, axis=0, dtype=np.float32)
            versions.append(versions[-1] - np.float32(0.05) * mean)
            gathered.clear()
    np.testing.assert_allclose(run.system.parameters, versions[-1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("network", NETWORKS)
def test_peers_receive_the_gradients_that_were_sent(network: str) -> None:
    """This holds although the sender may have computed another gradient before they arrive."""
    sent: dict[int, list[bytes]] = {peer: [] for peer in range(WORKERS)}
    taken: Counter[tuple[int, int]] = Counter()

    def note(half: PeerHalf, number: int) -> None:
        step, receive = half.step, half.receive

        def noted_step(gradient: FloatVector) -> Sequence[Parcel]:
            sent[number].append(gradient.tobytes())
            return step(gradient)

        def noted_receive(sender: int, update: Update) -> Sequence[Parcel]:
            assert isinstance(update, DenseUpdate)
            assert update.values.tobytes() == sent[sender][taken[number, sender]]
            taken[number, sender] += 1
            return receive(sender, update)

        half.step, half.receive = noted_step, noted_receive  # type: ignore[method-assign]

    noted: list[int] = []

    def look(mesh: System) -> None:
        assert isinstance(mesh, MeshSystem)
        while len(noted) < WORKERS:
            note(mesh.peers[len(noted)].computation.half, len(noted))
            noted.append(len(noted))

    run = Simulated(settings("all-to-all", network=NETWORKS[network]), look)
    assert run.digest == simulated("all-to-all", network).digest
    assert sum(taken.values()) > UPDATES


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_shorter_run_is_the_beginning_of_a_longer_one(algorithm: str) -> None:
    """Gradients are computed ahead, but none at parameters that do not exist yet."""
    training = {"batch_size": 10, "learning_rate": 0.05, "updates": 20}
    long = simulated(algorithm, "unshaped")
    short = Simulated(settings(algorithm, training=training))
    assert short.digest == long.checkpoints[2].digest
    assert short.rows.tobytes() == long.rows[: len(short.rows)].tobytes()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_device_classes_that_repeat_the_common_settings_change_nothing(algorithm: str) -> None:
    network = {"network": NETWORKS["shaped"]}
    waiting = {"distribution": "exponential", "mean": "30ms"}
    classes = [
        {"name": "a", "number": 1, "waiting": waiting},
        {"name": "b", "number": 3, "uplink": "2mbit", "downlink": "10mbit", "delay": "5ms"},
    ]
    alike = Simulated(settings(algorithm, **network))
    named = Simulated(
        settings(algorithm, devices={"workers": WORKERS, "classes": classes}, **network)
    )
    assert named.digest == alike.digest
    assert named.rows.tobytes() == alike.rows.tobytes()
    assert named.after == alike.after


def test_a_slow_class_sends_less() -> None:
    classes = [{"name": "a", "number": 2}, {"name": "b", "number": 2, "waiting": {"mean": "3s"}}]
    one = settings("asgd", devices={"workers": WORKERS, "classes": classes})
    ran = Simulated(one)
    slow = [number for number, of in enumerate(one.class_of) if of == 1]
    assert np.isin(ran.rows["worker"], slow).sum() <= 0.2 * len(ran.rows)
