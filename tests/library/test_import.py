"""``import testbed`` is quick and has no side effects: names are loaded when they are used."""

import json
import subprocess
import sys
from typing import Any

import testbed
from tests.loaded_modules import loaded_by

LOOKED_AT = """
import json, os, signal, sys, threading
before = set(sys.modules)
state = lambda: (os.getcwd(), dict(os.environ), signal.getsignal(signal.SIGINT), sys.path[:],
                 sorted(os.listdir("/proc/self/fd")), threading.active_count())
as_it_was = state()
import testbed
print(json.dumps([sorted(set(sys.modules) - before), state() == as_it_was]))
"""
LIGHT = {"testbed", "testbed.version", "importlib", "typing"}
"""What importing the package may bring, and what these modules of Python's own bring."""


def test_importing_loads_no_other_module_and_changes_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOKED_AT], capture_output=True, text=True, check=True
    )
    loaded, unchanged = json.loads(done.stdout)
    assert done.stderr == ""
    assert {name for name in loaded if name.startswith(("testbed", "traffic", "fastgrad"))} <= LIGHT
    heavy = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names)
    assert heavy - {"testbed"} == set()
    assert unchanged


def test_every_name_is_there_has_a_docstring_and_is_listed() -> None:
    assert set(testbed.__all__) <= set(dir(testbed))
    assert set(testbed.__all__) == {*testbed._MODULES, "__version__"}
    for name in testbed._MODULES:
        value: Any = getattr(testbed, name)
        assert value.__module__ == testbed._MODULES[name]
        assert value.__doc__


def test_results_are_read_without_the_libraries_that_made_them() -> None:
    loaded = loaded_by("import testbed\ntestbed.open_run, testbed.compare")
    assert loaded & {"torch", "matplotlib", "pandas", "plotly", "sklearn", "docker"} == set()
