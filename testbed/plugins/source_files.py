"""Source files of plug-ins, as importable modules.

The text of a file travels with the run's settings and its spec, so that a device in a container, a
process on another host and a resumed run have the same code as the process that read the file.
"""

import hashlib
import importlib.machinery
import importlib.util
import linecache
import sys
import sysconfig
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from testbed.errors import SpecError
from testbed.plugins.names import said

_INSTALLED: dict[str, str] = {}
"""The text of each module that was made here, as global as ``sys.modules`` is."""


@dataclass(frozen=True, slots=True)
class PluginSource:
    """One source file.

    Attributes:
        module: the name by which it is imported: the file's without its suffix.
        text: what the file says.
    """

    module: str
    text: str

    @property
    def digest(self) -> str:
        """The SHA-256 of the text, hexadecimal."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def install(sources: Iterable[PluginSource]) -> None:
    """Make source files importable; one that is installed with the same text already stays as it is.

    Raises:
        SpecError: the name of a file is that of another module, or its code cannot be executed.
    """
    for source in sources:
        is_there = source.module in _INSTALLED and source.module in sys.modules
        if is_there and _INSTALLED[source.module] == source.text:
            continue
        if not is_there and _is_taken(source.module):
            raise SpecError(
                f"'{source.module}' is the name of an installed module: give the plug-in's file another"
            )
        _execute(source)


def _is_taken(module: str) -> bool:
    """Return True if a module is imported, or installed; a file of the current folder is neither."""
    if module in sys.modules:
        return True
    found = importlib.util.find_spec(module)
    if found is None:
        return False
    if not found.has_location or found.origin is None:
        return True
    return any(Path(found.origin).is_relative_to(path) for path in sysconfig.get_paths().values())


def _execute(source: PluginSource) -> None:
    # No path: there may be a file of this name in the current folder, which may say something else.
    file = f"<plug-in>/{source.module}.py"
    module = ModuleType(source.module)
    module.__file__ = file
    module.__spec__ = importlib.machinery.ModuleSpec(source.module, None, origin=file)
    # Tracebacks show the lines of a file that may not be there.
    linecache.cache[file] = (len(source.text), None, source.text.splitlines(keepends=True), file)
    before = sys.modules.get(source.module)
    sys.modules[source.module] = module
    try:
        exec(compile(source.text, file, "exec"), module.__dict__)
    except BaseException as error:
        if before is None:
            del sys.modules[source.module]
        else:
            sys.modules[source.module] = before
        if isinstance(error, KeyboardInterrupt):
            raise
        raise SpecError(f"{source.module}.py{_line(error, file)}: {said(error)}") from error
    _INSTALLED[source.module] = source.text


def _line(error: BaseException, file: str) -> str:
    """Return ``, line N`` for the last line of the file that led to an error."""
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}" if error.lineno else ""
    lines = [
        one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == file
    ]
    return f", line {lines[-1]}" if lines else ""
