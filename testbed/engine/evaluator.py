"""The evaluator: a device that only observes, and measures every version of which it has all parts.

=========  =============================  ==========  ==============================================
state      event                          next        actions
=========  =============================  ==========  ==============================================
WAITING    Received, not yet from all     WAITING     none
WAITING    Received, all of one version   EVALUATING  Compute
WAITING    Received, others are ahead     WAITING     Report to those behind: they send on
WAITING    Received, another has stopped  WAITING     Report to all that sent: it is evaluated by none
WAITING    Stopped, the last one          OVER        Over
EVALUATING Computed                       WAITING     Report to all
=========  =============================  ==========  ==============================================

It asks for nothing, and holds at most one part of each source: a source that is ahead keeps its own
queue. A report says that the source need no longer keep what it sent.
"""

from collections.abc import Iterable, Iterator

from testbed.engine.events import (
    Action,
    Compute,
    Computed,
    Event,
    Job,
    Over,
    Received,
    Report,
    Send,
    Stopped,
)


class Evaluator:
    """The evaluator of one run."""

    def __init__(self, sources: int) -> None:
        """Set up the evaluator, without parameters.

        Args:
            sources: the number of servers, or 1 for the evaluated peer.
        """
        # By conversation: the version that is there.
        self._there: list[int | None] = [None] * sources
        self._stopped = [False] * sources
        self._jobs = 0

    def handle(self, event: Event, now: float = 0.0) -> Iterator[Action]:
        """Yield the actions that follow an event; carry out each before the next is taken."""
        match event:
            case Received(conversation, version):
                self._there[conversation] = version
                yield from self._look()
            case Stopped(conversation):
                self._stopped[conversation] = True
                yield from self._look()
            case Computed():
                yield from self._report(range(len(self._there)))
                yield from self._look()
            case _:
                return  # a source that is back goes on where it was

    def _look(self) -> Iterator[Action]:
        missing = [one for one, version in enumerate(self._there) if version is None]
        if any(not self._stopped[one] for one in missing):
            return
        there = {one: version for one, version in enumerate(self._there) if version is not None}
        if missing:
            yield from self._report(there)
            if all(self._stopped):
                yield Over()
            return
        newest = max(there.values())
        behind = [one for one, version in there.items() if version != newest]
        if behind:
            yield from self._report(behind)
            yield from self._look()
            return
        self._jobs += 1
        yield Compute(Job(self._jobs, tuple(there.values())))

    def _report(self, conversations: Iterable[int]) -> Iterator[Action]:
        """Report that nothing more is to come of what some have sent."""
        for one in conversations:
            version, self._there[one] = self._there[one], None
            assert version is not None
            yield Send(one, Report(version))
