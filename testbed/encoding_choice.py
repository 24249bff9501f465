"""The encoding of a run's updates in the experiment file: its options and their short names.

This module has types only and must import neither algorithms nor arrays, so that any module can
import it.
"""

from typing import Any, Literal, Self, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

Indices: TypeAlias = Literal["auto", "uint32", "gaps", "rice", "elias-fano", "bitmap", "gap-bytes"]
Values: TypeAlias = Literal["float32", "float16", "bfloat16", "int8"]
Compression: TypeAlias = Literal["none", "zstd"]
Pulls: TypeAlias = Literal["full", "changed"]


_OWN = r"^[\w.]+:[\w.]+$"
"""The name of a class of a user's own."""


class EncodingChoice(BaseModel):
    """The encoding of updates in messages: indices are exact, values are as exact as their type."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    indices: Indices = Field(
        default="auto",
        description="How a sparse update says which parameters it holds. uint32: 4 bytes each; "
        "gaps: distances of fixed width, rice: Golomb-Rice coded distances, elias-fano, bitmap: one "
        "bit per parameter of the model, gap-bytes: distances of a byte, longer ones apart; auto "
        "(default): whichever is shortest, for each update; with zstd, what zstd compresses best; "
        "the first index alone where all follow one another.",
    )
    values: Values = Field(
        default="float32",
        description="Type of the values: float32 (default; exact), float16, bfloat16, or int8 in "
        "blocks of 64 with a scale each.",
    )
    compression: Compression = Field(
        default="none",
        description="zstd: compress indices and values, where that makes them shorter; none "
        "(default).",
    )
    level: int = Field(
        default=3, ge=1, le=22, description="zstd's level, from 1 (fastest) to 22; default 3."
    )
    own: str | None = Field(
        default=None,
        pattern=_OWN,
        description="A class of your own in place of all that, as `module:Class` (docs/encodings.md); "
        "by default none.",
        examples=["ternary:Ternary"],
    )
    options: dict[str, object] = Field(
        default_factory=dict, description="Further arguments of the class; by default none."
    )

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        return expand_encoding(value)

    @model_validator(mode="after")
    def _own_or_built_in(self) -> Self:
        others = sorted(self.model_fields_set - {"own", "options"})
        if self.own is not None and others:
            raise ValueError(f"own is a whole encoding: leave out {', '.join(others)}")
        if self.own is None and self.options:
            raise ValueError("options are arguments of an encoding of your own: name it by own")
        return self

    @model_serializer(mode="wrap")
    def _what_it_has(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        found: dict[str, object] = handler(self)
        its_own = ("own", "options")
        return {k: v for k, v in found.items() if (k in its_own) == (self.own is not None)}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        long = handler.resolve_ref_schema(handler(schema))
        own = {"type": "string", "pattern": _OWN}
        return {"anyOf": [{"type": "string", "enum": list(SHORT_NAMES)}, own, long]}

    def __hash__(self) -> int:
        """Return the same for equal choices; a mapping of options has no hash of its own."""
        return hash(self.model_dump_json())

    @property
    def name(self) -> str:
        """The short name, or the values other than the defaults, e.g. ``rice-bfloat16-zstd``.

        Of an encoding of one's own, the name of its class.
        """
        if self.own is not None:
            return self.own.rpartition(":")[2]
        for name, fields in SHORT_NAMES.items():
            if EncodingChoice.model_validate(fields) == self:
                return name
        parts: list[str] = [] if self.indices == "auto" else [self.indices]
        if self.values != "float32":
            parts.append(self.values)
        if self.compression == "zstd":
            parts.append("zstd" if self.level == 3 else f"zstd{self.level}")
        # Without compression the level has no effect: a choice that sets only the level is the default.
        return "-".join(parts) or "compact"


SHORT_NAMES: dict[str, dict[str, object]] = {
    "plain": {"indices": "uint32"},
    "compact": {},
    "compact-16": {"values": "float16"},
    "compact-8": {"values": "int8"},
    "compact-zstd": {"compression": "zstd"},
    "compact-16-zstd": {"values": "float16", "compression": "zstd"},
    "compact-8-zstd": {"values": "int8", "compression": "zstd"},
}
"""The short names, each with the keys of ``EncodingChoice`` that it stands for."""


def expand_encoding(value: Any) -> Any:
    """Turn a short name, or the name of a class, into its mapping; return anything else as it is.

    Raises:
        ValueError: a text that is neither.
    """
    if not isinstance(value, str):
        return value
    if ":" in value:
        return {"own": value}
    if value not in SHORT_NAMES:
        raise ValueError(
            f"{value[:60]!r} is not one of {', '.join(SHORT_NAMES)}; or give a mapping, e.g. "
            "{values: float16}, or a class of your own as `module:Class`"
        )
    return SHORT_NAMES[value]
