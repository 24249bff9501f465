"""The keys ``profile`` and ``hardware`` of an experiment file, and what they give."""

import difflib
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, WithJsonSchema, model_validator

from testbed.experiment.profiles import HARDWARE, LINKS
from testbed.experiment.sections.section import SparseSection


def _one_of(known: Collection[str]) -> Callable[[str], str]:
    def check(name: str) -> str:
        if name in known:
            return name
        near = difflib.get_close_matches(name.casefold(), known, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise ValueError(f"'{name[:60]}' is not one of {', '.join(known)}{hint}")

    return check


LinkName: TypeAlias = Annotated[
    str,
    AfterValidator(_one_of(tuple(LINKS))),
    WithJsonSchema({"type": "string", "enum": list(LINKS)}),
]
"""The name of a profile of links."""
HardwareName: TypeAlias = Annotated[
    str,
    AfterValidator(_one_of(tuple(HARDWARE))),
    WithJsonSchema({"type": "string", "enum": list(HARDWARE)}),
]
"""The name of a profile of devices."""


class ProfiledSection(SparseSection):
    """A section with the keys of a link, of which ``profile`` gives some.

    Keys of its own replace what the profile gives; one that has a value for each direction may replace
    only one of them.
    """

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> Any:
        profile = _named(data, "profile", LINKS)
        if profile is None:
            return data
        filled = dict(data)
        for key, value in profile.keys().items():
            own = data.get(key)
            if own is None:
                filled[key] = value
            elif isinstance(own, Mapping) and isinstance(value, Mapping):
                given = {at: part for at, part in own.items() if part is not None}
                filled[key] = {**value, **given}
        return filled


def with_memory(data: Any) -> Any:
    """Return the content of ``devices`` with the memory that hardware gives to containers."""
    if not isinstance(data, Mapping) or data.get("runtime") != "docker":
        return data
    filled = _with_own_memory(data)
    classes = filled.get("classes")
    if isinstance(classes, list | tuple):
        filled["classes"] = [_with_own_memory(one) for one in classes]
    return filled


def _with_own_memory(data: Any) -> Any:
    profile = _named(data, "hardware", HARDWARE)
    if profile is None or data.get("memory") is not None:
        return dict(data) if isinstance(data, Mapping) else data
    return {**data, "memory": profile.memory.value}


def _named(data: Any, key: str, known: Mapping[str, object]) -> Any:
    """Return the profile that a section names; None if it names none, or none that there is."""
    name = data.get(key) if isinstance(data, Mapping) else None
    return known.get(name) if isinstance(name, str) else None
