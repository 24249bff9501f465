"""Try an encoding of a user's own, so that mistakes in it are found before a start."""

import numpy as np

from testbed.errors import SpecError, TestbedError
from testbed.experiment.model_conflicts import layout_of
from testbed.planning.halves import differ, first_push
from testbed.planning.plan import Plan
from testbed.plugins.names import failures_of
from testbed.training.slices import slices_of
from testbed.updates import DenseUpdate, SparseUpdate, Update
from testbed.wire import WireError
from testbed.wire.own_encoding import EncodeError, OwnCodec

_EVERY = 7
"""The sparse update has every seventh parameter."""


def check_encoding(plan: Plan) -> None:
    """Check that a run's own encoding gives its updates back, each time alike, and in its bounds.

    It is tried with a worker's first push. Among peers it is tried with a dense and a sparse update, of
    which it may refuse one.

    Raises:
        SpecError: it cannot be made, or does not do so; the text says where.
    """
    choice = plan.settings.encoding
    if choice.own is None:
        return
    with failures_of(f"encoding {choice.own}"):
        try:
            first = slices_of(plan.settings, layout_of(plan.spec))[0]
            codec = OwnCodec(choice, first.layout.sizes)
            updates = [first.of(one) for one in _updates(plan)]
            refused = [error for update in updates if (error := _tried(codec, update))]
            if len(refused) == len(updates):
                raise refused[0]
        except TestbedError as error:
            raise SpecError(str(error)) from error


def _updates(plan: Plan) -> list[Update]:
    settings, layout = plan.settings, layout_of(plan.spec)
    gradient = np.linspace(-1, 1, layout.total, dtype=np.float32)
    if plan.served:
        return [first_push(settings, layout, gradient)]
    some = np.arange(0, layout.total, _EVERY, dtype=np.uint32)
    return [SparseUpdate(some, gradient[some]), DenseUpdate(gradient)]


def _tried(codec: OwnCodec, update: Update) -> EncodeError | None:
    """Return the error if the encoding refuses the update."""
    kind = "sparse" if isinstance(update, SparseUpdate) else "dense"
    try:
        encoding, pieces = codec.encode(update)
    except EncodeError as error:
        return error
    body = b"".join(pieces)
    if body != b"".join(codec.encode(update)[1]):
        raise TestbedError(
            f"encoding {codec.choice.own}: encode() gives a {kind} update other bytes the second time: "
            "runs would differ"
        )
    try:
        read = codec.decode(encoding, memoryview(body))
        again = codec.decode(encoding, memoryview(body))
    except WireError as error:
        raise TestbedError(f"{error}, which it has written of a {kind} update") from error
    if differ(read, again):
        raise TestbedError(f"encoding {codec.choice.own}: decode() reads the same body in two ways")
    if not codec.lossy and differ(read, update):
        raise TestbedError(
            f"encoding {codec.choice.own}: a {kind} update is another one when it is read: set lossy = "
            "True, or mend decode()"
        )
    return None
