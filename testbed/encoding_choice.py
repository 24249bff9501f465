"""The encoding of a run's updates in the experiment file: its options and their short names.

This module has types only and must import neither algorithms nor arrays, so that any module can
import it.
"""

from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

Indices: TypeAlias = Literal["auto", "uint32", "gaps", "rice", "elias-fano", "bitmap", "gap-bytes"]
Values: TypeAlias = Literal["float32", "float16", "bfloat16", "int8"]
Compression: TypeAlias = Literal["none", "zstd"]
Pulls: TypeAlias = Literal["full", "changed"]


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

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        return expand_encoding(value)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        long = handler.resolve_ref_schema(handler(schema))
        return {"anyOf": [{"type": "string", "enum": list(SHORT_NAMES)}, long]}

    @property
    def name(self) -> str:
        """The short name, or the values other than the defaults, e.g. ``rice-bfloat16-zstd``."""
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


SHORT_NAMES: dict[str, dict[str, Any]] = {
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
    """Turn a short name into its mapping; return anything else as it is.

    Raises:
        ValueError: a text that is not a short name.
    """
    if not isinstance(value, str):
        return value
    if value not in SHORT_NAMES:
        raise ValueError(
            f"{value[:60]!r} is not one of {', '.join(SHORT_NAMES)}; or give a mapping, e.g. "
            "{values: float16}"
        )
    return SHORT_NAMES[value]
