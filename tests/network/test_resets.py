"""Connections to an address are reset for real; those to others stay."""

import socket

import pytest

from testbed.network.resets import reset_connections
from tests.traffic.isolation import isolated, real


@real
def test_only_connections_to_an_address_that_is_gone_are_reset() -> None:
    def body() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            callers, ends = {}, {}
            for address in ("127.0.0.2", "127.0.0.3"):
                own = (address, 0)
                callers[address] = socket.create_connection(listener.getsockname(), 5, own)
                ends[address], _ = listener.accept()
                ends[address].settimeout(5)
            callers["127.0.0.2"].sendall(b"the last words")
            reset_connections(["127.0.0.2", "127.0.0.9"])
            # What had arrived is read before the process learns of the end.
            assert ends["127.0.0.2"].recv(100) == b"the last words"
            with pytest.raises(ConnectionAbortedError):
                ends["127.0.0.2"].recv(100)
            callers["127.0.0.3"].sendall(b"still there")
            assert ends["127.0.0.3"].recv(100) == b"still there"

    isolated(body)
