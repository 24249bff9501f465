"""Sentences on a run's byte counts and gaps: if its three ledgers agreed, and what was left out."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from testbed import number_text as q
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.reading.run_files import SERVER_KILLED, Difference, Traffic


class Verdict(NamedTuple):
    """A state (``good``, ``bad`` or ``unknown``) and the sentence on it."""

    state: str
    text: str

    @property
    def doubtful(self) -> bool:
        """True if it must be shown with the run's byte counts."""
        return self.state == "bad" or "dropped" in self.text


def verdict(run: RecordedRun) -> Verdict:
    """Return the verdict on a run's ledgers, with the number of packets that the capture dropped."""
    traffic = run.summary.traffic
    if traffic is None:
        return Verdict("unknown", "not checked: the run left no account of its traffic")
    if traffic.modelled:
        return Verdict("unknown", "wire bytes modelled: a simulation has no wire")
    dropped = traffic.capture.dropped if traffic.capture else 0
    lost = f"; the capture dropped {dropped:,} packets" * bool(dropped)
    if why := _why_unchecked(run, traffic):
        return Verdict("unknown", f"not checked: {why}{lost}")
    if traffic.reconciled:
        first = "the kernel's sockets" if run.manifest.programs else "messages"
        return Verdict(
            "good",
            f"reconciled: {first}, captured streams and the kernel's counter agree to the byte{lost}",
        )
    return _of_differences(traffic.differences, lost)


def _why_unchecked(run: RecordedRun, traffic: Traffic) -> str:
    if traffic.capture is None:
        return "capture was off"
    if traffic.reconciled is None:
        return "the run did not come to its end"
    received = run.summary.ingress
    nothing = traffic.reconciled and not (received.message_bytes or received.wire_bytes)
    what = "nothing" if run.manifest.programs else "no message"
    return f"{what} came in" if nothing else ""


def no_update(run: RecordedRun) -> dict[str, str]:
    """Return the payload of pushes that are no update of the run, under its heading; empty if none."""
    count = run.payload_of_no_update
    why = "of devices that a fault ended meanwhile, or repeated after a checkpoint"
    return {"no update": f"{q.as_bytes(count)} of the payload, {why}"} if count else {}


def left_out(run: RecordedRun) -> dict[str, str]:
    """Return the evaluations that were left out, under their heading; empty if none was."""
    found = run.summary.evaluations_left_out
    if found is None:
        return {}
    why = f" ({found.reason})" if found.reason else ""
    return {"evaluations left out": f"{found.count:,}, of updates {found.updates}{why}"}


def only_untold(reasons: Iterable[str]) -> bool:
    """Return True if ledgers differ, and only by reports of a role that was killed."""
    return set(reasons) == {SERVER_KILLED}


def _of_differences(differences: Sequence[Difference], lost: str) -> Verdict:
    if only_untold(difference.reason for difference in differences):
        # All else agrees: the streams that it did report, frames, bytes, packets.
        unreported = sum(difference.found for difference in differences)
        return Verdict(
            "unknown",
            f"reconciled but for {len(differences)} streams ({q.as_bytes(unreported)}) of a server "
            "or an aggregator that was killed and could not report what it had received; the rest "
            f"agrees to the byte{lost}",
        )
    return Verdict("bad", f"NOT reconciled: {len(differences)} difference(s){lost}")
