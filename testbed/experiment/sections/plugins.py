"""The experiment file's plug-ins: source files with algorithms and other code of one's own.

The files are read and executed when the experiment file is checked, because its algorithms may be in
them. The spec holds what they say: a device in a container and a resumed run need no file.
"""

import os
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from testbed.errors import SpecError
from testbed.experiment.sections.section import Section
from testbed.experiment.sections.timing import TRACES, file_beside
from testbed.plugins.source_files import PluginSource, install
from testbed.untrusted_text import open_file

_LARGEST = 1 << 20
"""The largest source file in bytes: its text is in every run's spec, and is sent to every device."""


class PluginSpec(Section):
    """A Python file whose code the experiment uses."""

    file: Annotated[str, AfterValidator(file_beside)] = Field(
        description="The file, relative to the experiment file's folder; `rules.py` is the module "
        "`rules`, and an algorithm in it is named `rules:Momentum`.",
        examples=["rules.py"],
    )
    content: str | None = Field(
        default=None,
        description="What the file said when the experiment was begun; written into a run's spec, and "
        "read anew where the file is given beside an experiment file.",
    )

    @model_validator(mode="after")
    def _read(self, info: ValidationInfo) -> "PluginSpec":
        path = Path(self.file)
        if path.suffix != ".py" or not path.stem.isidentifier():
            raise ValueError(f"'{path.name}' is no Python module: name it as rules.py is")
        if self.content is None or TRACES in (info.context or {}):
            object.__setattr__(self, "content", _text(path))
        try:
            install([self.source])
        except SpecError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def has_changed(self) -> bool:
        """True if the file can be read, and says something else than the spec has of it."""
        try:
            return _text(Path(self.file)) != self.content
        except ValueError:
            return False

    @property
    def source(self) -> PluginSource:
        """The file as a module to install."""
        assert self.content is not None
        return PluginSource(Path(self.file).stem, self.content)


def of_several_names(plugins: tuple[PluginSpec, ...]) -> tuple[PluginSpec, ...]:
    """Return plug-ins' files, of which two may have one name only if they say the same."""
    files: dict[str, PluginSpec] = {}
    for one in plugins:
        other = files.setdefault(one.source.module, one)
        if other.content != one.content:
            raise ValueError(
                f"'{other.file}' and '{one.file}' would both be the module {one.source.module}, and "
                "only one of them can: give one another name"
            )
    return plugins


def _text(path: Path) -> str:
    try:
        with os.fdopen(open_file(path, follow=True), encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_size > _LARGEST:
                raise ValueError(f"{path} is larger than 1 MiB: a plug-in's file has code only")
            return file.read()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None
