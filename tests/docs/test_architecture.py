"""The pages describe the code's structure as it is, and their links lead to files."""

import re
import tomllib

import pytest

from tests.docs.blocks import PAGES, REPOSITORY, blocks

_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)#]+)(?:#[^)]*)?\)|!\[[^\]]*\]\(([^)]+)\)")


def test_the_layers_are_those_that_make_lint_checks() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    (layers,) = (
        contract["layers"]
        for contract in project["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
    )
    (block,) = (one for one in blocks() if one.first.startswith("cli | standalone"))
    assert block.text.splitlines() == layers


@pytest.mark.parametrize("page", sorted(PAGES))
def test_links_lead_to_files(page: str) -> None:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    targets = [one or other for one, other in _LINK.findall(text)]
    relative = [target for target in targets if "://" not in target and not target.startswith("#")]
    folder = (REPOSITORY / page).parent
    assert [target for target in relative if not (folder / target).exists()] == []


def test_the_readme_is_short() -> None:
    assert len((REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()) <= 95
