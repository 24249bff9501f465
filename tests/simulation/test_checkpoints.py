"""A simulated system that goes on from a checkpoint ends as an undisturbed one does, to the bit."""

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from testbed.checkpoints.files import CheckpointFiles
from testbed.checkpoints.state_encoding import encode
from testbed.experiment.spec import Spec
from testbed.learning.data import datasets
from testbed.learning.learner import Learner
from testbed.learning.models import initialise
from testbed.messages.fault_changes import FaultChange
from testbed.messages.reports import Suspected, Welcomed
from testbed.planning.plan import plan
from testbed.random_streams import stream
from testbed.simulation.simulated_devices import STORED
from testbed.simulation.systems import system
from testbed.telemetry.update_rows import UPDATE, UpdateRow
from testbed.training.service_entries import Diagnosed, Entry, UpdateEntry
from testbed.training.settings import Settings

UPDATES = 30
SHAPED = {"uplink": "2mbit", "downlink": "10mbit", "delay": "5ms"}
SHARED = SHAPED | {
    "server": {"uplink": "12mbit", "downlink": "3mbit", "delay": "1ms"},
    "clusters": [
        {"name": "campus", "share": "60%", "uplink": "2mbit", "downlink": "8mbit", "delay": "3ms"},
        {"name": "village", "share": "40%", "uplink": "1mbit"},
    ],
}
WIDE_CLUSTERS = [
    {"name": "one", "share": "60%", "uplink": "20mbit"},
    {"name": "two", "share": "40%"},
]
TRACED = {
    "delay": "5ms",
    "trace": {
        "spread": True,
        "content": {
            "uplink": {"times": [0.0, 0.3, 0.5], "rates": [2_000_000, 0, 9_000_000], "period": 0.8},
            "downlink": {"times": [0.0, 0.4], "rates": [9_000_000, 2_000_000], "period": 0.7},
        },
    },
}
JITTERED = SHAPED | {
    "delay": {"up": "5ms", "down": "40ms"},
    "jitter": {"up": "5ms", "down": "30ms"},
}
SYNCHRONOUS = {"name": "sync-sgd", "wait_for": 3}
FAULTS: list[dict[str, Any]] = [
    {"when": {"probability": 0.1}, "how": "freeze", "lasting": "200ms"},
    {"when": {"mean_time": "700ms"}, "how": "kill", "lasting": "100ms"},
    {"when": {"mean_time": "800ms"}, "how": "stop-network", "lasting": "100ms"},
    {"when": {"iteration": 20}, "how": {"kind": "slow", "factor": 3}, "lasting": "300ms"},
]
SLOW_LINK = {"when": {"time": "500ms"}, "how": {"kind": "slow", "uplink": "1mbit"}, "lasting": "1s"}
FLOWS = [
    {"from": "server", "to": "worker-2", "rate": "2mbit", "law": "poisson"},
    {"from": "worker-1", "to": "worker-2", "rate": "900kbit"},
    {
        "from": "worker-1",
        "to": "worker-4",
        "rate": "1.5mbit",
        "law": "on-off",
        "on": "400ms",
        "off": "700ms",
    },
    {
        "from": "worker-3",
        "to": "worker-2",
        "rate": "3mbit",
        "law": "on-off",
        "on": "200ms",
        "off": "300ms",
    },
]
TO_SERVER = FLOWS[-1] | {"from": "worker-4", "to": "server", "rate": "1.2mbit"}
SLOW = {"kind": "slow", "uplink": "3mbit", "downlink": "3mbit"}
CLUSTER_LEAVES: dict[str, Any] = {
    "algorithms": [{"name": "hierarchical"}],
    "network": {"clusters": [{"name": "one", "number": 1}, {"name": "four", "number": 4}]},
    "simulation": {"batched": True},
    "faults": [
        {
            "who": {"devices": ["worker-0", "worker-1"]},
            "when": {"mean_time": "400ms"},
            "how": "kill",
            "lasting": "300ms",
        }
    ],
}
AMONG_PEERS = {key: part for key, part in SHARED.items() if key != "server"}
OTHERS = {"devices": [f"worker-{i}" for i in range(1, 5)]}
PEER_FAULTS = [
    {"who": OTHERS, "when": {"mean_time": "400ms"}, "how": "freeze", "lasting": "200ms"},
    {"who": OTHERS, "when": {"mean_time": "500ms"}, "how": "kill", "lasting": "100ms"},
    {"who": OTHERS, "when": {"mean_time": "500ms"}, "how": "stop-network", "lasting": "100ms"},
    {"when": {"iteration": 20}, "how": {"kind": "slow", "factor": 3}, "lasting": "300ms"},
]
SYSTEMS: dict[str, dict[str, Any]] = {
    "adacomp, shared, changed": {
        "algorithms": [{"name": "adacomp", "ratio": 0.05, "error_feedback": True}],
        "network": SHARED,
        "pulls": "changed",
    },
    "push-and-wait, shared": {
        "algorithms": [SYNCHRONOUS | {"protocol": "push-and-wait"}],
        "network": SHARED,
    },
    "push-and-interrupt, shared": {
        "algorithms": [SYNCHRONOUS | {"protocol": "push-and-interrupt"}],
        "network": SHARED,
    },
    "comp-asgd, feedback and momentum": {
        "algorithms": [
            {"name": "comp-asgd", "ratio": 0.05, "error_feedback": True, "momentum": 0.5}
        ],
        "encoding": "compact-8",
    },
    "adacomp": {"algorithms": [{"name": "adacomp", "ratio": 0.05}]},
    "adacomp, shaped, changed": {
        "algorithms": [{"name": "adacomp", "ratio": 0.05, "error_feedback": True}],
        "network": SHAPED,
        "pulls": "changed",
    },
    "adacomp, batched": {
        "algorithms": [{"name": "adacomp", "ratio": 0.05}],
        "simulation": {"batched": True},
    },
    "pull": {"algorithms": [SYNCHRONOUS]},
    "push-and-wait, shaped": {
        "algorithms": [SYNCHRONOUS | {"protocol": "push-and-wait"}],
        "network": SHAPED,
    },
    "everything goes wrong": {
        "algorithms": [{"name": "dana-ga", "ratio": 0.05, "error_feedback": True}],
        "network": SHAPED,
        "faults": FAULTS,
    },
    "shared, everything goes wrong": {
        "algorithms": [{"name": "adacomp", "ratio": 0.05, "error_feedback": True}],
        "network": SHARED,
        "faults": FAULTS,
    },
    "traced, everything goes wrong": {
        "algorithms": [{"name": "adacomp", "ratio": 0.05}],
        "network": TRACED,
        "faults": FAULTS,
    },
    "traced with jitter, everything goes wrong": {
        "algorithms": [{"name": "adacomp", "ratio": 0.05}],
        "network": TRACED | {key: JITTERED[key] for key in ("delay", "jitter")},
        "faults": FAULTS,
    },
    "traced, shared, everything goes wrong": {
        "algorithms": [{"name": "adacomp", "ratio": 0.05}],
        "network": TRACED | {key: SHARED[key] for key in ("server", "clusters")},
        "faults": FAULTS,
    },
    "arrive and leave": {
        "algorithms": [{"name": "adacomp", "ratio": 0.05}],
        "network": SHAPED,
        "devices": {
            "workers": 5,
            "classes": [
                {"name": "core", "number": 2},
                {"name": "late", "number": 1, "arrives": "400ms"},
                {
                    "name": "mobile",
                    "number": 2,
                    "leaves": {"distribution": "exponential", "mean": "500ms"},
                    "returns": {"distribution": "exponential", "mean": "300ms"},
                },
            ],
        },
    },
    "jitter, everything goes wrong": {
        "algorithms": [SYNCHRONOUS | {"protocol": "push-and-interrupt"}],
        # At 2 Mbit/s hardly a push ends between two kills.
        "network": JITTERED | {"uplink": "20mbit"},
        "faults": FAULTS,
    },
    "shared with jitter, everything goes wrong": {
        "algorithms": [{"name": "adacomp", "ratio": 0.05}],
        "network": SHARED | {"delay": "30ms", "jitter": "30ms"},
        "faults": FAULTS,
    },
    "background traffic, everything goes wrong": {
        "algorithms": [{"name": "adacomp", "ratio": 0.05}],
        "network": SHAPED,
        "traffic_between": FLOWS,
        "faults": [*FAULTS, SLOW_LINK],
    },
    "background traffic beside a trace, pushed every version": {
        "algorithms": [SYNCHRONOUS | {"protocol": "push-and-wait"}],
        "network": TRACED | {key: JITTERED[key] for key in ("delay", "jitter")},
        "traffic_between": FLOWS,
        "faults": [FAULTS[0], FAULTS[2]],
    },
    "background traffic, servers, everything goes wrong": {
        "algorithms": [{"name": "adacomp", "ratio": 0.05}],
        "devices": {"workers": 5, "servers": 2, "suspect_after": "2s"},
        "network": SHAPED,
        "traffic_between": FLOWS[1:],
        "faults": [*FAULTS, SLOW_LINK],
    },
    "background traffic, shared, everything goes wrong": {
        "algorithms": [{"name": "adacomp", "ratio": 0.05}],
        "network": SHARED,
        "traffic_between": [*FLOWS, TO_SERVER],
        "faults": [FAULTS[0], FAULTS[2], SLOW_LINK, FAULTS[1] | {"when": {"time": "600ms"}}],
    },
    "background traffic, aggregators, shared": {
        "algorithms": [{"name": "hierarchical", "ratio": 0.05, "error_feedback": True}],
        "network": SHARED,
        "traffic_between": [*FLOWS, TO_SERVER],
    },
    "background traffic among peers, shared, faults": {
        "algorithms": [{"name": "all-to-all", "staleness_bound": 1, "send_queue": 2}],
        "network": AMONG_PEERS,
        "traffic_between": FLOWS[1:],
        "faults": PEER_FAULTS,
    },
    "background traffic among peers, faults": {
        "algorithms": [{"name": "ako", "partitions": 2}],
        "network": SHAPED,
        "traffic_between": FLOWS[1:],
        "faults": PEER_FAULTS,
    },
    "some for good": {
        "algorithms": [SYNCHRONOUS | {"wait_for": 5, "protocol": "push-and-wait"}],
        "network": SHAPED | {"uplink": "20mbit"},
        "devices": {"workers": 5, "suspect_after": "300ms"},
        "faults": [
            {"who": {"number": 1}, "when": {"time": "500ms"}, "how": "freeze"},
            {"when": {"mean_time": "400ms"}, "how": "partition", "lasting": "50ms"},
        ],
    },
    "servers": {
        "algorithms": [{"name": "adacomp", "ratio": 0.05, "error_feedback": True}],
        "devices": {"workers": 5, "servers": 3},
        "pulls": "changed",
    },
    "servers, push-and-wait, shaped": {
        "algorithms": [SYNCHRONOUS | {"protocol": "push-and-wait"}],
        "devices": {"workers": 5, "servers": 3},
        "network": SHAPED,
    },
    "servers, shaped, everything goes wrong": {
        "algorithms": [{"name": "adacomp", "ratio": 0.05, "error_feedback": True}],
        "devices": {"workers": 5, "servers": 3, "suspect_after": "2s"},
        "network": SHAPED,
        "faults": FAULTS,
    },
    "servers, batched": {
        "algorithms": [{"name": "adacomp", "ratio": 0.05}],
        "devices": {"workers": 5, "servers": 2, "allocation": "tensors"},
        "simulation": {"batched": True},
    },
    "co-located servers": {
        "algorithms": [{"name": "asgd"}],
        "devices": {"workers": 5, "servers": 3, "placement": "co-located"},
        "network": SHAPED,
    },
    "co-located servers, everything goes wrong": {
        "algorithms": [{"name": "adacomp", "ratio": 0.05, "error_feedback": True}],
        "devices": {"workers": 5, "servers": 3, "placement": "co-located", "suspect_after": "2s"},
        # At 2 Mbit/s a machine's uplink is occupied by its server's answers.
        "network": SHAPED | {"uplink": "30mbit"},
        "faults": FAULTS,
    },
    "co-located servers, traced with jitter, cut off again and again": {
        "algorithms": [{"name": "adacomp", "ratio": 0.05}],
        "devices": {"workers": 5, "servers": 3, "placement": "co-located"},
        "network": TRACED
        | {key: JITTERED[key] for key in ("delay", "jitter")}
        | {"clusters": WIDE_CLUSTERS},
        "faults": [
            {"when": {"mean_time": "2s"}, "how": "stop-network", "lasting": "100ms"},
            {"when": {"mean_time": "3s"}, "how": "partition", "lasting": "300ms"},
            {"when": {"mean_time": "3s"}, "how": SLOW, "lasting": "500ms"},
        ],
    },
    "aggregators": {
        "algorithms": [{"name": "hierarchical", "ratio": 0.05, "error_feedback": True}],
        "network": SHARED,
    },
    "adacomp, overlapping, everything goes wrong": {
        "algorithms": [{"name": "adacomp", "ratio": 0.05, "send_queue": 1}],
        "network": SHAPED,
        "devices": {"workers": 5, "suspect_after": "300ms"},
        "faults": FAULTS,
    },
    "aggregators, within, everything goes wrong": {
        "algorithms": [
            {"name": "hierarchical", "within": "120ms", "server": "asynchronous", "ratio": 0.05}
        ],
        "network": SHAPED | {"clusters": SHARED["clusters"]},
        "devices": {"workers": 5, "suspect_after": "2s"},
        "faults": FAULTS,
    },
    "aggregators of three servers, everything goes wrong": {
        "algorithms": [
            {"name": "hierarchical", "within": "120ms", "server": "asynchronous", "ratio": 0.05}
        ],
        "network": SHAPED | {"clusters": SHARED["clusters"]},
        "devices": {"workers": 5, "servers": 3, "suspect_after": "2s"},
        "faults": FAULTS,
    },
    "aggregators, a cluster leaves": CLUSTER_LEAVES,
    "aggregators of two servers, a cluster leaves": CLUSTER_LEAVES
    | {"devices": {"workers": 5, "servers": 2}},
    "aggregators in a region that rest, shared": {
        "algorithms": [{"name": "hierarchical"}],
        "network": SHARED
        | {
            "clusters": [
                {"name": "one", "number": 1, "inside": "region", "uplink": "1mbit"},
                {"name": "four", "number": 4, "uplink": "2mbit"},
                {"name": "region", "uplink": "1mbit", "delay": "30ms"},
            ]
        },
        "faults": [
            {
                "who": {"devices": ["worker-0"]},
                "when": {"mean_time": "400ms"},
                "how": "kill",
                "lasting": "300ms",
            }
        ],
    },
    "ako, shaped": {
        "algorithms": [{"name": "ako", "partitions": 3, "ratio": 0.1, "send_queue": 3}],
        "network": SHAPED,
    },
    "ako, traced, faults": {
        "algorithms": [{"name": "ako", "partitions": 2}],
        "network": TRACED,
        "faults": PEER_FAULTS,
        "checkpoints": {"every": 2},
    },
    "all-to-all, shared, faults": {
        "algorithms": [{"name": "all-to-all", "staleness_bound": 1, "send_queue": 2}],
        "network": AMONG_PEERS,
        "faults": PEER_FAULTS,
        "encoding": "compact-8",
    },
    "all-to-all, jittered, silent": {
        "algorithms": [{"name": "all-to-all", "send_queue": "unlimited"}],
        "network": JITTERED,
        "faults": [PEER_FAULTS[0] | {"lasting": "1s"}],
        "devices": {"workers": 5, "suspect_after": "200ms"},
    },
    "ring, shared": {"algorithms": ["ring"], "network": AMONG_PEERS},
    "push-and-interrupt, shaped": {
        "algorithms": [SYNCHRONOUS | {"protocol": "push-and-interrupt"}],
        "network": SHAPED,
    },
}


