import importlib
import sys
import traceback
from collections.abc import Iterator

import pytest

from testbed.errors import SpecError
from testbed.plugins.source_files import PluginSource, install


@pytest.fixture
def name() -> Iterator[str]:
    name = "plugin_of_a_test"
    yield name
    sys.modules.pop(name, None)


def test_a_source_is_imported_by_its_name(name: str) -> None:
    install([PluginSource(name, "answer = 42")])
    assert importlib.import_module(name).answer == 42


def test_the_same_text_is_executed_once_and_another_text_replaces_it(name: str) -> None:
    install([PluginSource(name, "values = []")])
    importlib.import_module(name).values.append(1)
    install([PluginSource(name, "values = []")])
    assert importlib.import_module(name).values == [1]
    install([PluginSource(name, "values = ['new']")])
    assert importlib.import_module(name).values == ["new"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1\nb = nothing\n", r"^plugin_of_a_test\.py, line 2: NameError: name 'nothing'"),
        ("a = 1\n\ndef\n", r"^plugin_of_a_test\.py, line 3: SyntaxError"),
        ("import no_such_module", r"line 1: ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_what_cannot_be_executed_is_named_with_its_line(name: str, text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        install([PluginSource(name, text)])
    assert name not in sys.modules


def test_a_broken_text_leaves_the_one_before(name: str) -> None:
    install([PluginSource(name, "answer = 42")])
    with pytest.raises(SpecError):
        install([PluginSource(name, "answer =")])
    assert importlib.import_module(name).answer == 42


@pytest.mark.parametrize("taken", ["numpy", "json", "testbed"])
def test_a_file_does_not_hide_an_installed_module(taken: str) -> None:
    before = importlib.import_module(taken)
    with pytest.raises(SpecError, match=f"'{taken}' is the name of an installed module"):
        install([PluginSource(taken, "")])
    assert sys.modules[taken] is before


def test_tracebacks_show_the_lines_of_the_source(name: str) -> None:
    install([PluginSource(name, "def fails():\n    raise ValueError('here')\n")])
    with pytest.raises(ValueError, match="here") as raised:
        importlib.import_module(name).fails()
    assert "raise ValueError('here')" in "".join(traceback.format_exception(raised.value))
