"""The catalogue of metrics: it is documented, names follow conventions, labels are bounded."""

import re
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from testbed.metrics.device_metrics import WORKERS
from testbed.metrics.exporter import METRICS, RunsCollector, table
from testbed.metrics.live import LiveRun
from testbed.metrics.state import RunState
from testbed.runs.class_records import device_classes
from tests.metrics.running import page, planned

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_documented_table_is_that_of_the_code() -> None:
    written = DOCUMENT.read_text(encoding="utf-8")
    assert table() in written, "print it with: from testbed.metrics.exporter import table"


def test_names_follow_the_conventions() -> None:
    names = [metric.name for metric in (*METRICS, *WORKERS)]
    assert len(names) == len(set(names))
    for metric in (*METRICS, *WORKERS):
        assert re.fullmatch(r"testbed_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert metric.meaning.endswith(".")


@pytest.mark.parametrize("workers", [3, 300])
def test_no_label_has_more_values_if_there_are_more_workers(workers: int) -> None:
    classes = [{"share": "50%", "factor": 1.0}, {"share": "50%", "factor": 4.0}]
    one = planned(workers, compute={"mean": "100ms", "classes": classes})
    runs = RunsCollector(sources=[LiveRun(one, "time-1")])
    samples = [s for family in text_string_to_metric_families(page(runs)) for s in family.samples]
    assert not any("worker-" in value for s in samples for value in s.labels.values())
    assert not any("worker" in s.labels for s in samples)
    by_name: dict[str, int] = {}
    for sample in samples:
        by_name[sample.name] = by_name.get(sample.name, 0) + 1
    assert max(by_name.values()) <= 2 * 6  # classes and states
    assert len(samples) < 120

    named = RunsCollector(workers=True, sources=runs.sources)
    families = {f.name: f for f in text_string_to_metric_families(page(named))}
    assert len(families["testbed_worker_updates"].samples) == workers
    ingress = families["testbed_worker_ingress_bytes"].samples
    assert {s.labels["worker"] for s in ingress} == {f"worker-{i}" for i in range(workers)}


def test_a_metric_without_a_known_value_is_absent() -> None:
    state = RunState("a/b", "asgd", {}, 1, device_classes({}, 1, 2), ("worker-0", "worker-1"))
    absent = {m.name for m in METRICS if m.name != "testbed_run_info" and not list(m.read(state))}
    assert absent == {
        "testbed_updates_per_second",
        "testbed_programs_running",
        "testbed_egress_bytes_total",
        "testbed_ingress_packets_total",
        "testbed_ingress_acknowledgements_total",
        "testbed_capture_packets_total",
        "testbed_capture_dropped_packets_total",
        "testbed_accuracy_ratio",
        "testbed_loss",
        "testbed_measured",
        "testbed_evaluated_updates",
        "testbed_evaluated_ingress_bytes",
        "testbed_evaluations_due",
        "testbed_devices",
        "testbed_uplink_transmitted_bytes_total",
        "testbed_uplink_capacity_bytes_per_second",
        "testbed_uplink_utilisation_ratio",
        "testbed_uplink_dropped_packets_total",
        "testbed_uplink_backlog_bytes",
        "testbed_server_queue_seconds",
        "testbed_server_apply_seconds",
        "testbed_diagnostic",
        "testbed_memory_bytes",
        "testbed_cpu_seconds_total",
        "testbed_training_seconds",
        "testbed_virtual_time_seconds",
        "testbed_target_accuracy_ingress_bytes",
    }
    assert np.all(state.workers.lost == 0)
