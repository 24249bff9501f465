"""Results of tests in a guest: outcomes and measured values, read from pytest's JUnit file."""

import json
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from testbed.errors import RunError


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one test.

    Attributes:
        name: file and test.
        outcome: ``passed``, ``skipped`` or ``failed``.
        seconds: duration in the guest.
        why: reason if it was skipped or has failed, otherwise empty.
        measured: for each quantity its name, the value asked for and the measured value.
    """

    name: str
    outcome: str
    seconds: float
    why: str
    measured: tuple[tuple[str, str, str], ...]


def read(file: Path) -> list[Result]:
    """Return the results in a JUnit file.

    Raises:
        RunError: there is no such file, or it is incomplete.
    """
    try:
        root = ElementTree.parse(file).getroot()
    except (OSError, ElementTree.ParseError) as error:
        raise RunError(f"the guest's tests left no results: {error}") from error
    return [_result(case) for case in root.iter("testcase")]


def _result(case: ElementTree.Element) -> Result:
    outcome, why = "passed", ""
    for child in case:
        if child.tag in ("failure", "error", "skipped"):
            outcome = "skipped" if child.tag == "skipped" else "failed"
            why = child.get("message", "")
    measured = tuple(
        tuple(json.loads(entry.get("value", "")))
        for entry in case.iter("property")
        if entry.get("name") == "measured"
    )
    where = case.get("classname", "").rpartition(".")[2]
    name = f"{where}: {case.get('name', '')}"
    return Result(name, outcome, float(case.get("time", 0)), why, measured)


def table(results: list[Result]) -> str:
    """Return a text table of the values asked for next to the measured ones."""
    rows = [("", "asked", "measured")]
    rows += [row for result in results for row in result.measured]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return "\n".join(
        f"{what:<{widths[0]}}  {asked:>{widths[1]}}  {found:>{widths[2]}}"
        for what, asked, found in rows
    )
