"""Find what a name in an experiment file stands for: something built in, or a plug-in."""

import hashlib
import importlib
import inspect
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from testbed.errors import SpecError, TestbedError


def find(name: str, built_in: Mapping[str, Any], group: str) -> Any:
    """Return the object that a name stands for.

    Args:
        built_in: the objects that have names of their own.
        group: the entry points of installed packages, for example ``testbed.algorithms``.

    Raises:
        SpecError: there is no such object, or its module cannot be imported.
    """
    if name in built_in:
        return built_in[name]
    path = _path(name, group)
    if path is None:
        raise SpecError(
            f"there is no '{name}': it is none of {', '.join(built_in)}, and no installed package has "
            f"an entry point of this name in the group {group}; code of your own is `module:name`"
        )
    module, _, attribute = path.partition(":")
    _check_allowed(name, module)
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise SpecError(
            f"'{name}': the module {module} cannot be imported: {said(error)}; list a file beside the "
            "experiment under `plugins`, or install the package"
        ) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # What an own module raises while it is imported is as much a mistake in it as a wrong name.
        raise SpecError(
            f"'{name}': the module {module} cannot be imported: {said(error)}"
        ) from error
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise SpecError(f"'{name}': the module {module} has no '{attribute}'") from None
        # `package:os.system` is as little the package's as `os:system` is.
        if isinstance(found, ModuleType):
            _check_allowed(name, found.__name__)
        elif inspect.isroutine(found) or inspect.isclass(found):
            _check_allowed(name, found.__module__ or module)
    return found


def _check_allowed(name: str, module: str) -> None:
    """Check that a module may have plug-ins: it is no part of Python itself.

    Raises:
        SpecError: it is.
    """
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top == "__main__":
        raise SpecError(
            f"'{name}': {top} is a part of Python, and an experiment file may name only what is in a "
            "file under `plugins` or in a package that is installed: write a function of your own"
        )


_SENT = "place_in_plugin"
"""The attribute of an error from another process that has its nearest place."""


def place_of(error: BaseException) -> str | None:
    """Return the file and line of a plug-in's file that raised an error; None if other code did.

    What torch raises may be the fault of the data: a layer that does not take them.
    """
    frames = traceback.extract_tb(error.__traceback__)
    return _place(frames[-1]) if frames else None


def _place(frame: traceback.FrameSummary) -> str | None:
    if "<plug-in>" not in frame.filename:
        return None
    return f"{Path(frame.filename).name}, line {frame.lineno}"


def nearest_place(error: BaseException) -> str | None:
    """Return the last file and line of a plug-in's file that led to an error; None if none did."""
    places = map(_place, reversed(traceback.extract_tb(error.__traceback__)))
    return next(filter(None, places), getattr(error, _SENT, None))


def send_place(error: BaseException, place: str | None) -> None:
    """Let an error tell its ``nearest_place`` in a process that it is sent to without its frames."""
    setattr(error, _SENT, place)


def said_with_place(error: BaseException) -> str:
    """Return what ``said`` does, after the nearest place in a plug-in's file, if there is one."""
    place = nearest_place(error)
    return said(error) if place is None else f"{place}: {said(error)}"


def said(error: BaseException) -> str:
    """Return the kind of an error and its text, which code of users may be unable to give."""
    try:
        text = str(error)
    except BaseException as other:  # of a plug-in's class anything may come
        text = f"(its text cannot be had: {type(other).__name__})"
    return f"{type(error).__name__}: {text}"


@contextmanager
def failures_of(what: str) -> Iterator[None]:
    """Turn what a plug-in raises in the body into a ``SpecError`` with its place; our own errors pass.

    Args:
        what: the plug-in, with which the text begins.
    """
    try:
        yield
    except (TestbedError, KeyboardInterrupt):
        raise
    except BaseException as error:  # of a plug-in anything may come, SystemExit too
        place = nearest_place(error)
        where = "" if place is None else f", {place}"
        raise SpecError(f"{what} fails{where}: {said(error)}") from error


def check_complete(name: str, found: type, needed: Iterable[str] = ()) -> None:
    """Check that a class which a name stands for has all that it must.

    Args:
        needed: functions that must be others than those of the last of its bases that has them.

    Raises:
        SpecError: it is abstract, or lacks a function.
    """
    missing = {*getattr(found, "__abstractmethods__", ())}
    for function in needed:
        base = next(one for one in reversed(found.__mro__) if function in vars(one))
        if getattr(found, function) is getattr(base, function):
            missing.add(function)
    if missing:
        raise SpecError(f"'{name}' is not complete: it has no {', '.join(sorted(missing))}")


def is_plugin(name: str, built_in: Mapping[str, Any], group: str) -> bool:
    """Return True if a name is that of a plug-in, whether it can be imported or not."""
    return name not in built_in and _path(name, group) is not None


def _path(name: str, group: str) -> str | None:
    """Return the module and the attribute of a plug-in; None if the name is none."""
    if ":" in name and "/" not in name:  # a path may have a colon
        return name
    points = _installed(group, tuple(sys.path)).select(name=name)
    return next((point.value for point in points), None)


@cache
def _installed(group: str, path: tuple[str, ...]) -> EntryPoints:
    """Return the entry points of a group that the packages on a search path have.

    They are read once: a specification looks up several names, and reading takes four fifths of the
    time of checking it.
    """
    return entry_points(group=group)


def module_digest(name: str, built_in: Mapping[str, Any], group: str) -> tuple[str, str] | None:
    """Return the module of a plug-in and the SHA-256 of its code; None of what is built in.

    The code is that of the module's package, if it is in one: a plug-in may import its neighbours.
    """
    path = None if name in built_in else _path(name, group)
    if path is None:
        return None
    find(name, built_in, group)
    top = path.partition(":")[0].partition(".")[0]
    file = getattr(sys.modules[top], "__file__", None)
    if file is None or not Path(file).is_file():
        return None  # a file of the experiment, whose text is in the spec
    code = Path(file)
    files = sorted(code.parent.rglob("*.py")) if code.name == "__init__.py" else [code]
    digest = hashlib.sha256()
    for one in files:
        content = one.read_bytes()
        digest.update(f"{one.relative_to(code.parent).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return top, digest.hexdigest()
