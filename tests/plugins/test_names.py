import sys
from pathlib import Path

import pytest

from testbed.errors import SpecError
from testbed.plugins.names import find, is_plugin, module_digest

GROUP = "testbed.tests"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with two modules and an entry point, as pip installs it."""
    folder = tmp_path / "installed_plugin"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "rules.py").write_text("class Rule:\n    class Inner:\n        pass\n")
    about = tmp_path / "installed_plugin-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: installed-plugin\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[{GROUP}]\nshort = installed_plugin.rules:Rule\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [one for one in sys.modules if one.startswith("installed_plugin")]:
        monkeypatch.delitem(sys.modules, name)
    return folder


def test_a_name_is_built_in_or_a_path_or_an_entry_point(package: Path) -> None:
    assert find("own", {"own": 1}, GROUP) == 1
    rule = find("installed_plugin.rules:Rule", {}, GROUP)
    assert rule.__name__ == "Rule"
    assert find("installed_plugin.rules:Rule.Inner", {}, GROUP) is rule.Inner
    assert find("short", {}, GROUP) is rule
    assert find("short", {"short": 2}, GROUP) == 2


def test_what_is_a_plugin(package: Path) -> None:
    assert is_plugin("short", {}, GROUP)
    assert is_plugin("nowhere:Rule", {}, GROUP)
    assert not is_plugin("short", {"short": 2}, GROUP)
    assert not is_plugin("other", {}, GROUP)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "other",
            "there is no 'other': it is none of own, and no installed package has an entry point",
        ),
        ("nowhere:Rule", "the module nowhere cannot be imported: ModuleNotFoundError"),
        ("pydantic:Rule", "the module pydantic has no 'Rule'"),
    ],
)
def test_a_name_of_nothing_is_refused(name: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        find(name, {"own": 1}, GROUP)


def test_the_digest_is_of_all_code_of_the_package(package: Path) -> None:
    assert module_digest("own", {"own": 1}, GROUP) is None
    first = module_digest("short", {}, GROUP)
    assert first is not None
    assert first[0] == "installed_plugin"
    assert module_digest("installed_plugin.rules:Rule", {}, GROUP) == first
    (package / "neighbour.py").write_text("x = 1\n")
    changed = module_digest("short", {}, GROUP)
    assert changed is not None
    assert changed[1] != first[1]
