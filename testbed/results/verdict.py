"""Whether a run's three ledgers of bytes agreed, in a sentence."""

from typing import NamedTuple

from testbed.results.reading import Run


class Verdict(NamedTuple):
    """What is to be said, and how: ``good``, ``bad`` or ``unknown``."""

    state: str
    text: str

    @property
    def doubtful(self) -> bool:
        """Whether whoever sees the run's byte counts has to know."""
        return self.state == "bad" or "dropped" in self.text


def verdict(run: Run) -> Verdict:
    """Return it, with what a capture that is not whole means for its numbers."""
    traffic = run.summary.traffic
    if traffic is None:
        return Verdict("unknown", "not checked: the run left no account of its traffic")
    if traffic.modelled:
        return Verdict("unknown", "wire bytes modelled: a simulation has no wire")
    if traffic.capture is None:
        return Verdict("unknown", "not checked: capture was off")
    lost = f"; the capture dropped {traffic.capture.dropped:,} packets" * bool(
        traffic.capture.dropped
    )
    if traffic.reconciled is None:
        return Verdict("unknown", f"not checked: the run did not come to its end{lost}")
    if traffic.reconciled:
        return Verdict(
            "good",
            f"reconciled: messages, captured streams and the kernel's counter agree to the byte{lost}",
        )
    return Verdict("bad", f"NOT reconciled: {len(traffic.differences)} difference(s){lost}")
