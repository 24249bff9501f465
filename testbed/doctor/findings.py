"""What the doctor says of one thing."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing the doctor looked at.

    Attributes:
        what: its name.
        state: ``ok``; ``limited``: runs go, something is lost; ``missing``: runs do not go.
        found: what was seen.
        remedy: how to get what is missing; empty where nothing is.
    """

    what: str
    state: Literal["ok", "limited", "missing"]
    found: str
    remedy: str = ""
