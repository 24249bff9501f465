"""Ingress over time and by worker: from the packet capture's accounting, or from the updates.

The capture counts wire bytes by kind. A run without one (capture off, an older run, one that was
killed) still has its updates: its ingress is then in message bytes, at the moments of its pushes, and
``remarks`` says so. ``remarks`` also says where a capture lost packets or ended early. The
evaluator's traffic is left out, as from every count.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed import number_text as q
from testbed.device_names import (
    BACKGROUND_NAME,
    EVALUATOR_NAME,
    aggregator_name,
    is_aggregator,
    peer_name,
    worker_name,
)
from testbed.results.reading.curves import Curve, Floats
from testbed.results.reading.journals import NoRunError, read_accounting
from testbed.results.reading.recorded_run import RecordedRun

KINDS = {
    "stream_bytes": "messages (TCP streams)",
    "header_bytes": "headers",
    "ack_bytes": "pure ACKs",
    "retransmitted_bytes": "retransmissions",
    "connection_bytes": "SYN, FIN, RST",
    "arp_bytes": "ARP, ND",
    "other_bytes": "other",
    "message_bytes": "messages, without headers",
}
"""The names of the kinds of ingress by column; the last is that of runs of which no capture is used."""
_BINS = 600
"""Maximum number of bins, so that the report of a long run stays small and its chart legible."""


@dataclass(frozen=True, slots=True)
class IngressOverTime:
    """The bytes that entered the parameter server from the workers of a curve's runs.

    Attributes:
        start: second since training began at which the first bin begins; may be negative.
        width: seconds in a bin (the last may be shorter).
        rates: for each kind of bytes (``KINDS``) that occurred, bytes per second in each bin,
            mean over the runs; float64, shape (bins,).
        workers: names of the workers of all runs, or of the aggregators that push for them, in the
            order of their shares, the least first.
        worker_bytes: float64, shape (workers,): bytes that each sent in the whole run.
        worker_shares: float64, shape (workers,): those bytes ÷ the mean over the workers of its run.
        remarks: caveats on these numbers, a sentence each.
    """

    start: int
    width: int
    rates: Mapping[str, Floats]
    workers: tuple[str, ...]
    worker_bytes: Floats
    worker_shares: Floats
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Counted:
    """One run's bytes: by kind for each second that has any, and by worker.

    Attributes:
        second: int64, shape (seconds,): those seconds since training began, ascending.
        sums: for each kind, its bytes in each second, float64, shape (seconds,).
        workers: bytes by the workers' names.
        captured: True if a capture counted them.
    """

    second: npt.NDArray[np.int64]
    sums: Mapping[str, Floats]
    workers: Mapping[str, int]
    captured: bool


def ingress_of(curve: Curve) -> IngressOverTime:
    """Return the ingress of a curve over time and by worker.

    With several runs, the rates are the mean over the runs of the same second since training began,
    from the second in which the last of them starts to the one in which the first ends; the workers
    are those of all the runs. If one run has no capture, none is used, so that like is averaged with
    like.

    Raises:
        NoRunError: the updates' journal has another format.
    """
    remarks: list[str] = []
    try:
        if any(run.manifest.clock == "virtual" for run in curve.runs):
            # The time at which bytes passed the link means nothing by the virtual clock.
            raise FileNotFoundError
        counted = [_captured(run) for run in curve.runs]
        remarks += [remark for run in curve.runs for remark in capture_remarks(run)]
    except (FileNotFoundError, NoRunError) as error:
        counted = [_applied(run) for run in curve.runs]
        virtual = any(run.manifest.clock == "virtual" for run in curve.runs)
        without = "by the virtual clock: " if virtual else "not captured: "
        damaged = "its traffic/accounting.parquet cannot be read, therefore "
        remarks.append(
            (damaged if isinstance(error, NoRunError) else without)
            + f"the bytes of the messages with which updates came, without headers{_others(curve)}"
        )
    if any(map(_from_aggregators, counted)):
        remarks.append(
            "its workers push to aggregators: the bytes are those that aggregators push to the server"
        )
    start, width, rates = _mean_rates(counted)
    names, sent, shares = _by_worker(curve.runs, counted)
    return IngressOverTime(
        start=start,
        width=width,
        rates={kind: rate for kind, rate in rates.items() if rate.any()},
        workers=names,
        worker_bytes=sent,
        worker_shares=shares,
        remarks=tuple(dict.fromkeys(remarks)),
    )


def capture_remarks(run: RecordedRun) -> tuple[str, ...]:
    """Return the caveats to show with numbers from this run's capture; none if all is well."""
    if run.summary.traffic is None:
        return ("whether its capture lost packets is not known: the run left no account of it",)
    capture = run.summary.traffic.capture
    if capture is None:
        return ()
    remarks = []
    if capture.dropped:
        lost, total = f"{capture.dropped:,}", f"{capture.records + capture.dropped:,}"
        remarks.append(
            f"its capture lost {lost} of {total} packets: theirs are missing from the bytes"
        )
    if not capture.complete:
        remarks.append("its capture does not hold the whole run: the bytes are a lower bound")
    return tuple(remarks)


