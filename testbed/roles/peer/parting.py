"""The end of a run of peers: wait until they have disconnected, and add their ledgers up."""

import time
from collections.abc import Sequence
from typing import Any

from testbed.device_names import peer_name
from testbed.messages.reports import ServerFinished
from testbed.roles.peer.channels import PeerChannels
from testbed.roles.reporting import Report
from testbed.training.exchange import ExchangeService
from testbed.training.settings import Settings

PARTING_TIMEOUT = 60.0
"""Seconds that peers have to disconnect when training is over, including waits for each other."""


def part(
    settings: Settings,
    channels: PeerChannels,
    service: ExchangeService,
    report: Report,
    kills: Sequence[int],
) -> ServerFinished:
    """Wait until the peers, which were told to stop, have disconnected; return the run's ledgers.

    Args:
        kills: how often each peer was killed; under the wall clock, of those that are back.
    """
    peers: dict[str, Any] = {}
    until = time.monotonic() + PARTING_TIMEOUT
    evaluated = settings.network.evaluated_peer
    others = [number for number in range(settings.workers) if number != evaluated]
    for number in (*others, evaluated):
        # The evaluated peer disconnects when the evaluator has finished, or gives up by itself.
        told = channels.wait_for(number, "parted", None if number == evaluated else until)
        if told is None and number not in channels.gone:
            text = f"it has not disconnected within {PARTING_TIMEOUT:g} s after the end of training"
            report.event("warning", text, number)
        if told is not None:
            peers[peer_name(told.pop("parted"))] = told
    by_clock = settings.timing.clock == "virtual" and bool(channels.gone or any(kills))
    if by_clock:
        # How much of a killed process's last messages still arrives is the host's chance.
        service.part()
    for number, often in enumerate(kills):
        # What an earlier process of a peer received, only those know that sent it.
        if (by_clock or often) and peer_name(number) in peers:
            peers[peer_name(number)] |= {
                "payload_bytes": service.payload_bytes[number],
                "message_bytes": service.message_bytes[number],
            }
    payload_bytes = sum(peer["payload_bytes"] for peer in peers.values())
    message_bytes = sum(peer["message_bytes"] for peer in peers.values())
    if by_clock:
        payload_bytes, message_bytes = sum(service.payload_bytes), sum(service.message_bytes)
    return ServerFinished(service.updates, payload_bytes, message_bytes, peers)
