"""The turns of a run's loop: one thread and one selector serve agent, devices and signals.

Whatever ends the loop, the agent removes what it has made.
"""

import contextlib
import selectors
import time
from collections.abc import Callable, Iterator

from testbed.channel import Channel
from testbed.messages.agent_reports import Event
from testbed.orchestrator.agent.process import R
from testbed.orchestrator.hosts.agents_of_hosts import AgentsOfHosts
from testbed.orchestrator.run_notes import P, RunNotes
from testbed.runs.ending import EndError, signal_in, stopped_by
from testbed.telemetry.event_kinds import EventKind

TAKE_DOWN_TIMEOUT = {"namespaces": 30.0, "docker": 120.0}
"""Seconds that the agent has to remove everything, by runtime."""
TURN = 0.25
"""The longest time in seconds between two turns of the loop."""


def turns(
    agents: AgentsOfHosts[R],
    wake_up: int,
    *,
    patience: Callable[[], float],
    signalled: Callable[[EndError], None],
    handle: Callable[[Event | None, str], None],
) -> Iterator[None]:
    """Yield, without end, each time that something has arrived or its patience is over.

    Args:
        wake_up: descriptor from which the numbers of signals are read.
        patience: returns the seconds that the next turn may take; at most ``TURN`` are taken.
        signalled: takes in the end for which a signal asks.
        handle: takes in an event of an agent, and the name of its host; None if the agent has ended.
    """
    with selectors.DefaultSelector() as selector:
        for control in agents.controls:
            selector.register(control, selectors.EVENT_READ)
        for source in (agents.reports, wake_up):
            selector.register(source, selectors.EVENT_READ)
        while True:
            for key, events in selector.select(max(0.0, min(TURN, patience()))):
                if not events & selectors.EVENT_READ:
                    continue  # there is room for requests to the agent again
                if key.fileobj == wake_up and (number := signal_in(wake_up)) is not None:
                    signalled(stopped_by(number))
                if isinstance(key.fileobj, Channel):
                    for host, event in agents.events(key.fileobj):
                        handle(event, host)
                    if key.fileobj not in agents.controls:
                        selector.unregister(key.fileobj)
            yield
            full = agents.send_waiting()
            for control in agents.controls:
                wanted = selectors.EVENT_READ | (control in full) * selectors.EVENT_WRITE
                selector.modify(control, wanted)


@contextlib.contextmanager
def removed_at_end(agent: AgentsOfHosts[R], runtime: str, notes: RunNotes[P]) -> Iterator[None]:
    """At the end wait until the agent has removed everything, and note what it has not."""
    try:
        yield
    finally:
        notes.progress.phase = "finishing"
        try:
            notes.show_progress()
        finally:
            _end(agent, runtime, notes)


def _end(agent: AgentsOfHosts[R], runtime: str, notes: RunNotes[P]) -> None:
    began = time.monotonic()
    left = list(agent.end(began + TAKE_DOWN_TIMEOUT[runtime]))
    for what in left:
        notes.event("error", f"not all was removed: {what}", None)
    if not left:
        took = f"{time.monotonic() - began:.2f} s"
        notes.event("info", f"nodes and links are removed, after {took}", None, EventKind.REMOVED)
