"""Metrics of a run as a whole: properties, updates, bytes, accuracy, the server's work, time."""

import math
from collections.abc import Callable, Iterable

from testbed.metrics.metric import Metric, Sample, by_class, by_key, known
from testbed.metrics.state import ACCURACIES, PHASES, RunState

INFO = ("dataset", "model", "engine", "clock", "runtime", "seed", "workers")


def _evaluation(name: str) -> Callable[[RunState], Iterable[Sample]]:
    return lambda s: known(None if s.evaluation is None else getattr(s.evaluation, name))


def _measured(s: RunState) -> Iterable[Sample]:
    if s.measure is None or s.measured is None:
        return ()
    return [((s.measure.name, s.measure.unit, s.measure.better), s.measured)]


TRAINING: tuple[Metric, ...] = (
    Metric(
        "testbed_run_info",
        "The properties of a run; always 1.",
        lambda s: [([s.info[name] for name in INFO], 1)],
        labels=INFO,
    ),
    Metric(
        "testbed_run_phase",
        f"1 for the phase that the run is in, 0 for the others: {', '.join(PHASES)}.",
        lambda s: [((phase,), int(phase == s.phase)) for phase in PHASES],
        labels=("phase",),
    ),
    Metric(
        "testbed_programs_running",
        "Instances of a program of a user's that run, in runs of programs.",
        lambda s: by_key(s.programs),
        labels=("program",),
    ),
    Metric("testbed_updates_total", "Updates applied.", lambda s: known(s.updates)),
    Metric(
        "testbed_updates_dropped_total",
        "Pushes that were not applied: late ones of synchronous SGD.",
        lambda s: known(s.dropped),
    ),
    Metric(
        "testbed_updates_target", "Updates after which the run ends.", lambda s: known(s.target)
    ),
    Metric(
        "testbed_updates_per_second",
        "Updates per second of the host's clock, over the last few seconds; 0 when training is over.",
        lambda s: known(s.rate),
    ),
    Metric(
        "testbed_class_updates_total",
        "Pushes applied, by the class of the device.",
        lambda s: by_class(s, s.class_updates if s.by_worker else None),
        labels=("device_class",),
    ),
    Metric(
        "testbed_update_staleness",
        "Updates that others had applied between the pull and the push of an applied update.",
        lambda s: known(s.staleness),
        uncounted="histogram",
    ),
    Metric(
        "testbed_ingress_bytes_total",
        "Bytes from workers into the parameter server (into all peers, where there is none): "
        "encoded updates, messages, or frames at MTU 1,500.",
        lambda s: by_key(s.ingress),
        labels=("layer",),
    ),
    Metric(
        "testbed_egress_bytes_total",
        "Bytes from the parameter server to workers (from all peers to peers), counted as ingress is.",
        lambda s: by_key(s.egress),
        labels=("layer",),
    ),
    Metric(
        "testbed_ingress_packets_total",
        "Frames at MTU 1,500 from workers into the parameter server (into all peers).",
        lambda s: known(s.packets),
    ),
    Metric(
        "testbed_ingress_acknowledgements_total",
        "Pure ACKs from workers into the parameter server (into the observed peer), as captured.",
        lambda s: known(s.acknowledgements),
    ),
    Metric(
        "testbed_capture_packets_total",
        "Packets that the capture kept, both directions.",
        lambda s: known(None if s.capture is None else s.capture[0]),
    ),
    Metric(
        "testbed_capture_dropped_packets_total",
        "Packets that the capture lost because its buffer was full.",
        lambda s: known(None if s.capture is None else s.capture[1]),
    ),
    Metric(
        "testbed_accuracy_ratio",
        "Share of the test set classified correctly, 0 to 1, at the last evaluation; none of runs with "
        "a measure of their own.",
        _evaluation("accuracy"),
    ),
    Metric("testbed_loss", "Test loss at the last evaluation.", _evaluation("loss")),
    Metric(
        "testbed_measured",
        "The run's own measure, such as perplexity, at the last evaluation; whether higher or lower "
        "values are better.",
        _measured,
        labels=("measure", "unit", "better"),
    ),
    Metric(
        "testbed_evaluated_updates",
        "Updates that had been applied to the parameters evaluated last.",
        _evaluation("updates"),
    ),
    Metric(
        "testbed_evaluated_ingress_bytes",
        "Ingress at the version that was evaluated last: pairs with testbed_accuracy_ratio.",
        lambda s: by_key({} if s.evaluation is None else s.evaluation.ingress),
        labels=("layer",),
    ),
    Metric(
        "testbed_evaluations_due",
        "Evaluations that are due and have no result yet.",
        lambda s: known(s.due),
    ),
    Metric(
        "testbed_diagnostic",
        "A number that the algorithm itself reports with each update, at the last update; by its name.",
        lambda s: by_key({name: one for name, one in s.diagnostics.items() if not math.isnan(one)}),
        labels=("diagnostic",),
    ),
    Metric(
        "testbed_server_queue_seconds",
        "How long pushes waited for the server's process after the kernel had received them.",
        lambda s: known(s.queue),
        uncounted="summary",
    ),
    Metric(
        "testbed_server_apply_seconds",
        "How long the algorithm took to apply an update.",
        lambda s: known(s.apply),
        uncounted="summary",
    ),
    Metric(
        "testbed_training_seconds",
        "Seconds of the host's clock since training began, until the last update.",
        lambda s: known(s.training_seconds),
    ),
    Metric(
        "testbed_virtual_time_seconds",
        "Seconds of the virtual clock since training began.",
        lambda s: known(s.virtual_seconds),
    ),
    Metric(
        "testbed_target_accuracy_ingress_bytes",
        f"Ingress when an accuracy was first reached: {', '.join(map(str, ACCURACIES))}.",
        lambda s: [
            ((layer, str(accuracy)), size)
            for accuracy, ingress in s.reached.items()
            for layer, size in ingress.items()
        ],
        labels=("layer", "accuracy"),
    ),
)
