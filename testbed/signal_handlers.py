"""The signals that end a command, and handlers that hold for a while."""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeAlias

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that ask a command, or one of its processes, to end."""

Handler: TypeAlias = Callable[[int, FrameType | None], Any] | signal.Handlers


@contextmanager
def handled(handlers: Mapping[int, Handler]) -> Iterator[None]:
    """Handle signals by their handlers in the body, and as before after it."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
