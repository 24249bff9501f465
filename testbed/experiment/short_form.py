"""Short forms: ``cnn`` in an experiment file for ``{name: cnn}``.

A field annotated with ``ShortForm`` takes a bare text for a mapping whose other keys all have their
defaults. A field annotated with ``Registered`` takes any algorithm's options: ``name`` selects their
type from the registry. This module must not name an algorithm.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Union

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from testbed.algorithms import ALGORITHMS
from testbed.algorithms.interface import Options


def expand(value: object, key: str = "name") -> object:
    """Turn the short form into the long one; return anything else as it is."""
    return {key: value} if isinstance(value, str) else value


@dataclass(frozen=True)
class ShortForm:
    """Annotation of a field whose mapping may be given by its name alone.

    Attributes:
        names: the names that the field accepts.
        open_ended: True if other texts (a directory) are accepted as well.
        key: the key of the mapping that holds the name.
    """

    names: tuple[str, ...]
    open_ended: bool = False
    key: str = "name"

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(
            partial(expand, key=self.key), handler(source)
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        short: JsonSchemaValue = {"type": "string"}
        short["examples" if self.open_ended else "enum"] = list(self.names)
        return {"anyOf": [short, handler(schema)]}


class Registered(ShortForm):
    """Annotation of a field that takes the options of any algorithm in the registry."""

    def __init__(self) -> None:
        super().__init__(tuple(ALGORITHMS))

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(
            expand, handler.generate_schema(_any_options())
        )


def _any_options() -> Any:
    types = tuple(algorithm.options_type for algorithm in ALGORITHMS.values())
    return Annotated[Union[types], Field(discriminator="name")]  # noqa: UP007 - made at run time


def options_type(name: object) -> type[Options]:
    """Return the options type of the algorithm ``name``; the base type if ``name`` is unknown."""
    algorithm = ALGORITHMS.get(name) if isinstance(name, str) else None
    return algorithm.options_type if algorithm else Options
