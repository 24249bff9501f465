"""The functions that other processes find by name: a process of a run is told ``module:attribute``."""

import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

import testbed

TOLD = sorted(
    {
        name
        for path in Path(testbed.__file__).parent.rglob("*.py")
        for name in re.findall(r'"(testbed\.[a-z_.]+:[A-Za-z_.]+)"', path.read_text())
    }
)


@pytest.mark.parametrize("name", TOLD)
def test_what_a_process_is_told_to_call_is_there(name: str) -> None:
    assert callable(resolve_name(name))


def test_the_names_were_found() -> None:
    assert "testbed.roles.entry:load" in TOLD
