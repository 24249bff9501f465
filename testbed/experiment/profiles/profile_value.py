"""A figure of a profile: its value, how sure it is, and where it is from."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Sure: TypeAlias = Literal["quoted", "about", "assumed"]
SURE: dict[Sure, str] = {
    "quoted": "the source, or an article about it, has this figure",
    "about": "the size of what the source reports, rounded, and not compared with it figure by figure",
    "assumed": "plausible; no source was found",
}


@dataclass(frozen=True, slots=True)
class ProfileValue:
    """One figure.

    Attributes:
        value: as in an experiment file.
        sure: see ``SURE``.
        source: a key of ``publications.SOURCES``; None for what is assumed.
        note: how the value follows from the source; may be empty.
    """

    value: str
    sure: Sure
    source: str | None = None
    note: str = ""