def _others(curve: Curve) -> str:
    """Return the share of other messages in words, such as those that peers of a ring pass on."""
    came = sum(int(run.pushes.column("message_bytes").to_numpy().sum()) for run in curve.runs)
    together = sum(run.summary.ingress.message_bytes or 0 for run in curve.runs)
    share = 1 - came / together if together else 0.0
    return f"; {q.as_share(share)} of all bytes came in other messages" if share >= 0.01 else ""


def merged_remarks(titles: Sequence[str], ingress: Sequence[IngressOverTime]) -> tuple[str, ...]:
    """Return the curves' remarks, each once, with the curves that it is about."""
    about: dict[str, list[str]] = {}
    for title, own in zip(titles, ingress, strict=True):
        for remark in own.remarks:
            about.setdefault(remark, []).append(title)
    return tuple(f"{', '.join(names)}: {remark}." for remark, names in about.items())


def _from_aggregators(counts: _Counted) -> bool:
    return any(map(is_aggregator, counts.workers))


def _captured(run: RecordedRun) -> _Counted:
    table = read_accounting(run.directory)
    devices = table.column("device").combine_chunks().dictionary_encode()
    known = np.asarray(devices.dictionary.to_pylist(), dtype=object)
    who = devices.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    towards_server = np.asarray(table.column("direction").to_pylist(), dtype=object) == "ingress"
    beside = np.flatnonzero(np.isin(known, (EVALUATOR_NAME, BACKGROUND_NAME)))
    kept = towards_server & ~np.isin(who, beside)
    second = table.column("second").to_numpy()[kept]
    kinds = [kind for kind in KINDS if kind in table.column_names]
    wire = np.bincount(
        who[kept] + 1, table.column("wire_bytes").to_numpy()[kept], minlength=len(known) + 1
    )
    sums = _by_second(second, {kind: table.column(kind).to_numpy()[kept] for kind in kinds})
    workers = {
        name: int(wire[i + 1])
        for i, name in enumerate(known)
        if name.startswith(("worker", "peer", "aggregator"))
    }
    return _Counted(*sums, workers, captured=True)


def _applied(run: RecordedRun) -> _Counted:
    updates = run.pushes
    worker = updates.column("worker").to_numpy()
    size = updates.column("message_bytes").to_numpy()
    second = np.floor(updates.column("time").to_numpy()).astype(np.int64)
    sums = _by_second(second, {"message_bytes": size})
    who, place = np.unique(worker, return_inverse=True)
    sent = np.bincount(place, size, minlength=len(who))
    name_of, workers_of = peer_name if run.summary.peers else worker_name, run.manifest.workers
    workers = {
        name_of(i) if i < workers_of else aggregator_name(i - workers_of): int(total)
        for i, total in zip(who.tolist(), sent, strict=True)
    }
    return _Counted(*sums, workers, captured=False)


def _by_second(
    second: npt.NDArray[np.integer], sizes: Mapping[str, npt.NDArray[np.int64]]
) -> tuple[npt.NDArray[np.int64], dict[str, Floats]]:
    """Return the seconds that occur, and the sums of ``sizes`` (each of ``second``'s shape) in each.

    Other seconds are not stored: a run may last for more seconds than memory has bytes.
    """
    known, place = np.unique(second.astype(np.int64), return_inverse=True)
    return known, {
        kind: np.bincount(place, size.astype(np.float64), minlength=len(known)).astype(np.float64)
        for kind, size in sizes.items()
    }


def _mean_rates(counted: Sequence[_Counted]) -> tuple[int, int, dict[str, Floats]]:
    """Return the first second that all runs have, the bins' width, and each kind's mean rates."""
    if not all(len(counts.second) for counts in counted):
        return 0, 1, {kind: np.zeros(0) for kind in counted[0].sums}
    start = max(int(counts.second[0]) for counts in counted)
    length = max(0, min(int(counts.second[-1]) for counts in counted) + 1 - start)
    width = max(1, -(-length // _BINS))
    edges = np.append(np.arange(0, length, width), length)

    def mean(kind: str) -> Floats:
        sums = np.zeros(len(edges) - 1)
        for counts in counted:
            shared = (counts.second >= start) & (counts.second < start + length)
            np.add.at(sums, (counts.second[shared] - start) // width, counts.sums[kind][shared])
        averaged: Floats = sums / len(counted) / np.diff(edges)
        return averaged

    return start, width, {kind: mean(kind) for kind in counted[0].sums}


def _by_worker(
    runs: Sequence[RecordedRun], counted: Sequence[_Counted]
) -> tuple[tuple[str, ...], Floats, Floats]:
    names: list[str] = []
    sent: list[float] = []
    shares: list[float] = []
    for run, counts in zip(runs, counted, strict=True):
        # A worker that crashed before it sent anything counts as well.
        # Among peers, the one whose link was captured sends nothing to itself.
        expected = run.manifest.workers - bool(run.summary.peers and counts.captured)
        silent = 0 if _from_aggregators(counts) else max(0, expected - len(counts.workers))
        totals = [*counts.workers.values(), *[0] * silent]
        seed = f" (seed {run.manifest.seed})" if len(runs) > 1 else ""
        names += [
            f"{name}{seed}" for name in (*counts.workers, *["a worker that sent nothing"] * silent)
        ]
        sent += totals
        shares += [total * len(totals) / max(1, sum(totals)) for total in totals]
    order = np.argsort(shares, kind="stable")
    return tuple(names[i] for i in order), np.asarray(sent)[order], np.asarray(shares)[order]
