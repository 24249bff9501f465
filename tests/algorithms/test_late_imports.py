"""Modules that algorithms import late are declared: a forked role in a container lacks them."""

import ast
from pathlib import Path

from testbed import algorithms
from testbed.algorithms import ALGORITHMS

LOADED_FOR_EVERY_RUN = {"torch"}


def imported_in_functions(path: Path) -> set[str]:
    """Return the modules that a file's functions import."""
    found: set[str] = set()
    for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Import):
                    found |= {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module == "scipy":
                    found |= {f"scipy.{alias.name}" for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    found.add(str(node.module))
    return found - LOADED_FOR_EVERY_RUN


def test_they_are_loaded_before_a_role_is_forked() -> None:
    (folder,) = algorithms.__path__
    late = set().union(*map(imported_in_functions, Path(folder).rglob("*.py")))
    assert "clarabel" in late
    assert late == {name for one in ALGORITHMS.values() for name in one.imports}
