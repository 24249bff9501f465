"""One program on one device."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Restart: TypeAlias = Literal["never", "on-failure", "always"]


@dataclass(frozen=True, slots=True)
class Instance:
    """A program on a device.

    Attributes:
        program: its name in the experiment file.
        device: the device's name.
        index: its number among the program's instances, from 0.
        command: the program to execute, and its arguments.
        environment: all its environment variables.
    """

    program: str
    device: str
    index: int
    command: Sequence[str]
    environment: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.program} on {self.device}"


@dataclass(frozen=True, slots=True)
class Rules:
    """What the experiment file says of a program's life.

    Attributes:
        after: the programs that must be ready before it starts.
        restart: whether it is started again when it has ended.
        ends_run: True if the run ends when it has ended.
    """

    after: Sequence[str] = ()
    restart: Restart = "never"
    ends_run: bool = False
