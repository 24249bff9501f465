"""The coordinator of peers: it starts them, records their steps, and ends the run.

A server knows how far its run is; no peer does. So peers report every step, over the host, to this
process outside the emulated network. Under the wall clock it only receives reports and says when to
evaluate and when to stop; under the virtual clock it runs the clock.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from testbed.channel import Channel
from testbed.clock import device_use
from testbed.clock.mesh import MeshClock
from testbed.clock.peer_faults import mesh_clock
from testbed.device_names import peer_name
from testbed.messages.fault_changes import FaultChange
from testbed.messages.reports import (
    DevicesConnected,
    FaultReported,
    PeerReturned,
    PeersReceived,
    ServerFinished,
    ServerListening,
    TrainingBegun,
    TrainingEnded,
)
from testbed.roles.orders import OrderChannel, OrderKind
from testbed.roles.pace import Paces
from testbed.roles.peer.channels import REPORT_PERIOD, PeerChannels
from testbed.roles.peer.driven_peer import DrivenPeer
from testbed.roles.peer.peer_reports import ConnectionLost, FromPeer, Met, Parted, ReceivedSoFar
from testbed.roles.recorder import Recorder
from testbed.roles.reporting import RoleReporter
from testbed.telemetry.state_board import DeviceLine
from testbed.training.exchange import ExchangeService, Told
from testbed.training.peer_bytes import ArrivedBytes, ReceivedBytes
from testbed.training.service_entries import Entry, EvaluationPoint
from testbed.training.settings import Settings
from testbed.training.times import Times

RETURN_TIMEOUT = 600.0
"""Seconds that a killed peer has to connect, once it is due back: a busy host must not decide it."""
PARTING_TIMEOUT = 60.0
"""Seconds that peers have to disconnect when training is over, including waits for each other."""


class Coordinator(PeerChannels):
    """The coordinator of one run; a ``testbed.clock.mesh.MeshStage``."""

    def __init__(
        self,
        settings: Settings,
        times: Times,
        leaves: list[OrderChannel],
        channel: Channel,
        *,
        neighbours: Sequence[Sequence[int]],
        tells: bool,
        line: DeviceLine,
        paces: Paces,
    ) -> None:
        """Make the coordinator of a run.

        Args:
            tells: True if peers report the result of an arrival: they may not be ready to compute, or
                they may answer.
            paces: those of the peers, which tell who was killed after training.
        """
        self._settings = settings
        at_wall = settings.timing.clock == "wall"
        super().__init__(leaves, RoleReporter(channel))
        self._times = times
        counted = (ReceivedBytes if at_wall else ArrivedBytes)(settings.workers)
        self._service = ExchangeService(settings, neighbours, counted)
        self._line, self._paces = line, paces
        self._tells = tells
        self._killed: set[int] = set()
        """The peers that the virtual clock has killed, and that are not back."""
        self._kills = [0] * settings.workers
        """How often each peer was killed; under the wall clock, of those that are back."""
        self._lost = [-1] * settings.workers
        """The last incarnation of each peer that another one has lost."""
        self._clock: MeshClock | None = None
        self._hands = [self._made(peer) for peer in range(settings.workers)]
        """The present processes, as the clock drives them, by the peers' numbers."""
        self._spared: list[int] = []
        """The peers that the fault of the next record must not stop for real."""
        self._schedule = settings.schedule()
        self._recorder = Recorder(self.report, self._evaluate, self._schedule if at_wall else None)
        self._started = 0.0
        self._last_report = 0.0

    def _made(self, peer: int) -> DrivenPeer:
        return DrivenPeer(peer, self, self._killed, tells=self._tells)

    def run(self) -> None:
        """Wait until the peers are connected, run, and wait until they have disconnected."""
        self.report.send(ServerListening())
        for met in range(self._settings.workers):
            self.wait_for(met, Met)
            self.report.send(DevicesConnected(met + 1))
        self._started = time.monotonic()
        self.report.send(TrainingBegun(self._started))
        if self._settings.timing.clock == "virtual":
            self._by_virtual_clock()
        else:
            self._by_wall_clock()
        self._end_faults()
        for peer in range(self._settings.workers):
            self.give(peer, OrderKind.STOP)
        self.report.flush()
        self.report.send(self._part())
        self._line.done()

    def _end_faults(self) -> None:
        """Have the faults undone, and those peers killed that could not learn of the end.

        The evaluated peer is not killed.
        """
        if not self._schedule.rules:
            return
        self.report.flush()
        self.report.send(TrainingEnded(self._service.updates))
        if self._clock is not None:
            evaluated = self._settings.network.evaluated_peer
            for peer in self._clock.unreachable():
                if peer != evaluated:
                    self.gone.add(peer)
                    self._service.lose(peer)
        for peer in sorted(self.held):
            if peer not in self.gone:
                self.thaw(peer)
        self.held.clear()

    def _part(self) -> ServerFinished:
        """Wait until the peers, which were told to stop, have disconnected; return the ledgers."""
        service, evaluated = self._service, self._settings.network.evaluated_peer
        peers: dict[str, Any] = {}
        until = time.monotonic() + PARTING_TIMEOUT
        others = [number for number in range(self._settings.workers) if number != evaluated]
        for number in (*others, evaluated):
            # The evaluated peer disconnects when the evaluator has finished, or gives up by itself.
            told = self.wait_for(number, Parted, None if number == evaluated else until)
            if told is not None:
                peers[peer_name(number)] = asdict(told)
                self._take_in(
                    number,
                    ReceivedSoFar(self._kills[number], told.payload_bytes, told.message_bytes),
                )
            elif number not in self.gone:
                text = f"it has not disconnected within {PARTING_TIMEOUT:g} s after the end of training"
                self.report.event("warning", text, number)
        # By the virtual clock, how much of a killed process's last messages still arrives is the host's
        # chance; by the wall clock, what a peer's earlier processes have received counts as well.
        service.part()
        as_they_say = self._clock is not None and not (self.gone or any(self._kills))
        for number in range(self._settings.workers):
            # A lost peer has said nothing.
            told = peers.get(peer_name(number), {"parameters_sha256": None})
            counted = {
                "payload_bytes": service.bytes.payload[number],
                "message_bytes": service.bytes.messages[number],
            }
            one = counted | told if as_they_say else told | counted
            if isinstance(service.bytes, ArrivedBytes):
                one["undelivered_bytes"] = service.bytes.undelivered[number]
            peers[peer_name(number)] = one
        payload_bytes = sum(peer["payload_bytes"] for peer in peers.values())
        message_bytes = sum(peer["message_bytes"] for peer in peers.values())
        return ServerFinished(service.updates, payload_bytes, message_bytes, peers)

    # -- reports from peers

    def _handles(self, peer: int, told: FromPeer) -> bool:
        if isinstance(told, ReceivedSoFar):
            self._take_in(peer, told)
            return True
        if not isinstance(told, ConnectionLost):
            return False
        # One that is being killed tells this of peers that have forgotten it.
        if peer not in self.gone:
            self._hands[peer].note(told)
            self._lose(told.peer, told.incarnation)
        return True

    def _take_in(self, peer: int, so_far: ReceivedSoFar) -> None:
        """Count what a peer has received, by the wall clock."""
        counted = self._service.bytes
        if isinstance(counted, ReceivedBytes):
            counted.received(peer, so_far.incarnation, so_far.payload_bytes, so_far.message_bytes)

    def _lose(self, peer: int, incarnation: int) -> None:
        """Mark a peer as lost, unless only an earlier process of it was lost to another peer."""
        self._lost[peer] = max(self._lost[peer], incarnation)
        if peer not in self.gone and incarnation >= self._kills[peer]:
            self.gone.add(peer)
            self._service.lose(peer)
            if self._clock is not None:
                self.report.missed(peer)
                self._clock.remove(peer)

    # -- by the wall clock

    def _by_wall_clock(self) -> None:
        self.record(self._service.begin())
        for peer in range(self._settings.workers):
            self.give(peer, OrderKind.BEGIN)
        while not self._service.finished and len(self.gone) < self._settings.workers:
            self.listen(REPORT_PERIOD)
            for peer, told in enumerate(self.told):
                while told:
                    self._count(peer, told.popleft())
            self._look_after()

    def _count(self, peer: int, told: FromPeer) -> None:
        """Count what a peer reports; times of arrival are not known here."""
        now = self.host_time()
        if isinstance(told, Met):
            if told.incarnation <= self._lost[peer]:
                return  # it was killed again
            self._kills[peer] = told.incarnation  # processes may have died before they connected
            self.gone.discard(peer)
            self.record(self._service.returned(peer, told.others, now))
            self.report.send(PeerReturned(peer, told.version))
            self.give(peer, OrderKind.BEGIN)
        elif isinstance(told, Told):
            self.record(self._service.told(peer, told, now, now))

    # -- by the virtual clock

    def _by_virtual_clock(self) -> None:
        self._clock = mesh_clock(self._settings, self._service, self, self._times.busy())
        self._clock.run(self._look_after)
        self.report.send(device_use.report(self._clock, self._settings))
        if not self._clock.finished:
            self.report.event("error", self._clock.why_it_ended)

    def hands(self, peer: int) -> DrivenPeer:
        return self._hands[peer]

    def kill(self, peer: int) -> None:
        self.gone.add(peer)
        self._killed.add(peer)
        self._kills[peer] += 1
        self.held.pop(peer, None)

    def come_back(self, peer: int, others: Sequence[int], record: FaultChange) -> bool:
        """Have a peer's new process started, and wait until it is connected to the others."""
        self.report.flush()
        self.report.send(FaultReported(record | {"others": others}))
        self.gone.discard(peer)
        told = self.wait_for(peer, Met, time.monotonic() + RETURN_TIMEOUT)
        if told is None:
            text = f"it did not come back within {RETURN_TIMEOUT:g} s"
            self.report.event("warning", text, peer)
            self.report.missed(peer)
            self.gone.add(peer)
            return False
        self._killed.remove(peer)
        self._hands[peer] = self._made(peer)
        self.report.send(PeerReturned(peer, told.version))
        return True

    def stop(self, peers: Sequence[int]) -> None:
        """Have all that peers sent reach the others, before they are frozen or cut off.

        A peer that cannot send all of it, as others are stopped already, is not stopped for real: the
        others may have to read it before the peer would go on.
        """
        asked = sorted({*range(self._settings.workers)} - self.gone - self.held.keys())
        for peer in asked:
            self.give(peer, OrderKind.SETTLE)
        spared = set()
        for peer in asked:
            outcome = self._hands[peer].outcome()
            if outcome is not None and outcome.lacking:
                spared |= {peer, *outcome.lacking}
        self._spared = [peer for peer in peers if peer in spared]

    def freeze(self, peer: int) -> None:
        """Keep the peer's orders until its thaw."""
        self.held[peer] = []

    def thaw(self, peer: int) -> None:
        for what, number in self.held.pop(peer, ()):
            self.give(peer, what, number)
            if what is OrderKind.FORGET:
                self._hands[peer].outcome()

    def fault(self, record: FaultChange) -> None:
        self.report.flush()
        self.report.send(FaultReported(record, self._spared))
        self._spared = []

    def host_time(self) -> float:
        return time.monotonic() - self._started

    def record(self, entries: Sequence[Entry]) -> None:
        self._recorder.record(entries)

    def _evaluate(self, due: EvaluationPoint) -> None:
        """Report an evaluation point, and have the evaluated peer send its model to the evaluator."""
        now = self.host_time() if self._clock is None else self._clock.now
        if self._clock is not None and self._settings.is_metered:
            self.report.send(device_use.report(self._clock, self._settings, at_evaluation=True))
        self.report.evaluation_due(due.version, now, due.ledger)
        self.give(self._settings.network.evaluated_peer, OrderKind.EVALUATE, due.version)

    def _look_after(self) -> None:
        now = time.monotonic()
        if now - self._last_report >= REPORT_PERIOD:
            self._last_report = now
            self.report.flush()
            self.report.send(PeersReceived(*self._service.bytes.total))
            if self._clock is not None:
                self.report.send(device_use.report(self._clock, self._settings))
            self._line.look()
            for peer in range(self._settings.workers):
                if self._paces.has_ended(peer):
                    self._lose(peer, self._kills[peer])
