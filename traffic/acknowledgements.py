"""Count pure ACKs during a capture: TCP segments over IPv4 that only acknowledge.

It is one pass over the kept bytes of a batch, for a count that is needed at once. Later
``traffic.accounting`` finds the same in the files (its ``ack_bytes``), except for packets with IP
options, which are left out here.
"""

import ipaddress

import numpy as np

from traffic import TrafficError
from traffic.headers import FIN, RST, SYN
from traffic.packet_ring import Packets

_ETHERNET, _IPV4 = 14, 20
_NEEDED = _ETHERNET + _IPV4 + 14
"""Bytes of a packet that must have been kept: up to TCP's flags."""
_LONGEST = _ETHERNET + _IPV4 + 60
"""Bytes of a pure ACK with as many options as fit."""


class PureAcks:
    """The count of pure ACKs that are sent to one address, so far."""

    def __init__(self, address: str) -> None:
        """Count pure ACKs to an IPv4 address.

        Raises:
            TrafficError: it is none.
        """
        self.count = 0
        try:
            packed = ipaddress.IPv4Address(address).packed
        except ValueError as error:
            raise TrafficError(f"ACKs are counted to an IPv4 address only: {error}") from error
        self._address = np.frombuffer(packed, np.uint8)

    def add(self, batch: Packets) -> None:
        """Count the pure ACKs of a batch."""
        if batch.data.shape[1] < _NEEDED:
            return
        # Most bytes are in packets that are too long to be a pure ACK.
        short = np.flatnonzero((batch.length <= _LONGEST) & (batch.kept >= _NEEDED))
        data = batch.data[short]
        head = data[:, :_NEEDED].astype(np.uint16)
        total = head[:, 16] << 8 | head[:, 17]
        transport = head[:, _ETHERNET + _IPV4 :]
        bare = total == _IPV4 + (transport[:, 12] >> 4) * 4
        # IPv4 without options, a whole datagram or its first piece, of TCP
        plain = (head[:, 12] == 8) & (head[:, 13] == 0) & (head[:, 14] == 0x45)
        plain &= (head[:, 20] & 0x3F == 0) & (head[:, 21] == 0) & (head[:, 23] == 6)
        silent = transport[:, 13] & (SYN | FIN | RST) == 0
        to_it = (data[:, 30:34] == self._address).all(axis=1)
        self.count += int((plain & bare & silent & to_it).sum())
