"""The states of workers that the last two checkpoints of a run need, by their numbers.

Workers write what they remember themselves (``testbed.roles.worker.memory``). The process with the
clock knows from which state each would go on, and has it keep that for as long as a checkpoint may need
it: the last one, or the one before, from which a run is resumed whose journals end before the last.
"""

from collections.abc import Iterator, Mapping, Sequence

from testbed.roles.orders import OrderKind, state_number


class KeptStates:
    """The states that each of the last two checkpoints needs.

    Attributes:
        each: by worker the number of its state, of the last checkpoint but one and of the last.
    """

    def __init__(self, *, remember: bool) -> None:
        """Start without a checkpoint.

        Args:
            remember: True if workers write what they remember.
        """
        self.each: Sequence[Mapping[int, int]] = [{}, {}]
        self._remember = remember

    def add(self, ended: Mapping[int, int], incarnations: Sequence[int]) -> None:
        """Add a checkpoint, and drop the last but one.

        Args:
            ended: by worker, how many computations had ended in the state that it would go on from.
        """
        states = {
            worker: state_number(incarnations[worker], count)
            for worker, count in ended.items()
            if count and self._remember
        }
        self.each = [self.each[-1], states]

    def orders_to_keep(self) -> Iterator[tuple[int, tuple[OrderKind, int]]]:
        """Yield each worker of which the last checkpoint needs another state, with its order.

        One that is frozen reads no orders, and changes no state.
        """
        before, last = self.each
        for worker, number in last.items():
            if before.get(worker) != number:
                yield worker, (OrderKind.KEEP, number)

    def orders_to_begin(self, worker: int) -> list[tuple[OrderKind, int]]:
        """Return the orders to a new incarnation, which has not heard what to keep."""
        return [(OrderKind.KEEP, one[worker]) for one in self.each if worker in one]

    def orders_to_go_on(self, worker: int) -> list[tuple[OrderKind, int]]:
        """Return the orders to a worker that goes back to the last checkpoint."""
        before, last = self.each
        orders = [(OrderKind.KEEP, before[worker])] if worker in before else []
        return [*orders, (OrderKind.GO_ON, last[worker])] if worker in last else orders
