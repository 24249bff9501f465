"""The messages in which an aggregator pushes what it has combined."""

from testbed.algorithms.aggregator_half import AggregatorHalf, Combined
from testbed.encoding_choice import EncodingChoice
from testbed.roles.transport.endpoint import Pieces
from testbed.training.parameter_service import as_loss
from testbed.training.settings import Settings
from testbed.updates import Layout, checked
from testbed.wire.frames import Kind, header
from testbed.wire.own_encoding import codec_of


class Sums:
    """Encodes the sums of one aggregator."""

    def __init__(self, settings: Settings, half: AggregatorHalf, layout: Layout) -> None:
        """Prepare to encode what a half combines.

        Args:
            half: is told what the encoding has rounded away.
            layout: of all parameters.
        """
        self._half, self._size = half, layout.total
        choice = EncodingChoice.model_validate(settings.training.encoding)
        self._codec = codec_of(choice, layout.sizes)

    def message(self, combined: Combined) -> Pieces:
        """Return the message that pushes a sum; it may share the half's memory."""
        update = checked(combined.update, self._size, self._half)
        encoding, body = self._codec.encode(update)
        head = header(
            Kind.PUSH,
            combined.base_version,
            encoding=encoding,
            loss=as_loss(combined.loss),
            count=combined.count,
            length=sum(map(len, body)),
        )
        if self._codec.lossy:
            self._half.lost(update, self._codec.rounded(update))
        return [head, *body]
