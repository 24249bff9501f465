"""Alternatives of a mapping: which one is chosen, and what is refused."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import TypeAdapter, ValidationError

from testbed.algorithms import ALGORITHMS
from testbed.algorithms.interface import Options
from testbed.experiment.alternatives import (
    ChosenByKey,
    ChosenByValue,
    ShortForm,
    alternatives,
    keys,
    tags,
)
from testbed.experiment.sections.section import Section


class Round(Section):
    shape: Literal["circle", "disc"]
    colour: str = "red"
    radius: float = 1.0


class Square(Section):
    shape: Literal["square"]
    colour: str = "red"
    side: float


class Width(Section):
    width: float


class Height(Section):
    height: float


SHAPE: TypeAdapter[Any] = TypeAdapter(
    Annotated[
        Round | Square,
        ChosenByValue("shape", default="circle"),
        ShortForm(("circle", "disc", "square"), key="shape"),
    ]
)
LENGTH: TypeAdapter[Any] = TypeAdapter(Annotated[Width | Height, ChosenByKey("width or height")])


@pytest.mark.parametrize(
    ("value", "chosen"),
    [
        ({}, Round(shape="circle")),
        ("disc", Round(shape="disc")),
        ({"shape": "square", "side": 2}, Square(shape="square", side=2)),
        ({"radius": 2, "side": None}, Round(shape="circle", radius=2)),
        (Square(shape="square", side=2), Square(shape="square", side=2)),
    ],
)
def test_the_value_of_the_first_key_chooses(value: Any, chosen: Section) -> None:
    assert SHAPE.validate_python(value) == chosen


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"side": 2}, "extra_forbidden"),
        ({"colour": None}, "string_type"),  # both have it, so null takes nothing back
        ({"shape": "square", "side": None}, "missing"),
        ("cube", "union_tag_invalid"),
    ],
)
def test_keys_of_other_alternatives_are_refused(value: Any, problem: str) -> None:
    with pytest.raises(ValidationError) as refused:
        SHAPE.validate_python(value)
    assert [error["type"] for error in refused.value.errors()] == [problem]


def test_the_key_chooses_where_each_alternative_has_one() -> None:
    assert LENGTH.validate_python({"height": 3}) == Height(height=3)
    assert LENGTH.validate_python({"height": 3, "width": None}) == Height(height=3)
    assert LENGTH.validate_python(Width(width=1)) == Width(width=1)
    for value in ({}, {"height": 3, "width": 1}, 3, None):
        with pytest.raises(ValidationError, match="width or height"):
            LENGTH.validate_python(value)


def test_the_schema_requires_the_first_key_of_all_but_the_default_alternative() -> None:
    _, mapping = SHAPE.json_schema()["anyOf"]
    union, default = mapping["anyOf"]
    assert len(union["oneOf"]) == 2
    assert default["required"] == []
    assert "radius" in default["properties"]


def test_the_alternatives_of_options_are_those_of_the_registry() -> None:
    models = alternatives(tuple[Options, ...])
    assert [tag for model in models for tag in tags(model)] == list(ALGORITHMS)
    assert all(keys(model)[0] == "name" for model in models)
    assert alternatives(float | None) == ()
