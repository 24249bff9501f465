"""The experiment file's sections on programs of users: what runs where, in which order, until when."""

import re
from collections.abc import Collection
from typing import Annotated, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_serializer,
    model_validator,
)

from testbed.device_names import may_be_a_device
from testbed.experiment.alternatives import ChosenByKey
from testbed.experiment.sections.faults import OfClass
from testbed.experiment.sections.section import (
    Section,
    SparseSection,
    as_tuple,
    path_in,
)
from testbed.experiment.sections.shared_links import SharedLinkSpec
from testbed.experiment.sections.timing import TRACES
from testbed.network.links import CORE
from testbed.units import Duration, Size

SERVER, WORKERS = "server", "workers"
"""The names of the server's machine, and of all workers together, in `on`."""
HOME = "home"
"""The name of the folder beside those of devices, which no device can have."""
_HOST_NAME = re.compile(r"(?!(0[xX][0-9A-Fa-f]*|[0-9]+)$)[A-Za-z0-9-]{1,63}")
"""A name that a program can look up; a number is an address, before any name is looked up."""


def _texts(value: object) -> object:
    """Turn a text into a list of one, and a list into a tuple."""
    return (value,) if isinstance(value, str) else as_tuple(value)


def _places(value: object) -> object:
    return {"devices": _texts(value)} if isinstance(value, str | list) else value


def existing_path(name: str, info: ValidationInfo) -> str:
    """Return the absolute path of a file or folder beside the experiment file.

    Raises:
        ValueError: there is none.
    """
    folders = info.context
    if not folders:  # a resolved spec, whose paths are absolute and need not be there any more
        return name
    path = path_in(folders[TRACES], name)
    if path is None:
        raise ValueError(f"there is no '{name}' in the experiment file's folder")
    return str(path)


def _check_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"'{text}' is no regular expression: {error}") from None
    return text


Existing: TypeAlias = Annotated[str, Field(min_length=1), AfterValidator(existing_path)]
"""A path, relative to the experiment file's folder, of something that is there."""
Pattern: TypeAlias = Annotated[str, Field(min_length=1), AfterValidator(_check_pattern)]
"""A regular expression, searched for in each line."""
_TEXTS: dict[str, object] = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]
}
Names: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_texts), WithJsonSchema(_TEXTS)]


class OnDevices(Section):
    """Devices by their names."""

    devices: Names = Field(
        min_length=1,
        description="`server`, `workers` (all of them), or names: worker-3, those of `nodes`.",
        examples=[["worker-0", "worker-1"]],
    )

    @model_serializer
    def _short_form(self) -> str | list[str]:
        return self.devices[0] if len(self.devices) == 1 else list(self.devices)


