"""The state of an object: every attribute that its class does not list in ``not_saved``.

An attribute that is added to a class is in its checkpoints without further code, and cannot be
forgotten. If it cannot be stored, the first checkpoint fails and names it.
"""

from typing import Any, ClassVar, TypeAlias, TypeGuard

import numpy as np

State: TypeAlias = dict[str, Any]
"""The state of an object: by attribute, plain values, arrays and objects of stored classes.

What type each has only the class knows that saves and restores it.
"""


class Stateful:
    """An object whose state can be taken, and given to another one made with the same arguments."""

    not_saved: ClassVar[frozenset[str]] = frozenset()
    """Attributes of this class that a new object has as they should be, so that no checkpoint does."""

    def state(self) -> State:
        """Return the state, by attribute; what is itself stateful, or a list of such, as its state.

        The state shares the object's memory: store it before the object changes.
        """
        not_saved = _not_saved(type(self))
        return {
            name: _state_of(value) for name, value in vars(self).items() if name not in not_saved
        }

    def restore(self, state: State) -> None:
        """Become as the object was that the state was taken from; the state's values are taken over.

        Arrays are filled in place, as other objects may use the same memory.

        Raises:
            ValueError: the state has an attribute that this class does not save.
        """
        # Only this is checked: an attribute set after construction may be in only one of the two.
        if wrong := _not_saved(type(self)).intersection(state):
            raise ValueError(f"{type(self).__name__} does not save {', '.join(sorted(wrong))}")
        for name, value in state.items():
            mine = vars(self).get(name)
            if isinstance(mine, Stateful):
                mine.restore(value)
            elif _are_stateful(mine):
                for one, saved in zip(mine, value, strict=True):
                    one.restore(saved)
            elif isinstance(mine, np.ndarray) and _alike(mine, value):
                np.copyto(mine, value)
            else:
                setattr(self, name, value)


def _state_of(value: Any) -> Any:
    if isinstance(value, Stateful):
        return value.state()
    return [one.state() for one in value] if _are_stateful(value) else value


def _are_stateful(value: Any) -> TypeGuard[list[Stateful]]:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Stateful)


def _not_saved(kind: type) -> frozenset[str]:
    return frozenset().union(*(vars(base).get("not_saved", ()) for base in kind.__mro__))


def _alike(mine: np.ndarray[Any, Any], value: object) -> bool:
    return isinstance(value, np.ndarray) and mine.shape == value.shape and mine.dtype == value.dtype
