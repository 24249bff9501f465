"""Metrics of runs over HTTP: during a run, after its end, and in a replay."""

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from testbed.metrics.state import PHASES
from tests.end_to_end.conftest import SMALL, CommandLine, Started, assert_one_sentence, until
from tests.metrics.running import Samples, samples, scrape

real = [pytest.mark.real, pytest.mark.exercises("namespaces")]
WORKERS, UPDATES = 5, 300
LAYERS = ("payload", "message", "wire")
CLASSES = {"waiting-x1": 2, "waiting-x2": 3}
SPEC: dict[str, Any] = SMALL | {
    "training": {"updates": UPDATES},
    "algorithms": ["asgd", {"name": "adacomp", "ratio": 0.01}],
    "network": {"uplink": "50mbit", "downlink": "100mbit"},
    "waiting": {
        "distribution": "constant",
        "mean": "30ms",
        "classes": [{"share": "40%", "factor": 1}, {"share": "60%", "factor": 2}],
    },
    "traffic": {"period": "200ms"},
}
PEERS: dict[str, Any] = SMALL | {
    "clock": "virtual",
    "compute": {"distribution": "constant", "mean": "50ms"},
    "algorithms": [{"name": "all-to-all", "label": "peers", "learning_rate": 0.01}],
}
_LOST = {"who": {"devices": ["worker-1"]}, "how": "freeze", "when": {"time": "200ms"}}
LOST: dict[str, Any] = PEERS | {"faults": [_LOST]}
"""The others go on sending to a lost peer, and those bytes are no ingress."""
SERVED: dict[str, Any] = PEERS | {"algorithms": [{"name": "adacomp", "ratio": 0.05}]}
UNKNOWN_AFTERWARDS = {
    "testbed_server_queue_seconds_count",
    "testbed_server_queue_seconds_sum",
    "testbed_server_apply_seconds_count",
    "testbed_server_apply_seconds_sum",
    "testbed_memory_bytes",
    "testbed_cpu_seconds_total",
}
"""Metrics that a run directory does not contain, so that a replay lacks them."""


def where(started: Started) -> str:
    """Return the address at which a command says that it serves metrics."""

    def told() -> str | None:
        found = re.search(r"metrics: (http://\S+)", started.said)
        return found.group(1) if found else None

    return str(started.until(told, "the metrics' address"))


def value(found: Samples, name: str, algorithm: str, **labels: str) -> float:
    key = tuple(sorted({"algorithm": algorithm, **labels}.items()))
    return found[name][key]


def phase(found: Samples, algorithm: str) -> str | None:
    for labels, one in found.get("testbed_run_phase", {}).items():
        if one and dict(labels)["algorithm"] == algorithm:
            return dict(labels)["phase"]
    return None


def by_label(found: Samples, name: str, algorithm: str, label: str) -> dict[str, float]:
    """Return values of a metric by one of its labels, summed over the others."""
    result: dict[str, float] = {}
    for labels, one in found[name].items():
        fields = dict(labels)
        if fields["algorithm"] == algorithm:
            result[fields[label]] = result.get(fields[label], 0) + one
    return result


