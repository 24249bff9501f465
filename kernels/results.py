"""What came out of a boot: the tests' outcomes and what they measured, from pytest's JUnit file."""

import json
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from testbed.errors import RunError


@dataclass(frozen=True, slots=True)
class Result:
    """One test.

    Attributes:
        name: file and test.
        outcome: passed, skipped or failed.
        seconds: in the guest.
        why: of a skipped or failed one.
        measured: what, asked, measured.
    """

    name: str
    outcome: str
    seconds: float
    why: str
    measured: tuple[tuple[str, str, str], ...]


def read(file: Path) -> list[Result]:
    """The tests of a JUnit file.

    Raises:
        RunError: there is none, or it is not whole.
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
        tuple(json.loads(one.get("value", "")))
        for one in case.iter("property")
        if one.get("name") == "measured"
    )
    where = case.get("classname", "").rpartition(".")[2]
    name = f"{where}: {case.get('name', '')}"
    return Result(name, outcome, float(case.get("time", 0)), why, measured)


def table(results: list[Result]) -> str:
    """Asked beside measured."""
    rows = [("", "asked", "measured")]
    rows += [row for result in results for row in result.measured]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return "\n".join(
        f"{what:<{widths[0]}}  {asked:>{widths[1]}}  {found:>{widths[2]}}"
        for what, asked, found in rows
    )
