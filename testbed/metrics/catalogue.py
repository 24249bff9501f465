"""Every metric that is exported: name, type, labels, meaning, and how it is read off a run's state.

Names and units follow Prometheus's conventions. Labels are bounded: none but those of ``WORKERS``,
which have to be asked for, has a value per device.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from testbed.metrics.state import ACCURACIES, BUCKETS, PHASES, RunState

Sample = tuple[Sequence[str], Any]
"""The values of a metric's own labels, and its value."""
COMMON = ("run", "algorithm")
"""Labels of every metric."""
INFO = ("dataset", "model", "engine", "clock", "runtime", "seed", "workers")


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: with the suffix that it has on the page.
        labels: its own, beside ``COMMON``.
        meaning: one line, the metric's HELP.
        read: its samples; none of what is not known. A histogram's value is a
            ``state.Staleness``, a summary's its sum and its count.
    """

    name: str
    kind: Literal["gauge", "counter", "histogram", "summary"]
    labels: tuple[str, ...]
    meaning: str
    read: Callable[[RunState], Iterable[Sample]]


def _known(value: Any) -> Iterable[Sample]:
    return () if value is None else (((), value),)


def _by_key(values: dict[str, Any]) -> Iterable[Sample]:
    return (((key,), value) for key, value in values.items())


def _by_class(state: RunState, values: Any) -> Iterable[Sample]:
    if values is None:
        return ()
    return (((name,), value) for name, value in zip(state.classes.names, values, strict=True))


def _by_worker(state: RunState, values: Any, *more: str) -> Iterable[Sample]:
    return (((name, *more), n) for name, n in zip(state.worker_names, values, strict=True))


def _devices(state: RunState) -> Iterator[Sample]:
    for what, counts in state.devices.items():
        for name, count in zip(state.classes.names, counts, strict=True):
            yield (name, what), count


def _uplinks(name: str) -> Callable[[RunState], Iterable[Sample]]:
    return lambda s: _by_class(s, None if s.uplinks is None else getattr(s.uplinks, name))


def _evaluation(name: str) -> Callable[[RunState], Iterable[Sample]]:
    return lambda s: _known(None if s.evaluation is None else getattr(s.evaluation, name))


METRICS: tuple[Metric, ...] = (
    Metric(
        "testbed_run_info",
        "gauge",
        INFO,
        "A run and what it is; always 1.",
        lambda s: [([s.info[name] for name in INFO], 1)],
    ),
    Metric(
        "testbed_run_phase",
        "gauge",
        ("phase",),
        f"1 for the phase that the run is in, 0 for the others: {', '.join(PHASES)}.",
        lambda s: [((phase,), int(phase == s.phase)) for phase in PHASES],
    ),
    Metric("testbed_updates_total", "counter", (), "Updates applied.", lambda s: _known(s.updates)),
    Metric(
        "testbed_updates_dropped_total",
        "counter",
        (),
        "Pushes that were not applied: late ones of synchronous SGD.",
        lambda s: _known(s.dropped),
    ),
    Metric(
        "testbed_updates_target",
        "gauge",
        (),
        "Updates that the run lasts.",
        lambda s: _known(s.target),
    ),
    Metric(
        "testbed_updates_per_second",
        "gauge",
        (),
        "Updates per second of the host's clock, over the last few seconds; 0 when training is over.",
        lambda s: _known(s.rate),
    ),
    Metric(
        "testbed_class_updates_total",
        "counter",
        ("device_class",),
        "Updates applied, by the class of the device that pushed.",
        lambda s: _by_class(s, s.class_updates),
    ),
    Metric(
        "testbed_update_staleness",
        "histogram",
        (),
        "Updates that others had applied between the pull and the push of an applied update.",
        lambda s: _known(s.staleness),
    ),
    Metric(
        "testbed_ingress_bytes_total",
        "counter",
        ("layer",),
        "Bytes from workers into the parameter server (into all peers, where there is none): "
        "encoded updates, messages, or frames at MTU 1,500.",
        lambda s: _by_key(s.ingress),
    ),
    Metric(
        "testbed_egress_bytes_total",
        "counter",
        ("layer",),
        "Bytes from the parameter server to workers (from all peers to peers), likewise.",
        lambda s: _by_key(s.egress),
    ),
    Metric(
        "testbed_ingress_packets_total",
        "counter",
        (),
        "Frames at MTU 1,500 from workers into the parameter server (into all peers).",
        lambda s: _known(s.packets),
    ),
    Metric(
        "testbed_ingress_acknowledgements_total",
        "counter",
        (),
        "Pure ACKs from workers into the parameter server (into the observed peer), as captured.",
        lambda s: _known(s.acknowledgements),
    ),
    Metric(
        "testbed_capture_packets_total",
        "counter",
        (),
        "Packets that the capture kept, both directions.",
        lambda s: _known(None if s.capture is None else s.capture[0]),
    ),
    Metric(
        "testbed_capture_dropped_packets_total",
        "counter",
        (),
        "Packets that the capture had no room for.",
        lambda s: _known(None if s.capture is None else s.capture[1]),
    ),
    Metric(
        "testbed_accuracy_ratio",
        "gauge",
        (),
        "Share of the test set classified correctly, 0 to 1, at the last evaluation.",
        _evaluation("accuracy"),
    ),
    Metric("testbed_loss", "gauge", (), "Test loss at the last evaluation.", _evaluation("loss")),
    Metric(
        "testbed_evaluated_updates",
        "gauge",
        (),
        "Updates that had been applied to what was evaluated last.",
        _evaluation("updates"),
    ),
    Metric(
        "testbed_evaluated_ingress_bytes",
        "gauge",
        ("layer",),
        "Ingress when what was evaluated last was reached: pairs with testbed_accuracy_ratio.",
        lambda s: _by_key({} if s.evaluation is None else s.evaluation.ingress),
    ),
    Metric(
        "testbed_evaluations_due",
        "gauge",
        (),
        "Evaluations that the evaluator is behind.",
        lambda s: _known(s.due),
    ),
    Metric(
        "testbed_devices",
        "gauge",
        ("device_class", "state"),
        "Workers or peers by what they do: starting, training (computing), waiting (for time, "
        "parameters or the network), frozen, dead (crashed), done.",
        _devices,
    ),
    Metric(
        "testbed_devices_lost_total",
        "counter",
        ("device_class",),
        "Workers or peers that crashed.",
        lambda s: _by_class(s, s.lost),
    ),
    Metric(
        "testbed_uplink_transmitted_bytes_total",
        "counter",
        ("device_class",),
        "Bytes sent over uplinks: frames at MTU 1,500 where they are shaped, else as the interface "
        "counts, which segmentation offload makes a little less.",
        _uplinks("transmitted"),
    ),
    Metric(
        "testbed_uplink_capacity_bytes_per_second",
        "gauge",
        ("device_class",),
        "Sum of the uplinks' rates.",
        _uplinks("capacity"),
    ),
    Metric(
        "testbed_uplink_utilisation_ratio",
        "gauge",
        ("device_class",),
        "Share of the uplinks' capacity that was used over the last sample period, 0 to 1.",
        _uplinks("utilisation"),
    ),
    Metric(
        "testbed_uplink_dropped_packets_total",
        "counter",
        ("device_class",),
        "Packets that uplinks had no room for.",
        _uplinks("dropped"),
    ),
    Metric(
        "testbed_uplink_backlog_bytes",
        "gauge",
        ("device_class",),
        "Bytes that wait at uplinks.",
        _uplinks("backlog"),
    ),
    Metric(
        "testbed_server_queue_seconds",
        "summary",
        (),
        "How long pushes waited for the server's process after the kernel had received them.",
        lambda s: _known(s.queue),
    ),
    Metric(
        "testbed_server_apply_seconds",
        "summary",
        (),
        "How long the algorithm took to apply an update.",
        lambda s: _known(s.apply),
    ),
    Metric(
        "testbed_memory_bytes",
        "gauge",
        ("role",),
        "Memory that belongs to the processes of a role alone.",
        lambda s: _by_key(s.memory),
    ),
    Metric(
        "testbed_cpu_seconds_total",
        "counter",
        ("role",),
        "Processor time of a role.",
        lambda s: _by_key(s.processor),
    ),
    Metric(
        "testbed_training_seconds",
        "gauge",
        (),
        "Seconds of the host's clock since training began, until the last update.",
        lambda s: _known(s.training_seconds),
    ),
    Metric(
        "testbed_virtual_time_seconds",
        "gauge",
        (),
        "Seconds of the virtual clock since training began.",
        lambda s: _known(s.virtual_seconds),
    ),
    Metric(
        "testbed_target_accuracy_ingress_bytes",
        "gauge",
        ("layer", "accuracy"),
        f"Ingress when an accuracy was first reached: {', '.join(map(str, ACCURACIES))}.",
        lambda s: [
            ((layer, str(accuracy)), size)
            for accuracy, ingress in s.reached.items()
            for layer, size in ingress.items()
        ],
    ),
)
WORKERS: tuple[Metric, ...] = (
    Metric(
        "testbed_worker_ingress_bytes_total",
        "counter",
        ("worker", "layer"),
        "Message bytes of each worker's pushes (of what each peer sent).",
        lambda s: _by_worker(s, s.worker_message_bytes, "message"),
    ),
    Metric(
        "testbed_worker_updates_total",
        "counter",
        ("worker",),
        "Updates applied, by the worker that pushed.",
        lambda s: _by_worker(s, s.worker_updates),
    ),
)
"""Exported only where they are asked for: as many series as there are workers."""


def table() -> str:
    """All metrics as the table in Markdown that ``docs/metrics.md`` has."""
    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for metric in (*METRICS, *WORKERS):
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.meaning} |")
    bounds = ", ".join(map(str, BUCKETS))
    rows.append("")
    rows.append(f"Buckets of `testbed_update_staleness`: {bounds}, +Inf.")
    return "\n".join(rows)
