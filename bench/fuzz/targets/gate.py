"""Messages of containers to the gate: ``channel.parsed`` and the codec, of ``InvalidMessageError``."""

import json
from collections.abc import Sequence

from testbed.channel import InvalidMessageError, ReceivedMessage, parsed
from testbed.messages.agent_reports import LibrariesLoaded, ProcessExited, RunFailed
from testbed.messages.codec import encode
from testbed.messages.processes import CONTAINER_EVENTS

TOKENS = (
    *(b"null", b"true", b"-1", b"1e999", b"NaN", b"9" * 30, b"[]", b"{}", b'""', b'"\\ud800"'),
    *(
        b'"kind":"process_exited"',
        b'"kind":"run_failed"',
        b'"kind":[]',
        b'"device":0',
        b'"status":0',
    ),
    *(b"[" * 60, b"{", b"}", b"\n", b"\0", b"\xff\xfe"),
)


def corpus() -> Sequence[bytes]:
    """Return a message of each kind."""
    told = (LibrariesLoaded(), RunFailed("no such file", True), ProcessExited("worker-1", -9, 64))
    return [json.dumps(encode(one)[0], separators=(",", ":")).encode() + b"\n" for one in told]


def check(data: bytes) -> bool:
    """Read a message; return False if it is refused."""
    try:
        content, raw = parsed(data)
        event = CONTAINER_EVENTS.decode(ReceivedMessage(content, raw))
    except InvalidMessageError:
        return False
    match event:
        case RunFailed(reason):
            assert isinstance(reason, str)
        case ProcessExited(device, status):
            assert isinstance(device, str)
            assert isinstance(status, int)
    return True
