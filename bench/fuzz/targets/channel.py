"""Reports of roles: ``channel.parsed``, the codec and a sender's check, of ``InvalidMessageError``."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from testbed.channel import InvalidMessageError, ReceivedMessage, parsed
from testbed.messages.codec import RAW, encode
from testbed.messages.reports import REPORTS, RoleReport, ServerFinished, VersionEvaluated
from testbed.orchestrator.report_channels import ReportingProcess

TOKENS = (
    *(b"null", b"true", b"-1", b"1e999", b"NaN", b"9" * 30, b"[]", b"{}", b'""', b'"\\ud800"'),
    *(
        b'"kind":"version_evaluated"',
        b'"kind":[]',
        b'"server":1',
        b'"device":0',
        b'"level":"error"',
    ),
    *(b"[" * 60, b"{", b"}", b"\n", b"\0", b"\xff\xfe", b'"spared":[[]]', b'"record":{"a":{}}'),
)
_SENDERS = (
    ReportingProcess("evaluator", "evaluator", 9),
    ReportingProcess("coordinator", "coordinator", -1),
)


def _value(hint: Any) -> object:
    """Return a value of a field's type."""
    origin = get_origin(hint) or hint
    if origin is UnionType:
        return _value(get_args(hint)[0])
    if issubclass(origin, Mapping):
        return {"kind": "kill", "device": 1}
    if origin is str:
        return "info"
    return [1] if issubclass(origin, Sequence) else origin(1)


def _packet(message: RoleReport) -> bytes:
    content, raw = encode(message)
    return json.dumps(content, separators=(",", ":")).encode() + b"\n" + raw


def corpus() -> Sequence[bytes]:
    """Return a report of each kind."""
    found: list[bytes] = []
    for own in get_args(RoleReport):
        hints = get_type_hints(own)
        values = {
            one.name: bytes(8) if one.name == RAW else _value(hints[one.name])
            for one in fields(own)
        }
        found.append(_packet(own(**values)))
    return found


def check(data: bytes) -> bool:
    """Read a report; return False if it is refused."""
    try:
        content, raw = parsed(data)
        report = REPORTS.decode(ReceivedMessage(content, raw))
        _SENDERS[not isinstance(report, VersionEvaluated)].check(report)
    except InvalidMessageError:
        return False
    assert type(report) in get_args(RoleReport)
    assert not isinstance(report, ServerFinished) or isinstance(report.peers, dict)
    return True
