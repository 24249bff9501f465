"""Fixtures of the tests of peers."""

from collections.abc import Iterator

import pytest

from tests.roles.peer.test_peer_connections import Place


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    place = Place(monkeypatch)
    yield place
    place.close()
    assert not place.errors
