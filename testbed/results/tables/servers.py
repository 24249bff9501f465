"""The ingress of each of a run's servers, one row for each, and their sum.

Payload and messages that a co-located server got from the worker on its machine are named apart.
"""

from testbed import number_text as q
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.reading.run_files import Ingress

HEADINGS = ("server", "payload", "message", "wire")


def server_rows(run: RecordedRun) -> list[tuple[str, ...]]:
    """Return the cells of a row for each server of a run, and of one for all; none if it has one."""
    summary = run.summary
    if not summary.servers:
        return []
    return [
        *(_cells(name, ingress) for name, ingress in summary.servers.items()),
        _cells("all", summary.ingress),
    ]


def _cells(name: str, ingress: Ingress) -> tuple[str, ...]:
    return (
        name,
        _with_local(ingress.payload_bytes, ingress.local_payload_bytes),
        _with_local(ingress.message_bytes, ingress.local_message_bytes),
        q.as_bytes(ingress.wire_bytes),
    )


def _with_local(size: int | None, local: int) -> str:
    text = q.as_bytes(size)
    return f"{text}, of it {q.as_bytes(local)} within machines" if local else text
