"""The identity in a greeting as one number, and greeting a server that is killed meanwhile."""

import contextlib
import socket
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.device_names import SERVER_NUMBER
from testbed.faults.fault import Fault
from testbed.faults.rules import FaultRule, Version
from testbed.roles.transport import greeting
from testbed.roles.transport.greeting import Identity, connect
from testbed.wire.frames import Kind, header
from tests.roles.server.test_server import settings


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1), st.integers(0, 2**16 - 1))
def test_an_identity_survives_its_conversion_to_a_number(
    number: int, incarnation: int, kills: int
) -> None:
    identity = Identity(number, incarnation, kills)
    assert 0 <= int(identity) < 2**64
    assert Identity.of(int(identity)) == identity


def test_the_first_incarnation_s_number_is_the_device_s() -> None:
    assert int(Identity(7)) == 7


def test_the_server_may_be_killed_at_any_moment_of_a_greeting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Listeners open and close, some with connections not yet accepted, until one stays."""
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setattr(greeting, "PORT", port)

    def die_again_and_again() -> None:
        for i in range(60):
            with socket.create_server(("", port), reuse_port=True) as listener:
                listener.settimeout(0.01)
                if i % 3:
                    time.sleep(0.002)
                    continue
                with contextlib.suppress(TimeoutError):
                    listener.accept()[0].close()
        with socket.create_server(("", port), reuse_port=True) as listener:
            while True:
                accepted, _ = listener.accept()
                with accepted, contextlib.suppress(ConnectionError):
                    if accepted.recv(1000):
                        accepted.sendall(header(Kind.WELCOME, 7))
                        return

    server = threading.Thread(target=die_again_and_again)
    server.start()
    rule = FaultRule("faults 0", Fault(0, "kill", 0.0), [SERVER_NUMBER], Version(9))
    greeted = connect(settings(rules=(rule,)), Identity(0), 7)
    greeted.connection.close()
    server.join(10)
    assert not server.is_alive()
    assert not greeted.goes_on
