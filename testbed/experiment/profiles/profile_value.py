"""A figure of a profile: its value, how sure it is, and where it is from."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Sure: TypeAlias = Literal["quoted", "about", "assumed"]
"""How well a figure is founded: the source has it, it reports about as much, or there is no source."""


@dataclass(frozen=True, slots=True)
class ProfileValue:
    """One figure.

    Attributes:
        value: as in an experiment file.
        source: a key of ``website.publications.SOURCES``; None for what is assumed.
        note: how the value follows from the source; may be empty.
    """

    value: str
    sure: Sure
    source: str | None = None
    note: str = ""
