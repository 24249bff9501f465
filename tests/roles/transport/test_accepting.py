"""Accepting connections while no descriptor is free, and after the end."""

import selectors
import socket

from testbed.roles.transport.accepting import Accepting
from tests.roles.server.test_server import no_descriptors


def test_a_closed_listener_is_not_watched_again_after_a_rest() -> None:
    listener, told = socket.create_server(("127.0.0.1", 0)), list[str]()
    with selectors.EpollSelector() as selector, socket.socket() as caller:
        accepting = Accepting(listener, selector, told.append)
        with no_descriptors():
            caller.connect(listener.getsockname())
            accepting.accept(lambda *_: None)
        assert "no connection can be accepted for now" in told[0]
        accepting.close()
        accepting.again(at_once=True)  # as a connection is closed later
        assert not selector.get_map()
