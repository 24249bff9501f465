"""The message that carries an update."""

from testbed.training.computation import Encoded
from testbed.training.parameter_service import as_loss
from testbed.wire.frames import Kind, header


def push(version: int, encoded: Encoded, loss: float) -> list[bytes | memoryview]:
    """Return the pieces of a PUSH."""
    head = header(
        Kind.PUSH,
        version,
        encoding=encoded.encoding,
        loss=as_loss(loss),
        length=encoded.size,
    )
    return [head, *encoded.body]
