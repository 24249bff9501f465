"""The page on links has the profiles as they are, and each figure says where it is from."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from testbed.cli import plan_links
from testbed.experiment.load import load
from testbed.experiment.profiles import HARDWARE, LINKS, ProfileValue
from tests.docs.blocks import blocks
from tests.docs.test_yaml_blocks import AROUND
from website.profiles import MARKS, PAGE, page
from website.publications import SOURCES, SURE


def vars_of(one: Any) -> dict[str, object]:
    return {field.name: getattr(one, field.name) for field in fields(one)}


FIGURES = [
    figure
    for one in (*LINKS.values(), *HARDWARE.values())
    for figure in vars_of(one).values()
    if isinstance(figure, ProfileValue)
]


def test_the_page_has_the_table_of_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "make profiles writes it anew"


def test_every_figure_has_a_source_or_says_that_it_has_none() -> None:
    assert set(MARKS) == set(SURE) == {figure.sure for figure in FIGURES}
    for figure in FIGURES:
        assert (figure.source is None) == (figure.sure == "assumed"), figure
    assert {figure.source for figure in FIGURES} - {None} == set(SOURCES)


def test_the_lines_of_the_plan_are_those_that_the_page_shows(tmp_path: Path) -> None:
    (shown,) = (one for one in blocks() if one.first.startswith("  class phones: profile"))
    (file,) = (one for one in blocks("yaml") if one.text.startswith("network: {profile: cable}"))
    path = tmp_path / "block.yaml"
    rest = "\n".join(f"{key}: {value}" for key, value in AROUND.items() if key != "devices")
    path.write_text(f"{file.text}\n{rest}\n", encoding="utf-8")
    assert set(shown.text.splitlines()) < set(plan_links.describe(load(path)))


@pytest.mark.parametrize("names", [LINKS, HARDWARE])
def test_a_name_is_its_profiles_own(names: dict[str, object]) -> None:
    assert all(getattr(one, "name", None) == name for name, one in names.items())
