"""The doctor's findings."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of the doctor.

    Attributes:
        what: what was checked.
        state: ``ok``; ``limited``: runs work, without some feature; ``missing``: runs do not work.
        found: what was found.
        remedy: how to get what is missing; empty if nothing is.
    """

    what: str
    state: Literal["ok", "limited", "missing"]
    found: str
    remedy: str = ""