@dataclass
class Watched:
    """A command that has ended, and the pages of metrics scraped from start to end."""

    execution: Path
    status: int
    said: str
    pages: list[str] = field(default_factory=list)

    @property
    def seen(self) -> list[Samples]:
        return [samples(text) for text in self.pages]

    @property
    def final(self) -> Samples:
        return samples(self.pages[-1])

    def summary(self, algorithm: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(
            (self.execution / algorithm / "summary.json").read_bytes()
        )
        return content


def watch(command: CommandLine, content: dict[str, Any], *options: str) -> Watched:
    """Carry out an experiment and scrape its metrics; Ctrl-C ends its lingering."""
    verb, *more = options or ("run",)
    where_to = ("--out", str(command.out), "--metrics-port", "0", "--metrics-linger", "10min")
    started = command.start(verb, command.spec(content), *where_to, "--no-report", *more)
    url = where(started)
    pages = []
    while "final values" not in started.said:
        pages.append(scrape(url))
        assert started.process.poll() is None, started.said
        time.sleep(0.15)
    pages.append(scrape(url))
    started.interrupt()
    status = started.wait()
    (spec,) = command.out.glob("*/*/experiment.yaml")
    return Watched(spec.parent, status, started.said, pages)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    command = CommandLine(tmp_path_factory.mktemp("watched"))
    try:
        yield watch(command, SPEC)
    finally:
        command.close()


ALGORITHMS = pytest.mark.parametrize("algorithm", ["asgd", "adacomp-0.01"])


class TestEmulation:
    """Metrics of an emulation in namespaces."""

    pytestmark = real

    def test_lingering_does_not_change_the_exit_status(self, watched: Watched) -> None:
        assert watched.status == 0

    @ALGORITHMS
    def test_final_values_equal_the_summary(self, watched: Watched, algorithm: str) -> None:
        found, summary = watched.final, watched.summary(algorithm)
        assert summary["traffic"]["reconciled"] is True
        assert phase(found, algorithm) == "completed"
        assert value(found, "testbed_updates_total", algorithm) == summary["updates"] == UPDATES
        assert value(found, "testbed_updates_target", algorithm) == UPDATES
        by_class = by_label(found, "testbed_class_updates_total", algorithm, "device_class")
        assert by_class.keys() == CLASSES.keys() and sum(by_class.values()) == UPDATES
        for layer in LAYERS:
            for name, ingress in (
                ("testbed_ingress_bytes_total", summary["ingress_after_drain"]),
                ("testbed_evaluated_ingress_bytes", summary["ingress"]),
            ):
                assert value(found, name, algorithm, layer=layer) == ingress[f"{layer}_bytes"]
        accuracy = value(found, "testbed_accuracy_ratio", algorithm)
        assert accuracy == summary["final_accuracy"] / 100
        assert value(found, "testbed_evaluated_updates", algorithm) == UPDATES
        assert value(found, "testbed_evaluations_due", algorithm) == 0
        seconds = value(found, "testbed_training_seconds", algorithm)
        assert seconds == summary["host_seconds"]
        devices = by_label(found, "testbed_devices", algorithm, "state")
        assert devices["done"] == sum(devices.values()) == WORKERS
        capture = summary["traffic"]["capture"]
        assert value(found, "testbed_capture_packets_total", algorithm) == capture["records"]
        assert value(found, "testbed_capture_dropped_packets_total", algorithm) == 0
        info = next(k for k in found["testbed_run_info"] if dict(k)["algorithm"] == algorithm)
        assert dict(info).items() >= {"dataset": "digits", "workers": "5", "seed": "1"}.items()

    @ALGORITHMS
    def test_the_staleness_histogram_matches_the_updates(
        self, watched: Watched, algorithm: str
    ) -> None:
        rows = pq.read_table(watched.execution / algorithm / "updates.parquet").to_pydict()
        staleness = rows["staleness"]
        name = "testbed_update_staleness"
        buckets = by_label(watched.final, f"{name}_bucket", algorithm, "le")
        for bound, count in buckets.items():
            assert count == sum(one <= float(bound) for one in staleness)
        assert value(watched.final, f"{name}_sum", algorithm) == sum(staleness)
        assert value(watched.final, f"{name}_count", algorithm) == UPDATES

    @ALGORITHMS
    def test_acknowledgements_and_egress_are_those_of_the_capture(
        self, watched: Watched, algorithm: str
    ) -> None:
        path = watched.execution / algorithm / "traffic" / "accounting.parquet"
        account = pq.read_table(path).to_pylist()

        def counted(direction: str, column: str) -> int:
            return sum(row[column] for row in account if row["direction"] == direction)

        wire = value(watched.final, "testbed_egress_bytes_total", algorithm, layer="wire")
        assert wire == counted("egress", "wire_bytes")
        packets = value(watched.final, "testbed_ingress_packets_total", algorithm)
        assert packets == counted("ingress", "frames")
        # An acknowledgement has 66 bytes, and 12 to 28 more if it reports a gap.
        pure = value(watched.final, "testbed_ingress_acknowledgements_total", algorithm)
        size = counted("ingress", "ack_bytes")
        assert size / 94 <= pure <= size / 66
        assert pure == pytest.approx(size / 66, rel=0.02)
        message = value(watched.final, "testbed_egress_bytes_total", algorithm, layer="message")
        ledgers = json.loads((path.parent / "ledgers.json").read_bytes())
        assert message == sum(c["sent_bytes"] for c in ledgers["connections"] if c["device"])
        payload = value(watched.final, "testbed_egress_bytes_total", algorithm, layer="payload")
        assert 0 < message - payload < 100 * (UPDATES + 3 * WORKERS)

    @ALGORITHMS
    def test_time_memory_and_processor_metrics_are_plausible(
        self, watched: Watched, algorithm: str
    ) -> None:
        found = watched.final
        applied = value(found, "testbed_server_apply_seconds_count", algorithm)
        assert applied == UPDATES
        queued = value(found, "testbed_server_queue_seconds_count", algorithm)
        assert UPDATES <= queued <= UPDATES + WORKERS
        for name in ("queue", "apply"):
            seconds = value(found, f"testbed_server_{name}_seconds_sum", algorithm)
            assert 0 < seconds / UPDATES < 1
        roles = {"server", "evaluator", "workers", "orchestrator"}
        memory = by_label(found, "testbed_memory_bytes", algorithm, "role")
        processor = by_label(found, "testbed_cpu_seconds_total", algorithm, "role")
        assert memory.keys() == processor.keys() == roles
        assert all(1e6 < size < 2e9 for size in memory.values())
        assert all(0 < seconds < 600 for seconds in processor.values())

    @ALGORITHMS
    def test_uplink_metrics_match_the_links_and_the_ingress(
        self, watched: Watched, algorithm: str
    ) -> None:
        found, label = watched.final, "device_class"
        capacity = by_label(found, "testbed_uplink_capacity_bytes_per_second", algorithm, label)
        assert capacity == {name: 6.25e6 * size for name, size in CLASSES.items()}
        sent = by_label(found, "testbed_uplink_transmitted_bytes_total", algorithm, label)
        # Nothing is lost on the way, and only the workers' traffic is counted.
        ingress = value(found, "testbed_ingress_bytes_total", algorithm, layer="wire")
        assert sum(sent.values()) == ingress
        used = [
            max(by_label(one, "testbed_uplink_utilisation_ratio", algorithm, label).values())
            for one in watched.seen
            if any(
                dict(k)["algorithm"] == algorithm
                for k in one.get("testbed_uplink_utilisation_ratio", {})
            )
        ]
        assert 0 < max(used) < 1.1

    def test_phases_and_counts_advance_during_a_run(self, watched: Watched) -> None:
        seen = watched.seen
        phases = [phase(one, "asgd") for one in seen]
        order = [p for i, p in enumerate(phases) if p and p != ([None, *phases])[i]]
        assert order == [one for one in PHASES if one in order]  # each once, in order
        assert order[0] == "loading" and order[-1] == "completed"
        # A short phase may fall between two scrapes; a line is printed for each phase.
        told = re.findall(r"asgd \(1/2\): (loading|training|finishing)", watched.said)
        assert list(dict.fromkeys(told)) == ["loading", "training", "finishing"]
        during = [one for one, p in zip(seen, phases, strict=True) if p == "training"]
        updates = [value(one, "testbed_updates_total", "asgd") for one in during]
        assert len(set(updates)) > 3
        states = {
            state
            for one in during
            for state, count in by_label(one, "testbed_devices", "asgd", "state").items()
            if count
        }
        assert {"training", "waiting"} & states
        assert any(one.get("testbed_updates_per_second", {}) for one in during)

    def test_counters_never_fall(self, watched: Watched) -> None:
        before: dict[Any, float] = {}
        for one in watched.seen:
            for name, values in one.items():
                if name.endswith(("_total", "_count", "_sum", "_bucket")):
                    for labels, now in values.items():
                        assert now >= before.get((name, labels), 0), (name, labels)
                        before[name, labels] = now

    def test_metrics_of_a_completed_run_stay_unchanged(self, watched: Watched) -> None:
        ended = [one for one in watched.seen if phase(one, "asgd") == "completed"]
        of_asgd = [
            {
                name: {k: v for k, v in values.items() if dict(k)["algorithm"] == "asgd"}
                for name, values in one.items()
            }
            for one in (ended[0], ended[-1])
        ]
        assert {n: v for n, v in of_asgd[0].items() if v} == {
            n: v for n, v in of_asgd[1].items() if v
        }

    def test_promtool_accepts_the_metrics(self, watched: Watched) -> None:
        promtool = shutil.which("promtool")
        if promtool is None:
            pytest.skip("there is no promtool here: Debian has it in the package prometheus")
        for text in (watched.pages[0], watched.pages[-1]):
            checked = subprocess.run(
                [promtool, "check", "metrics"],
                input=text,
                capture_output=True,
                text=True,
                check=False,
            )
            assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")

    def test_a_replay_ends_with_the_same_values(
        self, watched: Watched, command: CommandLine
    ) -> None:
        found = replayed(command, watched.execution)
        missing = set(watched.final) - set(found)
        assert missing == UNKNOWN_AFTERWARDS
        for name, values in found.items():
            expected = watched.final[name]
            if name == "testbed_egress_bytes_total":  # the payload is not recorded
                expected = {k: v for k, v in expected.items() if ("layer", "payload") not in k}
            assert values == expected, name

    def test_a_replay_advances_as_the_run_did(self, watched: Watched, command: CommandLine) -> None:
        run = watched.execution / "asgd"
        started = command.start(
            *("replay", run, "--metrics-port", "0", "--speed", "2", "--metrics-linger", "1min")
        )
        url, seen = where(started), []
        while "final values" not in started.said:
            seen.append(samples(scrape(url)))
            time.sleep(0.1)
        final = samples(scrape(url))
        started.interrupt()
        assert started.wait() == 0, started.said
        rows = pq.read_table(run / "updates.parquet").to_pydict()["host_time"]
        between = 0
        for one in seen:
            updates = value(one, "testbed_updates_total", "asgd")
            if phase(one, "asgd") == "training":
                seconds = value(one, "testbed_training_seconds", "asgd")
                assert updates == sum(when <= seconds for when in rows)
                between += 0 < updates < UPDATES
                wire = value(one, "testbed_ingress_bytes_total", "asgd", layer="wire")
                payload = value(one, "testbed_ingress_bytes_total", "asgd", layer="payload")
                if updates > UPDATES / 5:
                    assert wire == pytest.approx(payload * 1.05, rel=0.25)
        assert between > 2
        assert phase(final, "asgd") == "completed"


def replayed(command: CommandLine, *runs: Path) -> Samples:
    """Replay runs; return the final values of their metrics."""
    how = ("--speed", "0", "--metrics-port", "0", "--metrics-linger", "1min")
    started = command.start("replay", *runs, *how)
    url = where(started)
    started.until(lambda: "final values" in started.said, "the final values")
    found = samples(scrape(url))
    started.interrupt()
    assert started.wait() == 0, started.said
    return found


def same_afterwards(command: CommandLine, watched: Watched, unknown: set[str]) -> None:
    found = replayed(command, watched.execution)
    assert set(watched.final) - set(found) == unknown
    for name, values in found.items():
        assert values.items() <= watched.final[name].items(), name


@pytest.mark.real
@pytest.mark.exercises("namespaces")
def test_metrics_of_peers_match_the_summary_and_a_replay(command: CommandLine) -> None:
    watched = watch(command, PEERS)
    found, summary = watched.final, watched.summary("peers")
    for layer in LAYERS:
        size = summary["ingress_after_drain"][f"{layer}_bytes"]
        assert value(found, "testbed_ingress_bytes_total", "peers", layer=layer) == size
        assert value(found, "testbed_egress_bytes_total", "peers", layer=layer) == size
    seconds = value(found, "testbed_virtual_time_seconds", "peers")
    assert seconds == summary["training_seconds"]
    assert by_label(found, "testbed_devices", "peers", "state")["done"] == WORKERS
    assert by_label(found, "testbed_cpu_seconds_total", "peers", "role").keys() == {
        "evaluator",
        "workers",
        "orchestrator",
    }
    sent = by_label(found, "testbed_uplink_transmitted_bytes_total", "peers", "device_class")
    assert sent["all"] > summary["ingress_after_drain"]["message_bytes"]
    assert "testbed_uplink_capacity_bytes_per_second" not in found
    unknown = {"testbed_memory_bytes", "testbed_cpu_seconds_total"}
    uplinks = {
        "testbed_uplink_transmitted_bytes_total",
        "testbed_uplink_dropped_packets_total",
    }
    same_afterwards(command, watched, unknown | uplinks)


@pytest.mark.real
@pytest.mark.exercises("namespaces")
def test_what_passes_aggregators_is_no_traffic_of_the_server(command: CommandLine) -> None:
    clusters = [{"name": name, "share": "50%"} for name in "ab"]
    network = {"uplink": "50mbit", "clusters": clusters}
    content = SMALL | {"algorithms": ["hierarchical"], "network": network}
    watched = watch(command, content | {"training": {"updates": 10}})
    found, summary = watched.final, watched.summary("hierarchical")
    each = summary["traffic"]["servers"]
    pure = value(found, "testbed_ingress_acknowledgements_total", "hierarchical")
    assert pure == each["server"]["capture"]["acknowledgements"]
    packets = value(found, "testbed_capture_packets_total", "hierarchical")
    assert packets == sum(one["capture"]["records"] for one in each.values())
    # Each of two aggregators pushes what it is sent: the model.
    sent = value(found, "testbed_egress_bytes_total", "hierarchical", layer="message")
    assert sent == pytest.approx(summary["ingress_after_drain"]["message_bytes"], rel=0.1)
    same_afterwards(command, watched, UNKNOWN_AFTERWARDS)


@pytest.mark.parametrize(("content", "label"), [(SERVED, "adacomp-0.05"), (LOST, "peers")])
def test_metrics_of_simulations_match_the_summary_and_a_replay(
    command: CommandLine, content: dict[str, Any], label: str
) -> None:
    watched = watch(command, content, "simulate", "--metrics-workers")
    assert watched.status == 0
    found, summary = watched.final, watched.summary(label)
    assert value(found, "testbed_updates_total", label) == summary["updates"]
    for layer in LAYERS:
        size = summary["ingress_after_drain"][f"{layer}_bytes"]
        assert value(found, "testbed_ingress_bytes_total", label, layer=layer) == size
    assert value(found, "testbed_accuracy_ratio", label) == summary["final_accuracy"] / 100
    seconds = value(found, "testbed_virtual_time_seconds", label)
    assert seconds == summary["training_seconds"]
    assert phase(found, label) == "completed"
    by_worker = by_label(found, "testbed_worker_updates_total", label, "worker")
    assert len(by_worker) == WORKERS and sum(by_worker.values()) == summary["updates"]
    workers = {
        "testbed_worker_updates_total",
        "testbed_worker_ingress_bytes_total",
        "testbed_worker_info",
    }
    unknown = {"testbed_memory_bytes", "testbed_cpu_seconds_total"}
    same_afterwards(command, watched, workers | unknown)


def test_a_port_in_use_is_refused_before_anything_is_started(command: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for verb in ("run", "simulate"):
            options = (verb, command.spec(SERVED), "--out", command.out, "--metrics-port", port)
            said = assert_one_sentence(command.do(*map(str, options)), 2)
            assert f"--metrics-port {port}: the port is in use already" in said
    assert not command.out.exists()


@pytest.mark.parametrize("option", [("--metrics-linger", "2s"), ("--metrics-workers",)])
def test_serving_options_are_refused_without_a_metrics_port(
    command: CommandLine, option: tuple[str, ...]
) -> None:
    said = command.do("simulate", command.spec(SERVED), "--out", str(command.out), *option)
    assert f"{option[0]}: metrics are served only with" in assert_one_sentence(said, 2)
    assert not command.out.exists()


def test_a_simulation_lingers_as_long_as_asked(command: CommandLine) -> None:
    started = command.start(
        *("simulate", command.spec(SERVED), "--out", command.out, "--no-report"),
        *("--metrics-port", "0", "--metrics-linger", "2s"),
    )
    url = where(started)
    started.until(lambda: "final values" in started.said, "the final values")
    began = time.monotonic()
    assert phase(samples(scrape(url)), "adacomp-0.05") == "completed"
    assert started.wait() == 0
    assert 1 < time.monotonic() - began < 20


def test_a_run_that_is_interrupted_does_not_linger(command: CommandLine) -> None:
    endless = SERVED | {"training": {"updates": 10_000_000}}
    started = command.start(
        *("simulate", command.spec(endless), "--out", command.out, "--no-report"),
        *("--metrics-port", "0", "--metrics-linger", "10min"),
    )
    url = where(started)
    until(lambda: samples(scrape(url)).get("testbed_updates_total"), "a run")
    started.until(
        lambda: value(samples(scrape(url)), "testbed_updates_total", "adacomp-0.05") > 0,
        "an update",
    )
    started.interrupt()
    assert started.wait() == 130
    assert "stopped by SIGINT" in started.said and "final values" not in started.said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("replay", "nothing"), "there is no run 'nothing'"),
        (("simulate", "spec.yaml", "--metrics-port", "0", "--metrics-linger", "ten"), "'ten'"),
        (("simulate", "spec.yaml", "--metrics-port", "70000"), "there is no such port"),
        (
            ("run", "spec.yaml", "--metrics-linger", "0"),
            "--metrics-linger: metrics are served only with",
        ),
        (("resume", "--metrics-linger", "1s"), "--metrics-linger: metrics are served only with"),
    ],
)
def test_mistakes_are_one_sentence(
    command: CommandLine, arguments: tuple[str, ...], says: str
) -> None:
    command.spec(SERVED)
    assert says in assert_one_sentence(command.do(*arguments), 2)
