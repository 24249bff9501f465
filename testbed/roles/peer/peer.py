"""A peer: it owns a model, computes, sends to the other peers and takes in what they send.

Each peer listens, and connects to the peers with lower numbers, so that every two have one connection.
One thread does everything: it computes, and otherwise waits for its sockets and for the coordinator, so
that a peer that has much to send never keeps others from sending.

Under the wall clock it takes updates in as they come, and takes a step when its durations are over.
Under the virtual clock it follows the coordinator's orders, one after the other, and does nothing else.
"""

import hashlib
import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from testbed.roles.orders import OrderChannel, OrderKind
from testbed.roles.pace import Draws
from testbed.roles.peer.connections import PeerConnections
from testbed.roles.peer.sending_rate import SENDING_LOOK, SendingRate
from testbed.roles.turn_taking import TurnTaking
from testbed.telemetry.board import DeviceLine
from testbed.training.exchange import Message
from testbed.training.peer_computation import PeerComputation, Sending
from testbed.training.settings import Settings
from testbed.training.silence import Silence
from testbed.updates import as_bytes
from testbed.wire.frames import Frame, header

LOOK_PERIOD = 1.0
"""Seconds between two looks for lost peers while no order comes, and at least between two claims."""


class Peer:
    """One peer of a run; see ``run``."""

    def __init__(  # noqa: PLR0917 - what a peer is made of
        self,
        settings: Settings,
        number: int,
        computation: PeerComputation,
        learners: TurnTaking,
        orders: OrderChannel,
        connections: PeerConnections,
        line: DeviceLine,
    ) -> None:
        self._settings = settings
        self._number = number
        self._computation = computation
        self._half = computation.half
        self._learners = learners
        self._orders = orders
        self._gradient = np.empty(learners.own.layout.total, np.float32)
        self._loss = 0.0
        self._connections = connections
        self._line = line
        self._connections.selector.register(orders, selectors.EVENT_READ)
        self._stopped = False
        self._handed_over: Mapping[int, int] = {}
        self._orders_taken = 0
        self._claimed = 0.0
        self._silence = Silence(settings.timing.suspect_after)
        self._suspected: set[int] = set()

    def run(self, times: Draws | None, others: Mapping[int, int] | None = None) -> None:
        """Connect to the others, work until the coordinator says STOP, and disconnect.

        Args:
            times: durations of its computations and waits; None if it computes nothing.
            others: if this peer was killed and comes back, the peers that are there, each with how
                often it was killed.
        """
        if others is None:
            self._connections.connect()
        else:
            self._orders.forget()  # they were the killed process's
            self._connections.connect_again(others)
            for absent in self._connections.absent:
                self._half.forget(absent)
        self._orders.tell(
            met=self._number,
            incarnation=self._connections.identity.incarnation,
            others=self._connections.connected,
            version=self._half.version,
            **self._state(),
        )
        self._line.waiting()
        if self._settings.timing.clock == "virtual":
            self._by_virtual_clock()
        else:
            self._by_wall_clock(times)
        self._line.done()
        digest = hashlib.sha256(self._half.parameters.tobytes()).hexdigest()
        if self._number == self._settings.network.evaluated_peer:
            self._connections.report.parameters(as_bytes(self._half.parameters))
        self._connections.disconnect()
        self._report_losses()  # of peers that were killed as they could not learn of the end
        self._orders.tell(
            parted=self._number,
            payload_bytes=self._connections.payload_bytes,
            message_bytes=self._connections.message_bytes,
            parameters_sha256=digest,
        )

    # -- by the wall clock

    def _by_wall_clock(self, times: Draws | None) -> None:
        self._turn_until(lambda: False, None, OrderKind.BEGIN)
        if times is None:
            self._turn_until(lambda: False, None)
            return
        training = time.monotonic()
        while not self._stopped:
            began = time.monotonic()
            computing, waiting = times.draw(began - training)
            self._compute()
            until = max(began + computing, time.monotonic()) + waiting
            self._turn_until(lambda: False, until)
            if self._stopped:
                return
            self._handed_over = self._connections.outgoing.handed_over()
            took = time.monotonic() - began
            self._step()
            if self._half.needs_profile:
                self._half.profiled(took, self._measured_bandwidth())
            self._await_others()

    def _measured_bandwidth(self) -> float:
        """Wait until the messages of the step have left; return the bytes per second."""
        sending = SendingRate(
            self._handed_over, self._connections.outgoing.handed_over(), time.monotonic()
        )
        while not self._stopped:
            sending.look(self._connections.outgoing.under_way(), time.monotonic())
            if sending.is_over:
                break
            self._turn_until(lambda: False, time.monotonic() + SENDING_LOOK)
        return sending.bandwidth

    def _may_begin(self) -> bool:
        # It computes while it sends, and no more than one step's messages wait to be sent.
        return self._half.ready and not self._unsent()

    def _unsent(self) -> dict[int, int]:
        """Return the peers that have not taken the messages of the step before, and what they took."""
        return self._connections.outgoing.unsent(self._handed_over, self._suspected)

    def _await_others(self) -> None:
        """Wait for those that the half waits for, and that have to take messages, unless silent."""
        taken: dict[int, int] = {}
        while not self._stopped and not self._may_begin():
            now, unsent = time.monotonic(), self._unsent()
            awaited = {*unsent, *(() if self._half.ready else self._half.waits_for)}
            for peer in range(self._settings.workers):
                if peer not in awaited or taken.get(peer) != unsent.get(peer):
                    self._silence.ends(peer)
                if peer in awaited:
                    self._silence.begins(peer, now)
            taken = unsent
            for peer in self._silence.overdue(now):
                silent = self._silence.lasts(peer, now)
                self._silence.ends(peer)
                self._suspected.add(peer)
                self._half.suspect(peer)
                self._orders.tell(suspected=peer, silent=silent)
            deadlines = (self._silence.deadline(peer) for peer in awaited)
            until = min(one for one in (now + LOOK_PERIOD, *deadlines) if one is not None)
            self._turn_until(self._may_begin, until)
        for peer in range(self._settings.workers):
            self._silence.ends(peer)

    def _heard(self, peer: int) -> None:
        """Note that a message has come from a peer, by the wall clock."""
        self._silence.ends(peer)
        if peer in self._suspected:
            self._suspected.remove(peer)
            self._silence.was_slow(peer)
            self._orders.tell(heard=peer)
        else:
            self._silence.was_in_time(peer)

    def _turn_until(
        self, reached: Callable[[], bool], until: float | None, order: OrderKind | None = None
    ) -> None:
        """Take in what comes until ``reached`` returns True, until a moment, an order, or STOP."""
        while not self._stopped:
            self._take_in()
            if reached():
                return
            patience = None if until is None else until - time.monotonic()
            if patience is not None and patience <= 0:
                return
            if self._obey_wall(patience) is order is not None:
                return

    def _obey_wall(self, patience: float | None) -> OrderKind | None:
        """Wait for the next events; return the coordinator's order, if one came."""
        if not self._connections.turn(patience, self._orders):
            return None
        order = self._orders.take()
        assert order is not None
        if order.what is OrderKind.STOP:
            self._stopped = True
        elif order.what is OrderKind.EVALUATE:
            self._connections.evaluate(order.number, self._half.parameters)
        return order.what

    def _take_in(self) -> None:
        self._report_losses()
        while self._connections.returned:
            self._admit(self._connections.returned.pop(0))
        for sender, frame in self._connections.frames():
            self._heard(sender)
            answers = self._receive(sender, frame)
            if answers:
                self._orders.tell(answered=answers)

    def _report_losses(self) -> None:
        for peer, incarnation in self._connections.lost():
            self._half.forget(peer)
            self._orders.tell(lost=peer, incarnation=incarnation, **self._state())

    def _admit(self, peer: int) -> None:
        """Take in a peer that was killed and is back: nothing of what was sent before waits for it."""
        self._half.joined(peer)
        self._heard(peer)
        self._handed_over = {n: size for n, size in self._handed_over.items() if n != peer}

    # -- by the virtual clock

    def _by_virtual_clock(self) -> None:
        connections = self._connections
        reading: int | None = None
        while True:
            while not connections.turn(LOOK_PERIOD, self._orders, reading=reading):
                looked = time.monotonic()
                # Nothing to do: read what has arrived, after which a connection may have ended.
                if connections.turn(0.0, self._orders):
                    break
                self._report_losses()
                self._claim(None, looked)
            order = self._orders.take()
            assert order is not None
            self._orders_taken += 1
            self._claimed = time.monotonic()
            # Others have to be rid of what they sent this peer, until all have settled.
            reading = -1 if order.what is OrderKind.SETTLE else None
            match order.what:
                case OrderKind.BEGIN:
                    self._compute()
                case OrderKind.FINISHED:
                    self._step()
                case OrderKind.ARRIVED:
                    frame = connections.next_from(
                        order.number, partial(self._claim_to_wait_for, order.number)
                    )
                    answers = [] if frame is None else self._receive(order.number, frame)
                    if self._half.paced or self._half.answers:
                        self._orders.tell(**self._state(), messages=answers)
                case OrderKind.FORGET | OrderKind.ADMIT | OrderKind.SUSPECT:
                    self._note_peer(order.what, order.number)
                case OrderKind.SETTLE:
                    self._orders.tell(settled=connections.outgoing.settle())
                case OrderKind.EVALUATE:
                    connections.evaluate(order.number, self._half.parameters)
                case OrderKind.STOP:
                    return

    def _note_peer(self, what: OrderKind, peer: int) -> None:
        """Note what the coordinator says of another peer, and report that."""
        if what is OrderKind.FORGET:
            self._connections.forget(peer)
            self._half.forget(peer)
            self._orders.tell(forgot=peer, **self._state())
        elif what is OrderKind.ADMIT:
            self._connections.returned.remove(peer)
            self._half.joined(peer)
            self._orders.tell(admitted=peer, **self._state())
        else:
            self._half.suspect(peer)
            self._orders.tell(suspected=peer, **self._state())

    def _claim_to_wait_for(self, sender: int) -> None:
        self._claim(sender, time.monotonic())

    def _claim(self, sender: int | None, looked: float) -> None:
        """Claim what this peer waits for, unless that is there, or the last order or claim is recent.

        Args:
            sender: the peer whose message is waited for; None for the clock's next order.
            looked: when this peer began to look for it, in seconds of CLOCK_MONOTONIC.
        """
        if looked - self._claimed < LOOK_PERIOD:
            return
        if sender is not None and self._connections.has_from(sender):
            return
        self._claimed = looked
        under_way = self._connections.outgoing.under_way()
        self._orders.claim(sender, orders=self._orders_taken, looked=looked, under_way=under_way)

    def _state(self) -> dict[str, Any]:
        """Return whether this peer may compute, and else for whom it waits, for a report."""
        ready = self._half.ready
        return {"ready": ready, "awaits": [] if ready else list(self._half.waits_for)}

    # -- actions

    def _receive(self, sender: int, frame: Frame) -> list[Message]:
        """Take an update in, and return the messages that were sent because of it."""
        sent = self._computation.receive(sender, self._computation.decode(frame))
        self._send(sent, self._half.version)
        return [message for sending in sent for message in sending.messages]

    def _compute(self) -> None:
        self._line.training()
        with self._learners.take() as learner:
            gradient, self._loss = self._computation.gradient(learner)
            np.copyto(self._gradient, gradient)
        self._line.waiting()

    def _step(self) -> None:
        step, sent = self._computation.step(self._gradient, self._loss)
        self._orders.tell(
            base=step.base_version,
            staleness=step.staleness,
            loss=step.loss,
            messages=step.messages,
            diagnostics=step.diagnostics,
            **self._state(),
        )
        self._send(sent, step.base_version, step.loss)

    def _send(self, sent: Sequence[Sending], version: int, loss: float = 0.0) -> None:
        for kind, encoded, receivers in sent:
            head = header(kind, version, encoding=encoded.encoding, loss=loss, length=encoded.size)
            for receiver in receivers:
                self._connections.send(receiver, [head, *encoded.body])
