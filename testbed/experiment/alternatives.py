"""Fields of an experiment file that may be written in several ways.

- A short form: ``cnn`` for ``{name: cnn}``, a mapping whose other keys have their defaults.
- Alternatives: several sections, each with exactly its own keys. The first field of each chooses it, by
  its value (``distribution: gamma``), or by its key where an alternative has no other
  (``when: {time: 20s}``).

This module must not name an algorithm: the alternatives of ``Options`` are those of the registry.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from testbed.algorithms import ALGORITHMS
from testbed.algorithms.interface import Options
from testbed.errors import SpecError

OWN: JsonSchemaValue = {
    "type": "string",
    "pattern": r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$",
    "examples": ["rules:Momentum"],
}
"""The JSON schema of the name of something in a module of one's own."""


def expand(value: object, key: str = "name") -> object:
    """Turn the short form into the long one; return anything else as it is."""
    return {key: value} if isinstance(value, str) else value


def alternatives(annotation: Any) -> tuple[type[BaseModel], ...]:
    """Return the models of the mappings that a field, or an item of its list, may have."""
    if annotation is Options:
        return tuple(algorithm.options_type for algorithm in ALGORITHMS.values())
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    return tuple(chain.from_iterable(map(alternatives, get_args(annotation))))


def keys(model: type[BaseModel]) -> list[str]:
    """Return the keys of a mapping, as the file writes them."""
    return [field.alias or name for name, field in model.model_fields.items()]


def tags(model: type[BaseModel]) -> tuple[str, ...]:
    """Return the values of a model's first field by which it is chosen; none if any value will do."""
    first = next(iter(model.model_fields.values())).annotation
    return get_args(first) if get_origin(first) is Literal else ()


@dataclass(frozen=True)
class ShortForm:
    """Annotation of a field whose mapping may be given by its name alone.

    Attributes:
        names: the names that the field accepts.
        open_ended: True if other texts (a directory) are accepted as well.
        key: the key of the mapping that holds the name.
        own: True if ``module:name`` is accepted as well, for code of one's own.
    """

    names: tuple[str, ...]
    open_ended: bool = False
    key: str = "name"
    own: bool = False

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
        if self.names:
            short["examples" if self.open_ended else "enum"] = list(self.names)
        own = [OWN] if self.own else []
        return {"anyOf": [short, *own, handler(schema)]}


def _without_nulls(value: Any, options: Collection[str]) -> Any:
    """Leave out the options that are null: ``--set compute.alpha=null`` takes back the file's."""
    if not isinstance(value, Mapping):
        return value
    return {key: own for key, own in value.items() if own is not None or key not in options}


@dataclass(frozen=True)
class ChosenByValue:
    """Annotation of a field whose alternatives are chosen by the value of one key.

    A key that only one of them has may be null, which counts as left out, also with the others.

    Attributes:
        key: the first key of every alternative.
        default: the value where the key is left out; None: it must be given.
    """

    key: str
    default: str | None = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        models = alternatives(source)
        # An algorithm's options say for themselves what null means.
        times = Counter(
            chain.from_iterable(keys(model) for model in models if not issubclass(model, Options))
        )
        options = {key for key, count in times.items() if count == 1}

        def complete(value: Any) -> Any:
            value = _without_nulls(value, options)
            if self.default is None or not isinstance(value, Mapping):
                return value
            return {self.key: self.default} | dict(value)

        choices = {tag: handler.generate_schema(model) for model in models for tag in tags(model)}
        return core_schema.no_info_before_validator_function(
            complete, core_schema.tagged_union_schema(choices, discriminator=self.key)
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        union = handler(schema)
        if self.default is None:
            return union
        reference = {"$ref": union["discriminator"]["mapping"][self.default]}
        by_default = handler.resolve_ref_schema(reference)
        required = [key for key in by_default.get("required", ()) if key != self.key]
        return {"anyOf": [union, by_default | {"required": required}]}


@dataclass(frozen=True)
class OrOwn:
    """Annotation of a field whose mapping may be about code of one's own instead.

    Attributes:
        key: the key of its name.
        model: returns the model of a plug-in's mapping, or None if the name is built in or that of
            nothing; raises SpecError if the plug-in cannot be used.
        also: those of its models that are built in, for the JSON schema.
    """

    key: str
    model: Callable[[str], type[BaseModel] | None]
    also: tuple[type[BaseModel], ...] = ()

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.with_info_wrap_validator_function(
            self._validate,
            handler(source),
            # The schema knows how to write what is built in only.
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value, info: None if value is None else value.model_dump(mode=info.mode),
                info_arg=True,
            ),
        )

    def _validate(
        self,
        value: Any,
        validate: core_schema.ValidatorFunctionWrapHandler,
        info: core_schema.ValidationInfo,
    ) -> Any:
        is_mapping = isinstance(value, Mapping)
        name = value.get(self.key) if is_mapping else getattr(value, self.key, None)
        if not isinstance(name, str):
            return validate(value)
        try:
            model = self.model(name)
        except SpecError as error:
            raise ValueError(str(error)) from None
        if model is None:
            return validate(value)
        # Its errors have no step for what chose the model: ``problems`` looks that up.
        return model.model_validate(value, strict=True, context=info.context)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        own = {"type": "object", "properties": {self.key: OWN}, "required": [self.key]}
        also = [handler(model.__pydantic_core_schema__) for model in self.also]
        return {"anyOf": [handler(schema), *also, own]}


@dataclass(frozen=True)
class ChosenByKey:
    """Annotation of a field whose alternatives have one key each, of which exactly one is given.

    A key that is null counts as left out.

    Attributes:
        message: the error if none is given, or several.
    """

    message: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        models = {keys(model)[0]: model for model in alternatives(source)}

        def choose(value: Any) -> str | None:
            if isinstance(value, BaseModel):
                return keys(type(value))[0]
            given = [key for key in models if isinstance(value, Mapping) and key in value]
            return given[0] if len(given) == 1 else None

        choices = {key: handler.generate_schema(model) for key, model in models.items()}
        return core_schema.no_info_before_validator_function(
            partial(_without_nulls, options=models),
            core_schema.tagged_union_schema(
                choices,
                discriminator=choose,
                custom_error_type="not_one_key",
                custom_error_message=self.message,
            ),
        )
