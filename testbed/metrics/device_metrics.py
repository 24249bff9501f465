"""Metrics of the devices: their states, faults, uplinks, and their cost to the host."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from testbed.messages.fault_changes import KINDS
from testbed.metrics.metric import Metric, Sample, by_class, by_key
from testbed.metrics.state import RunState


def _by_worker(state: RunState, values: Any, *more: str) -> Iterable[Sample]:
    return (((name, *more), n) for name, n in zip(state.worker_names, values, strict=True))


def _devices(state: RunState) -> Iterator[Sample]:
    for status, counts in state.devices.items():
        for name, count in zip(state.classes.names, counts, strict=True):
            yield (name, status), count


def _uplinks(name: str) -> Callable[[RunState], Iterable[Sample]]:
    return lambda s: by_class(s, None if s.uplinks is None else getattr(s.uplinks, name))


DEVICES: tuple[Metric, ...] = (
    Metric(
        "testbed_class_devices",
        "Workers or peers of each device class.",
        lambda s: by_class(s, s.classes.sizes),
        labels=("device_class",),
    ),
    Metric(
        "testbed_devices",
        "Workers or peers by state: starting, training (computing), waiting (for time, "
        "parameters or the network), frozen, dead (crashed), done.",
        _devices,
        labels=("device_class", "state"),
    ),
    Metric(
        "testbed_devices_lost_total",
        "Deaths of workers or peers, by a fault or by themselves.",
        lambda s: by_class(s, s.workers.lost),
        labels=("device_class",),
    ),
    Metric(
        "testbed_devices_cut",
        "Workers whose link is down or that are cut off from the server, by a fault.",
        lambda s: by_class(s, s.workers.cut),
        labels=("device_class",),
    ),
    Metric(
        "testbed_workers_suspected",
        "Workers from which the server has received nothing for too long; it does not wait for them.",
        lambda s: by_class(s, s.workers.suspected),
        labels=("device_class",),
    ),
    Metric(
        "testbed_faults_total",
        f"Devices struck by the experiment's faults: {', '.join(KINDS)}; the server included.",
        lambda s: by_key(s.workers.struck),
        labels=("kind",),
    ),
    Metric(
        "testbed_uplink_transmitted_bytes_total",
        "Bytes sent over uplinks: frames at MTU 1,500 where they are shaped, else as the interface "
        "counts, which segmentation offload makes a little less.",
        _uplinks("transmitted"),
        labels=("device_class",),
    ),
    Metric(
        "testbed_uplink_capacity_bytes_per_second",
        "Sum of the uplinks' rates.",
        _uplinks("capacity"),
        labels=("device_class",),
    ),
    Metric(
        "testbed_uplink_utilisation_ratio",
        "Share of the uplinks' capacity that was used over the last sample period, 0 to 1.",
        _uplinks("utilisation"),
        labels=("device_class",),
    ),
    Metric(
        "testbed_uplink_dropped_packets_total",
        "Packets that uplinks dropped because their queues were full.",
        _uplinks("dropped"),
        labels=("device_class",),
    ),
    Metric(
        "testbed_uplink_backlog_bytes",
        "Bytes in the queues of uplinks.",
        _uplinks("backlog"),
        labels=("device_class",),
    ),
    Metric(
        "testbed_memory_bytes",
        "Memory of a role's processes, without pages that they share with others.",
        lambda s: by_key(s.memory),
        labels=("role",),
    ),
    Metric(
        "testbed_cpu_seconds_total",
        "Processor time of a role.",
        lambda s: by_key(s.processor),
        labels=("role",),
    ),
)
WORKERS: tuple[Metric, ...] = (
    Metric(
        "testbed_worker_ingress_bytes_total",
        "Message bytes of each worker's pushes (of what each peer sent).",
        lambda s: _by_worker(s, s.worker_message_bytes, "message") if s.by_worker else (),
        labels=("worker", "layer"),
    ),
    Metric(
        "testbed_worker_updates_total",
        "Pushes applied, by the worker.",
        lambda s: _by_worker(s, s.worker_updates) if s.by_worker else (),
        labels=("worker",),
    ),
    Metric(
        "testbed_device_cpu_seconds_total",
        "Processor time of each server, worker, peer and aggregator of an emulation.",
        lambda s: by_key(s.device_processor),
        labels=("device",),
    ),
    Metric(
        "testbed_worker_info",
        "A worker and its class; always 1.",
        lambda s: (
            ((name, s.classes.names[place]), 1)
            for name, place in zip(s.worker_names, s.classes.of_device, strict=True)
        ),
        labels=("worker", "device_class"),
    ),
)
"""Exported only on request, because each has a series for every worker."""
