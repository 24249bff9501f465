"""The reports of a further server, as they arrive from another host, and the check of each.

A further server reports what any server does, but from another process, perhaps of another host. The
account of the run trusts its reports, so what could not be true is refused here: a report of another
server, a version beyond the last, rows without a time, parameters that its slice does not have.

Its CLOCK_MONOTONIC is not that of the first server. The moment at which a report arrives takes the
place of the one that it names.
"""

import time
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeAlias, get_args, get_type_hints

import numpy as np

from testbed.channel import InvalidMessageError, ReceivedMessage
from testbed.device_names import server_number
from testbed.messages.codec import MessageCodec, kind
from testbed.messages.reports import (
    ConnectionClosed,
    DevicesConnected,
    EvaluationDue,
    EvaluationLeftOut,
    EventReported,
    FinalParameters,
    ServerFinished,
    ServerListening,
    Suspected,
    TrainingBegun,
    UpdatesApplied,
    Welcomed,
)
from testbed.roles.reporting import CHUNK, ROWS
from testbed.standalone.messages import MessageError
from testbed.telemetry.update_rows import UPDATE
from testbed.training.settings import Settings

LONGEST = max(ROWS * UPDATE.itemsize, CHUNK)
"""The most raw bytes of one report."""
_MOST = 1 << 63
_LEVELS = ("info", "warning", "error")

ShardReport: TypeAlias = (
    ServerListening
    | DevicesConnected
    | TrainingBegun
    | UpdatesApplied
    | EvaluationDue
    | EvaluationLeftOut
    | EventReported
    | Suspected
    | Welcomed
    | ConnectionClosed
    | FinalParameters
    | ServerFinished
)
"""The reports of which the account of the run is made; a further server sends no others."""
KINDS = get_args(ShardReport)
_CODEC: MessageCodec[ShardReport] = MessageCodec(KINDS)


class ShardReports:
    """The reports of one further server.

    Attributes:
        finished: True if it has reported its final parameters, and that it has finished.
    """

    def __init__(self, index: int, settings: Settings, size: int) -> None:
        """Start without reports.

        Args:
            index: the server's, from 1.
            size: the number of parameters of its slice.
        """
        self._index = index
        self._settings = settings
        self._parameter_bytes = 4 * size
        self._received = 0
        self.finished = False

    def check(self, content: dict[str, Any], raw: bytes) -> ShardReport:
        """Return the report that was received.

        Raises:
            MessageError: a server of this run cannot have sent it.
        """
        try:
            report = _CODEC.decode(ReceivedMessage(content, raw))
        except InvalidMessageError as error:
            raise MessageError(f"{error}") from error
        own: Any = type(report)
        name = kind(own)
        for field, accepted in _types(own).items():
            _check_value(name, field, getattr(report, field), accepted)
        if getattr(report, "server", self._index) != self._index:
            raise MessageError(f"a report {name} of another server")
        updates = self._settings.training.updates
        if getattr(report, "version", 0) > updates:
            raise MessageError(f"a report {name} of a version beyond {updates:,}")
        self._check_content(report)
        if isinstance(report, TrainingBegun | EvaluationDue):
            return replace(report, host_time=time.monotonic())
        return report

    def _check_content(self, report: ShardReport) -> None:
        workers = self._settings.workers
        match report:
            case DevicesConnected(count) if count > workers:
                raise MessageError(f"a report of {count:,} workers, and there are {workers:,}")
            case UpdatesApplied():
                _check_rows(report.raw)
            case EventReported(level, _, device):
                own = server_number(self._index)
                known = device is None or device == own or 0 <= device <= workers
                if level not in _LEVELS or not known:
                    raise MessageError("an event of an unknown level or device")
            case Suspected(worker) | Welcomed(worker) if not 0 <= worker < workers:
                raise MessageError(f"a report of worker {worker:,}, and there are {workers:,}")
            case FinalParameters(start, raw):
                if start != self._received or start + len(raw) > self._parameter_bytes:
                    raise MessageError("final parameters that its slice does not have")
                self._received += len(raw)
            case ServerFinished():
                if self.finished or self._received != self._parameter_bytes:
                    raise MessageError("an end without all final parameters, or a second one")
                self.finished = True


def _types(report_type: type) -> dict[str, tuple[type, ...]]:
    """Return, for each field of a report, the types of its values."""
    hints = get_type_hints(report_type)
    found = {}
    for field in fields(report_type):
        hint = hints[field.name]
        options = get_args(hint) if type(None) in get_args(hint) else (hint,)
        found[field.name] = tuple(getattr(one, "__origin__", one) for one in options)
    return found


def _check_value(name: str, field: str, value: object, accepted: tuple[type, ...]) -> None:
    """Check one field's value: what was JSON may have any type.

    Raises:
        MessageError: it is of another type, or a number that no server reports.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        # Only an event may be about a server, whose number is negative. A NaN is in no range.
        least = -_MOST if field == "device" else 0
        fits = (type(value) in accepted or float in accepted) and least <= value < _MOST
    else:
        fits = type(value) in accepted or (Mapping in accepted and value == {})
    if not fits:
        raise MessageError(f"a report {name} whose {field} is not valid")


def _check_rows(raw: bytes) -> None:
    """Check rows of ``UPDATE``.

    Raises:
        MessageError: there is none, a part of one, or one that no server reports.
    """
    if not raw or len(raw) % UPDATE.itemsize:
        raise MessageError("updates that are not whole rows")
    rows = np.frombuffer(raw, UPDATE)
    moments = np.concatenate([rows["time"], rows["host_time"]])
    counts = np.concatenate([rows["payload_bytes"], rows["message_bytes"]])
    if not np.isfinite(moments).all() or moments.min() < 0 or counts.min() < 0:
        raise MessageError("updates with an invalid time or number of bytes")
