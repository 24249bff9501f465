"""Messages and proofs between the server's admission port and a device."""

import socket
from collections.abc import Iterator

import pytest

from testbed.errors import SpecError
from testbed.standalone import messages
from testbed.standalone.messages import MessageError

SECRET = b"a secret of enough characters"


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        other.settimeout(5)
        yield one, other


@pytest.mark.parametrize("value", [None, "", "  ", "short", " fifteen.letters "])
def test_a_missing_or_short_secret_is_refused_with_the_remedy(value: str | None) -> None:
    with pytest.raises(SpecError, match="openssl rand"):
        messages.secret_of(value)


def test_a_proof_is_for_this_exchange_only() -> None:
    one, other = messages.challenge(), messages.challenge()
    proofs = {
        messages.device_proof(SECRET, one, other, "worker"),
        messages.device_proof(SECRET + b".", one, other, "worker"),
        messages.device_proof(SECRET, other, one, "worker"),
        messages.device_proof(SECRET, one, other, "evaluator"),
        messages.server_proof(SECRET, one, other, "worker"),
        messages.greeting_secret(SECRET, one),
        messages.greeting_secret(SECRET, other),
    }
    assert len(proofs) == 7
    proof = messages.device_proof(SECRET, one, other, "worker")
    assert [messages.equal(other, proof) for other in proofs].count(True) == 1
    for foreign in (None, 7, "é", ""):
        assert not messages.equal(foreign, proof)


def test_a_message_that_was_sent_is_received(ends: tuple[socket.socket, socket.socket]) -> None:
    one, other = ends
    messages.send(one, text="é", number=3)
    one.shutdown(socket.SHUT_WR)
    assert messages.receive(other) == {"text": "é", "number": 3}
    assert messages.receive(other) is None


@pytest.mark.parametrize(
    ("sent", "what"),
    [
        (b"\x00\x00\x10\x01" + b"x" * 0x1001, "4,097 bytes, longer than 4,096"),
        (b"\xff\xff\xff\xff", "longer than 4,096"),
        (b"\x00\x00", "cut short"),
        (b"\x00\x00\x00\x05{}", "cut short"),
        (b"\x00\x00\x00\x02{x", "not JSON"),
        (b"\x00\x00\x00\x02\xff\xff", "not JSON"),
        (b"\x00\x00\x00\x02[]", "not a JSON object"),
        (b"\x00\x00\x08\x00" + b"[" * 2048, "not JSON"),
        (b"\x00\x00\x00\x00", "not JSON"),
    ],
)
def test_a_malformed_message_is_refused(
    ends: tuple[socket.socket, socket.socket], sent: bytes, what: str
) -> None:
    one, other = ends
    one.sendall(sent)
    one.shutdown(socket.SHUT_WR)
    with pytest.raises(MessageError, match=what):
        messages.receive(other, 4096)


@pytest.mark.parametrize("text", [None, 3, "", "xyz", "00" * 31, "00" * 33])
def test_a_malformed_challenge_is_refused(text: object) -> None:
    with pytest.raises(MessageError, match="challenge"):
        messages.challenge_of(text)
