"""The pages describe the code's structure as it is, and their links lead to files."""

import re

import pytest

from tests.docs.blocks import PAGES, REPOSITORY, blocks
from website.architecture import BESIDE, PICTURE, WAY, layers, picture, rooms

_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)#]+)(?:#[^)]*)?\)|!\[[^\]]*\]\(([^)]+)\)")


def test_the_layers_are_those_that_make_lint_checks() -> None:
    (block,) = (one for one in blocks() if one.first.startswith("cli | library"))
    assert [line.split(" | ") for line in block.text.splitlines()] == layers()


def test_the_picture_is_that_of_the_code() -> None:
    assert PICTURE.read_text(encoding="utf-8") == picture(), "make architecture draws it anew"


def test_the_picture_shows_every_room_what_it_is_and_what_it_imports() -> None:
    known = rooms()
    assert list(known) == [*(name for row in layers() for name in row), *BESIDE]
    assert {name for _, by in WAY for name in by} <= set(known)
    assert known["errors"].imports == ()
    assert "orchestrator" in known["execution"].imports
    assert (
        known["clock"].what == "The virtual clock: it computes when things happen, and never sleeps"
    )
    assert known["simulation"].what.startswith("The same experiment in one process")
    drawn = picture()
    for room in known.values():
        assert f'id="{room.name}"' in drawn
        assert all(f"svg:has(#{room.name}:hover) #{one} rect" in drawn for one in room.imports)


@pytest.mark.parametrize("page", sorted(PAGES))
def test_links_lead_to_files(page: str) -> None:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    targets = [one or other for one, other in _LINK.findall(text)]
    relative = [target for target in targets if "://" not in target and not target.startswith("#")]
    folder = (REPOSITORY / page).parent
    assert [target for target in relative if not (folder / target).exists()] == []


def test_the_modules_that_the_page_names_are_there() -> None:
    text = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`([a-z_/]+(?:\.py|/))`", text)
    assert len(named) > 50
    places = REPOSITORY, REPOSITORY / "testbed"
    assert [one for one in named if not any((place / one).exists() for place in places)] == []


def test_the_readme_is_short() -> None:
    assert len((REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()) <= 95
