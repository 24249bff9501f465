"""The installed modules that an experiment names, and the digests of their code.

The files under ``plugins`` are not among them: the spec has their text.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from testbed import algorithms
from testbed.algorithms import ALGORITHMS
from testbed.durations import laws
from testbed.durations.laws import LAWS
from testbed.experiment.contents import Contents
from testbed.experiment.sections import learning, losses
from testbed.learning.data import choice
from testbed.learning.data.choice import FUNCTIONS
from testbed.plugins.names import is_plugin, module_digest
from testbed.wire import own_encoding

_Path: TypeAlias = tuple[Any, ...]


def _names(contents: Contents) -> Iterator[tuple[_Path, str, Mapping[str, object], str]]:
    """Yield what may be a plug-in: its place, its name, what is built in, and the entry points."""
    yield ("dataset",), contents.dataset.name, FUNCTIONS, choice.ENTRY_POINTS
    yield ("model",), contents.model.name, learning.BUILT_IN, learning.ENTRY_POINTS
    if contents.loss is not None:
        yield ("loss",), contents.loss.name, dict.fromkeys(losses.LOSSES), losses.ENTRY_POINTS
    if contents.evaluation.measure is not None:
        place = ("evaluation", "measure")
        yield place, contents.evaluation.measure.name, {}, losses.ENTRY_POINTS
    if contents.encoding.own is not None:
        yield ("encoding",), contents.encoding.own, {}, own_encoding.ENTRY_POINTS
    for i, options in enumerate(contents.algorithms):
        yield ("algorithms", i), options.name, ALGORITHMS, algorithms.ENTRY_POINTS
        if options.encoding is not None and options.encoding.own is not None:
            own = options.encoding.own
            yield ("algorithms", i, "encoding"), own, {}, own_encoding.ENTRY_POINTS
    sections: list[tuple[_Path, Any]] = [((), contents)]
    sections += [(("devices", "classes", i), one) for i, one in enumerate(contents.devices.classes)]
    for path, section in sections:
        for key in ("compute", "waiting"):
            durations = getattr(section, key)
            if durations is not None:
                yield (*path, key), durations.distribution, LAWS, laws.ENTRY_POINTS


def plugin_modules(contents: Contents) -> dict[str, tuple[_Path, str]]:
    """Return the installed modules by name: where the first of their objects stands, and the digest.

    Raises:
        SpecError: one cannot be imported.
    """
    found: dict[str, tuple[_Path, str]] = {}
    for path, name, built_in, group in _names(contents):
        # Built in are also laws that are no plain ones, such as a trace.
        if not is_plugin(name, built_in, group):
            continue
        module = module_digest(name, built_in, group)
        if module is not None:
            found.setdefault(module[0], (path, module[1]))
    return found


def plugin_digests(contents: Contents) -> dict[str, str]:
    """Return the SHA-256 of the code of each installed module that an experiment names."""
    return {module: digest for module, (_, digest) in plugin_modules(contents).items()}