def settings(name: str, folder: Path) -> Settings:
    trace = folder / "trace.csv"
    trace.write_text("seconds\n0.03\n0.011\n0.05\n0.007\n0.02\n")
    spec = {
        "name": "simulated",
        "seed": 3,
        "dataset": "digits",
        "model": "mlp",
        "training": {"batch_size": 10, "learning_rate": 0.05, "updates": UPDATES},
        "devices": {"workers": 5},
        "engine": "simulation",
        "compute": {"distribution": "gamma", "mean": "100ms", "variation": 0.5},
        "waiting": {"distribution": "trace", "file": str(trace)},
        "evaluation": {"every": 10},
    }
    return plan(Spec.model_validate(spec | SYSTEMS[name]))[0].settings


@functools.cache
def digits() -> datasets.Dataset:
    return datasets.load("digits", "standardised", None, 3)


class Going:
    """A system, and a record that keeps the rows and the records of faults and suspicions."""

    def __init__(self, settings: Settings) -> None:
        self.rows: list[UpdateRow] = []
        self.faults: list[Mapping[str, object]] = []
        self.diagnoses: list[tuple[float, ...]] = []
        learner = Learner("mlp", settings.training.batch_size)
        initial = initialise("mlp", "paper", stream(settings.seed, "initial"))
        self.system = system(settings)(settings, digits(), learner, initial, self)

    def record(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            match entry:
                case UpdateEntry(row):
                    self.rows.append(row)
                case Suspected(worker, silent, time):
                    told = {"suspected": worker, "silent": silent, "time": time}
                    self.faults.append(told)
                case Welcomed(worker, time):
                    self.faults.append({"welcomed": worker, "time": time})
                case Diagnosed(values, version):
                    self.diagnoses.append((version, *values))

    def fault(self, record: FaultChange) -> None:
        self.faults.append(record)

    def returned(self, peer: int, version: int) -> None:
        self.faults.append({"returned": peer, "version": version})

    def end(self, between: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """Run to the end; return the parameters' digest, the devices' use, the ledgers and the time."""
        self.system.clock.run(between)
        digest = hashlib.sha256(self.system.parameters.tobytes()).hexdigest()
        ledger = self.system.ledger()
        self.system.drain()
        return {
            "parameters": digest,
            "use": self.system.device_use(),
            "ledger": ledger,
            "drained": self.system.ledger(),
            "time": self.system.clock.now,
        }


def without_host_time(rows: list[UpdateRow]) -> npt.NDArray[np.void]:
    made = np.array(rows, UPDATE)
    made["host_time"] = 0
    return made


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_restored_system_ends_as_the_undisturbed_one_does(tmp_path: Path, name: str) -> None:
    run = settings(name, tmp_path)
    first, undisturbed = Going(run), Going(run)
    taken: list[tuple[int, Path]] = []
    events = count = 0

    def counting() -> None:
        nonlocal count
        count += 1

    without = first.end(counting)
    at = {5, count // 3, count - count % 61 - 7}  # within an update, or at its ends

    def between() -> None:
        nonlocal events
        events += 1
        if events % 17 == 0:  # the clock can be put in a checkpoint at any time
            encode(undisturbed.system.clock.state(), STORED)
        if events in at:
            folder = tmp_path / f"{events}"
            state = {
                "rows": len(undisturbed.rows),
                "faults": len(undisturbed.faults),
                "system": undisturbed.system.state(),
            }
            with CheckpointFiles.open(folder, STORED) as files:
                files.write(events, state)
            taken.append((len(undisturbed.rows), folder))

    end = undisturbed.end(between)
    rows = without_host_time(undisturbed.rows)
    assert end["parameters"] == without["parameters"]  # taking checkpoints changes nothing
    assert len(taken) == 3
    assert taken[1][0] > 0
    for count, folder in taken:
        going_on = Going(run)
        with CheckpointFiles.open(folder, STORED) as files:
            state = files.newest()
        assert state["rows"] == count
        going_on.system.restore(state["system"])
        assert going_on.end() == end
        assert going_on.faults == undisturbed.faults[state["faults"] :]
        # Compared as bytes, because losses that a worker did not send are NaN.
        assert without_host_time(going_on.rows).tobytes() == rows[count:].tobytes()


def test_a_run_goes_on_while_an_aggregator_s_report_is_on_its_way(tmp_path: Path) -> None:
    run = settings("aggregators in a region that rest, shared", tmp_path)
    undisturbed = Going(run)
    reporting: dict[int, Path] = {}

    def between() -> None:
        state = undisturbed.system.state()
        on_its_way = state["clock"]["serving"]["_reporting"]
        for aggregator in on_its_way - reporting.keys():
            reporting[aggregator] = folder = tmp_path / f"{aggregator}"
            with CheckpointFiles.open(folder, STORED) as files:
                files.write(1, state)

    end = undisturbed.end(between)
    assert set(reporting) == {5, 7}  # that of the cluster, and that of the region around it
    for folder in reporting.values():
        going_on = Going(run)
        with CheckpointFiles.open(folder, STORED) as files:
            going_on.system.restore(files.newest())
        assert going_on.end() == end


def test_a_checkpoint_of_a_restored_system_is_the_same(tmp_path: Path) -> None:
    run = settings("push-and-wait, shaped", tmp_path)
    one = Going(run)
    state: list[Any] = []

    def between() -> None:
        if one.system.version == UPDATES // 2 and not state:
            with CheckpointFiles.open(tmp_path / "first", STORED) as files:
                files.write(1, one.system.state())
                state.append(files.newest())

    one.end(between)
    again = Going(run)
    again.system.restore(state[0])
    with CheckpointFiles.open(tmp_path / "second", STORED) as files:
        files.write(1, again.system.state())
    first, second = (tmp_path / name / "even" for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()
