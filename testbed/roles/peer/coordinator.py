"""The coordinator of peers: it starts them, records their steps, and ends the run.

A server knows how far its run is; no peer does. So peers report every step, over the host, to this
process outside the emulated network. Under the wall clock it only receives reports and says when to
evaluate and when to stop; under the virtual clock it runs the clock.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.channel import Channel
from testbed.clock import device_use
from testbed.clock.mesh import MeshClock, mesh_clock
from testbed.clock.peer_faults import strike
from testbed.faults.schedule import Schedule
from testbed.messages.counted import no_reports
from testbed.messages.reports import (
    DevicesConnected,
    FaultReported,
    PeerReturned,
    ServerListening,
    TrainingBegun,
    TrainingEnded,
)
from testbed.roles.orders import OrderChannel, OrderKind
from testbed.roles.pace import Paces
from testbed.roles.peer.channels import REPORT_PERIOD, PeerChannels
from testbed.roles.peer.parting import part
from testbed.roles.recording import Recorder
from testbed.roles.reporting import Report
from testbed.telemetry.board import DeviceLine
from testbed.training.entries import Entry, EvaluationDue
from testbed.training.exchange import ExchangeService, Message, Step
from testbed.training.settings import Settings
from testbed.training.times import Times

RETURN_TIMEOUT = 600.0
"""Seconds that a killed peer has to connect, once it is due back: a busy host must not decide it."""


class Coordinator:
    """The coordinator of one run; a ``testbed.clock.mesh.MeshStage``."""

    def __init__(
        self,
        settings: Settings,
        times: Times,
        leaves: list[OrderChannel],
        channel: Channel,
        *,
        neighbours: Sequence[Sequence[int]],
        computing: int,
        tells: bool,
        line: DeviceLine,
        paces: Paces,
    ) -> None:
        """Make the coordinator of a run.

        Args:
            leaves: the channels to the peers, by their numbers.
            neighbours: the peers that each peer talks to, by the peers' numbers.
            computing: the number of peers that compute; they have the lowest numbers.
            tells: True if peers report the result of an arrival: they may not be ready to compute, or
                they may answer.
            line: where to write its processor time.
            paces: those of the peers, which tell who was killed after training.
        """
        self._settings = settings
        self._report = Report(channel)
        self._neighbours = neighbours
        self._service = ExchangeService(settings, neighbours)
        self._computing = computing
        self._tells = tells
        self._line, self._paces = line, paces
        self._ready = [True] * settings.workers
        self._waits_for: list[Sequence[int]] = [()] * settings.workers
        self._kills = [0] * settings.workers
        """How often each peer was killed; under the wall clock, of those that are back."""
        self._lost = [-1] * settings.workers
        """The last incarnation of each peer that another one has lost."""
        self._busy = times.busy()
        self._clock: MeshClock | None = None
        self._channels = PeerChannels(
            leaves,
            self._report,
            handles=self._handles,
            now=lambda: 0.0 if self._clock is None else self._clock.now,
            look_after=self._look_after,
        )
        self._spared: list[int] = []
        """The peers that the fault of the next record must not stop for real."""
        self._schedule = Schedule(settings.faults.rules, settings.seed, settings.workers)
        at_wall = settings.timing.clock == "wall"
        self._recorder = Recorder(
            self._report, no_reports(1), self._evaluate, self._schedule if at_wall else None
        )
        self._started = 0.0
        self._last_report = 0.0

    def run(self) -> None:
        """Wait until the peers are connected, run, and wait until they have disconnected."""
        self._report.send(ServerListening())
        for met in range(self._settings.workers):
            self._channels.wait_for(met, "met")
            self._report.send(DevicesConnected(met + 1))
        self._started = time.monotonic()
        self._report.send(TrainingBegun(self._started))
        if self._settings.timing.clock == "virtual":
            self._by_virtual_clock()
        else:
            self._by_wall_clock()
        self._end_faults()
        for peer in range(len(self._channels)):
            self._channels.give(peer, OrderKind.STOP)
        self._report.flush()
        ends = part(self._settings, self._channels, self._service, self._report, self._kills)
        self._report.send(ends)
        self._line.done()

    def _end_faults(self) -> None:
        """Have the faults undone, and those peers killed that could not learn of the end.

        The evaluated peer is not killed.
        """
        if not self._schedule.rules:
            return
        self._report.flush()
        self._report.send(TrainingEnded(self._service.updates))
        if self._clock is not None and self._clock.conditions is not None:
            evaluated = self._settings.network.evaluated_peer
            for peer in self._clock.conditions.unreachable():
                if peer != evaluated:
                    self._channels.gone.add(peer)
                    self._service.lose(peer)
        for peer in sorted(self._channels.held):
            if peer not in self._channels.gone:
                self._release(peer)
        self._channels.held.clear()

    # -- reports from peers

    def _handles(self, peer: int, told: dict[str, Any]) -> bool:
        """Take in a report that no wait is for; return False for any other."""
        if "lost" in told:
            # One that is being killed tells this of peers that have forgotten it.
            if peer not in self._channels.gone:
                self._note(peer, told)
                self._lose(told["lost"], told["incarnation"])
        elif "suspected" in told and self._clock is None:
            told_of = told["suspected"], peer, told["silent"], self.host_time()
            self.record(self._service.suspected(*told_of))
        elif "heard" in told:
            self.record(self._service.heard(told["heard"], peer, self.host_time()))
        else:
            return False
        return True

    def _lose(self, peer: int, incarnation: int) -> None:
        """Note that a peer is lost to another one, unless that was an earlier process of it."""
        self._lost[peer] = max(self._lost[peer], incarnation)
        if peer not in self._channels.gone and incarnation >= self._kills[peer]:
            self._channels.gone.add(peer)
            self._service.lose(peer)
            if self._clock is not None:
                self._report.missed(peer)
                self._clock.remove(peer)

    # -- by the wall clock

    def _by_wall_clock(self) -> None:
        self.record(self._service.begin())
        for peer in range(len(self._channels)):
            self._channels.give(peer, OrderKind.BEGIN)
        while not self._service.finished and len(self._channels.gone) < self._settings.workers:
            self._channels.listen(REPORT_PERIOD)
            for peer, told in enumerate(self._channels.told):
                while told:
                    self._count(peer, told.popleft())
            self._look_after()

    def _count(self, peer: int, told: dict[str, Any]) -> None:
        """Count the messages and the step that a peer reports; times of arrival are not known here."""
        if "met" in told:
            if told["incarnation"] <= self._lost[peer]:
                return  # it was killed again
            self._kills[peer] = told["incarnation"]  # processes may have died before they connected
            self._channels.gone.discard(peer)
            self._service.returned(peer, told["others"])
            self._report.send(PeerReturned(peer, told["version"]))
            self._channels.give(peer, OrderKind.BEGIN)
            return
        for message in told.get("answered") or told.get("messages", ()):
            self._service.count(message[0], Message(*message))
        if "base" in told:
            now = self.host_time()
            self.record(self._service.stepped(peer, self._step(peer, told), now, now))

    def _step(self, peer: int, told: dict[str, Any]) -> Step:
        self._note(peer, told)
        messages = [Message(*message) for message in told["messages"]]
        return Step(told["base"], told["staleness"], told["loss"], messages, told["diagnostics"])

    # -- by the virtual clock

    def _by_virtual_clock(self) -> None:
        self._clock = mesh_clock(
            self._settings,
            self._service,
            self,
            neighbours=self._neighbours,
            computing=self._computing,
            busy=self._busy,
        )
        strike(self._clock, self, self._service, self._settings)
        self._clock.run(self._look_after)
        self._report.send(device_use.report(self._clock, self._settings))
        if not self._clock.finished:
            self._report.event("error", self._clock.why_it_ended)

    def begin(self, peer: int) -> None:
        """Tell a peer to compute."""
        self._channels.give(peer, OrderKind.BEGIN)

    def finish(self, peer: int) -> Step | None:
        """Tell a peer that its computation is over; return its step, or None if it is gone."""
        self._channels.give(peer, OrderKind.FINISHED)
        told = self._channels.wait_for(peer, "base")
        return None if told is None else self._step(peer, told)

    def arrive(self, receiver: int, sender: int) -> Sequence[Message]:
        """Tell a peer that another peer's message has arrived; return the messages sent in answer."""
        self._channels.give(receiver, OrderKind.ARRIVED, sender)
        if not self._tells:
            return ()
        told = self._channels.wait_for(receiver, "ready")
        self._note(receiver, told)
        return [] if told is None else [Message(*message) for message in told["messages"]]

    def _note(self, peer: int, told: Mapping[str, Any] | None) -> None:
        """Note whether a peer is ready, and which others it waits for; None: it is gone."""
        self._ready[peer] = told is not None and told["ready"]
        self._waits_for[peer] = () if told is None else told["awaits"]

    def waits_for(self, peer: int) -> Sequence[int]:
        """Return the peers that a peer waits for, by its last report."""
        return self._waits_for[peer]

    def suspect(self, peer: int, other: int) -> None:
        """Tell a peer to wait for another one no longer."""
        self._channels.give(peer, OrderKind.SUSPECT, other)
        self._note(peer, self._channels.wait_for(peer, "suspected"))

    def ready(self, peer: int) -> bool:
        """Return True if a peer may compute its next gradient, by its last report."""
        return self._ready[peer]

    def kill(self, peer: int) -> None:
        """Let a peer die: once the others have read what has arrived from it, they forget it."""
        self._channels.gone.add(peer)
        self._kills[peer] += 1
        self._channels.held.pop(peer, None)
        others = [one for one in range(self._settings.workers) if one not in self._channels.gone]
        for other in others:
            self._channels.give(other, OrderKind.FORGET, peer)
        for other in others:
            if other not in self._channels.held:
                self._await_forgetting(other)

    def _await_forgetting(self, peer: int) -> None:
        self._note(peer, self._channels.wait_for(peer, "forgot"))

    def come_back(self, peer: int, others: Sequence[int], record: dict[str, Any]) -> bool:
        """Have a peer's new process started; once it is connected, others take it in."""
        self._report.flush()
        pairs = [(other, self._kills[other]) for other in others]
        self._report.send(FaultReported(record | {"others": pairs}))
        self._channels.gone.discard(peer)
        told = self._channels.wait_for(peer, "met", time.monotonic() + RETURN_TIMEOUT)
        if told is None:
            text = f"it did not come back within {RETURN_TIMEOUT:g} s"
            self._report.event("warning", text, peer)
            self._report.missed(peer)
            self._channels.gone.add(peer)
            return False
        self._note(peer, told)
        self._report.send(PeerReturned(peer, told["version"]))
        for other in others:
            self._channels.give(other, OrderKind.ADMIT, peer)
        for other in others:
            self._note(other, self._channels.wait_for(other, "admitted"))
        return True

    def stop(self, peers: Sequence[int]) -> None:
        """Have all that peers sent reach the others, before they are frozen or cut off.

        A peer that cannot send all of it, as others are stopped already, is not stopped for real: the
        others may have to read it before the peer would go on.
        """
        asked = [
            one
            for one in range(self._settings.workers)
            if one not in self._channels.gone and one not in self._channels.held
        ]
        for peer in asked:
            self._channels.give(peer, OrderKind.SETTLE)
        spared = set()
        for peer in asked:
            told = self._channels.wait_for(peer, "settled")
            if told is not None and told["settled"]:
                spared |= {peer, *told["settled"]}
        self._spared = [peer for peer in peers if peer in spared]

    def freeze(self, peer: int) -> None:
        """Keep the peer's orders until its thaw."""
        self._channels.held[peer] = []

    def thaw(self, peer: int) -> None:
        """Give the peer the orders that it was not given while it was frozen."""
        self._release(peer)

    def _release(self, peer: int) -> None:
        for what, number in self._channels.held.pop(peer, ()):
            self._channels.give(peer, what, number)
            if what is OrderKind.FORGET:
                self._await_forgetting(peer)

    def fault(self, record: dict[str, Any]) -> None:
        """Report the beginning or the end of a fault to the orchestrator, which carries it out."""
        self._report.flush()
        self._report.send(FaultReported(record, self._spared))
        self._spared = []

    def host_time(self) -> float:
        """Return the seconds of the host's clock since training began."""
        return time.monotonic() - self._started

    def record(self, entries: Sequence[Entry]) -> None:
        """Report what the service has returned."""
        self._recorder.record(entries)

    def _evaluate(self, due: EvaluationDue) -> None:
        """Report an evaluation point, and have the evaluated peer send its model to the evaluator."""
        now = self.host_time() if self._clock is None else self._clock.now
        payload, message, *_ = due.ledger
        self._report.evaluation_due(due.version, now, payload, message)
        self._channels.give(self._settings.network.evaluated_peer, OrderKind.EVALUATE, due.version)

    def _look_after(self) -> None:
        now = time.monotonic()
        if now - self._last_report >= REPORT_PERIOD:
            self._last_report = now
            self._report.flush()
            if self._clock is not None:
                self._report.send(device_use.report(self._clock, self._settings))
            self._line.look()
            for peer in range(self._settings.workers):
                if self._paces.has_ended(peer):
                    self._lose(peer, self._kills[peer])