OnSpec: TypeAlias = Annotated[
    OnDevices | OfClass,
    ChosenByKey("must be server, workers, a list of devices, or `{class: NAME}`"),
    BeforeValidator(_places),
    WithJsonSchema(
        {
            "anyOf": [
                *_TEXTS["anyOf"],
                {
                    "type": "object",
                    "properties": {"class": {"type": "string"}},
                    "required": ["class"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
"""The devices on which a program runs."""


class ReadySpec(SparseSection):
    """The sign by which a program is ready, so that those after it start."""

    tcp: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="It listens on this TCP port, where other devices can reach it.",
        examples=[8000],
    )
    output: Pattern | None = Field(
        default=None,
        description="A line of its output matches this regular expression.",
        examples=["server started"],
    )
    file: str | None = Field(
        default=None, min_length=1, description="This file is there; relative to its home."
    )
    command: str | None = Field(
        default=None, min_length=1, description="This command, tried again and again, ends with 0."
    )
    within: Duration = Field(
        default=60.0, gt=0, description="The time that it has, or the run fails; default 60s."
    )

    @model_validator(mode="after")
    def _has_one_sign(self) -> "ReadySpec":
        if sum(getattr(self, key) is not None for key in _SIGNS) != 1:
            raise ValueError(
                f"give it one of {', '.join(_SIGNS)}; for example `ready: {{tcp: 8000}}`"
            )
        return self

    def _written(self) -> Collection[str]:
        return ("within",)


_SIGNS = ("tcp", "output", "file", "command")


class ProgramSpec(SparseSection):
    """A program: its command, the devices that run it, and its life."""

    on: OnSpec = Field(
        description="The devices that run it: server, workers (all of them), a list of names, or "
        "`{class: NAME}`.",
        examples=["workers"],
    )
    run: str | None = Field(
        default=None,
        min_length=1,
        description="The command and its arguments, quoted as for a shell; no shell runs it (`sh -c "
        "'...'` does). {name}, {index}, {count}, {server}, {address}, {run} and {seed} are replaced. "
        "Default (null), for a program with an image: what that starts by itself.",
        examples=["python train.py --rank {index} --world {count}"],
    )
    image: str | None = Field(
        default=None,
        min_length=1,
        description="runtime docker: the image of its container, which the engine has; default (null): "
        "that of `devices`.",
        examples=["flower:1.42"],
    )
    after: Names = Field(
        default=(),
        description="The programs that must be ready before it starts; default: none.",
        examples=["superlink"],
    )
    ready: ReadySpec | None = Field(
        default=None,
        description="How it shows that it is ready: one of tcp, output, file and command; default "
        "(null): it is, once it is started.",
        examples=[{"tcp": 8000}],
    )
    restart: Literal["never", "on-failure", "always"] = Field(
        default="never",
        description="Whether it is started again when it has ended: never (default), on-failure (with "
        "an exit status other than 0), or always; as systemd, five times in ten seconds at most.",
    )
    ends: Literal["run"] | None = Field(
        default=None,
        description="run: the run ends when it has ended. Default (null): the run ends when all "
        "programs have.",
    )
    python: Existing | None = Field(
        default=None,
        description="A virtual environment, whose programs come first; relative to the experiment "
        "file's folder. Default (null): the PATH of `testbed run`.",
        examples=["venvs/flower"],
    )
    environment: dict[str, str] = Field(
        default_factory=dict,
        description="Environment variables of its own, beside those of the whole file; default: none.",
        examples=[{"OMP_NUM_THREADS": "1"}],
    )


class MeasuredSpec(Section):
    """Where the numbers of the curve are: in a program's output, or in a file that it writes."""

    from_: str = Field(
        alias="from",
        min_length=1,
        description="The program that tells of it; of several instances the first one.",
        examples=["job"],
    )
    pattern: Pattern | None = Field(
        default=None,
        description="A regular expression whose named groups find numbers in a line of its output: "
        "accuracy, loss, round, and the `name` of another measure.",
        examples=["accuracy=(?P<accuracy>[0-9.]+)"],
    )
    file: str | None = Field(
        default=None,
        min_length=1,
        description="A file of JSON lines, relative to its home, to which it appends objects with "
        "these keys.",
        examples=["metrics.jsonl"],
    )
    percent: bool = Field(
        default=False,
        description="true: its accuracy is in percent; default false: a fraction from 0 to 1.",
    )
    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=40,
        description="A measure besides accuracy and loss; default (null): none.",
        examples=["perplexity"],
    )
    better: Literal["higher", "lower"] = Field(
        default="lower", description="Which values of `name` are better; default: lower."
    )
    unit: str = Field(default="", max_length=20, description="The unit of `name`; default: none.")

    @model_validator(mode="after")
    def _is_possible(self) -> "MeasuredSpec":
        if (self.pattern is None) == (self.file is None):
            raise ValueError(
                "give it one of pattern and file; for example `pattern: accuracy=(?P<accuracy>[0-9.]+)`"
            )
        if self.name is not None and not re.fullmatch(r"[a-z][a-z0-9_]*", self.name):
            raise ValueError(
                f"'{self.name}' is no name of a column: use lower-case letters and '_'"
            )
        if self.pattern is not None:
            groups = set(re.compile(self.pattern).groupindex)
            wanted = {"accuracy", "loss", *([self.name] if self.name else [])}
            if not groups & wanted:
                raise ValueError(
                    f"the pattern has none of the named groups {', '.join(sorted(wanted))}: write, for "
                    "example, `accuracy=(?P<accuracy>[0-9.]+)`"
                )
        return self

    @model_serializer(mode="wrap")
    def _by_alias(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        data: dict[str, object] = handler(self)
        data = {"from": data.pop("from_", data.pop("from", None)), **data}
        fields = type(self).model_fields
        return {
            key: value
            for key, value in data.items()
            if key == "from" or value != fields[key].default
        }


class LimitsSpec(Section):
    """How long a run may take, and what its programs may write."""

    time: Duration = Field(
        default=3600.0,
        gt=0,
        description="The time after which the run ends, whatever its programs do; default 1h.",
        examples=["30min"],
    )
    stop: Duration = Field(
        default=5.0,
        ge=0,
        description="The time that programs have at the run's end to end by themselves, after SIGTERM; "
        "default 5s.",
    )
    output: Size = Field(
        default=256 * 2**20,
        ge=4096,
        description="Bytes of output that are kept of each program; default 256MiB.",
    )


class NodeSpec(SharedLinkSpec):
    """A machine that is neither the server nor a worker, with its own link to the core."""

    name: str = Field(
        description="Its name: letters, digits and '-'.",
        examples=["client"],
    )

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not _HOST_NAME.fullmatch(name) or name.lower() == "localhost":
            raise ValueError(
                f"'{name[:64]}' cannot be the name of a host: use up to 63 letters, digits and '-', no "
                "number and not localhost"
            )
        if may_be_a_device(name) or name in (CORE, WORKERS, HOME):
            raise ValueError(f"'{name}' is a name of the testbed's own: use another")
        return name
