"""YAML with line numbers: the same data as PyYAML, without YAML 1.1's traps."""

import math

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import SpecError
from testbed.experiment.document import KeyPath, parse

TEXT = """\
# a comment
name: x
training: {batch_size: 10,
  learning_rate: 0.1,
  updates: 5}
algorithms:
  - asgd
  - {name: adacomp,
     ratio: 0.1}
  -
    name: comp-asgd
    ratio:
      0.5
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ((), 2),
        (("name",), 2),
        (("training",), 3),
        (("training", "learning_rate"), 4),
        (("training", "updates"), 5),
        (("algorithms", 0), 7),
        (("algorithms", 1, "name"), 8),
        (("algorithms", 1, "ratio"), 9),
        (("algorithms", 2, "name"), 11),
        (("algorithms", 2, "ratio"), 12),
        (("training", "nothing"), 3),
        (("algorithms", 9), 6),
        (("nothing", "below"), 2),
    ],
)
def test_each_path_has_its_line_and_a_missing_one_its_parent_s(path: KeyPath, line: int) -> None:
    assert parse(TEXT, "f").line(path) == line


def test_the_data_equal_those_of_safe_load() -> None:
    document = parse(TEXT, "f")
    assert document.data == yaml.safe_load(TEXT)
    assert document.has(("algorithms", 1, "ratio"))
    assert not document.has(("algorithms", 0, "ratio"))
    assert document.problems == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E5", 1e5),
        ("1.5e3", 1500.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("10_000", 10_000),
        ("-3", -3),
        ("0", 0),
        (".inf", math.inf),
        ("on", "on"),
        ("No", "No"),
        ("10:30", "10:30"),
        ("012", "012"),
        ("0x10", "0x10"),
        ("2024-01-02", "2024-01-02"),
        ("true", True),
        ("'1'", "1"),
        ("~", None),
        ("", None),
        ("!!str 5", "5"),
        ("!!float 5", 5.0),
        ("=", "="),
    ],
)
def test_scalars_are_typed_without_the_traps_of_yaml_1_1(text: str, value: object) -> None:
    read = parse(f"a: {text}", "f").data["a"]
    assert read == value
    assert type(read) is type(value)


def test_anchors_and_merges_are_resolved_and_keep_their_lines() -> None:
    document = parse(
        "a: &x\n  b: 1\n  c: 2\nd:\n  <<: *x\n  c: 3\ne: *x\nf: {<<: [*x, {g: 4}]}", "f"
    )
    assert document.data == {
        "a": {"b": 1, "c": 2},
        "d": {"b": 1, "c": 3},
        "e": {"b": 1, "c": 2},
        "f": {"b": 1, "c": 2, "g": 4},
    }
    assert document.line(("d", "b")) == 2
    assert document.line(("d", "c")) == 6
    assert document.line(("e", "c")) == 3
    assert document.line(("f", "g")) == 8


def test_aliases_of_aliases_are_not_copied() -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 60)]
    assert len(parse("\n".join(lines), "f").data) == 60


def test_duplicate_keys_are_problems_at_every_depth() -> None:
    document = parse("a: 1\nb: {c: 1,\n d: [{e: 1, e: 2}], c: 3}\na: 2\na: 3", "f")
    assert [(path, line) for path, line, _ in document.problems] == [
        (("b", "d", 0, "e"), 3),
        (("b", "c"), 3),
        (("a",), 4),
        (("a",), 5),
    ]
    assert all(
        "given twice, first in line 1" in text for p, _, text in document.problems if p == ("a",)
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1,\n b: 2", "f:2: is not valid YAML: while parsing a flow"),
        ("a: 1\nb: c: d", "f:2: is not valid YAML: mapping values are not allowed here"),
        ("a:\n\tb: 1", r"f:2: .*tabs"),
        ("a: *nothing", "f:1: is not valid YAML: found undefined alias"),
        ("a: 1\n---\nb: 1", "f:2: is not valid YAML: expected a single document"),
        ("a: 1\nb: &x [1, *x]", "f:2: an anchor contains itself"),
        (
            "a: 1\nb: !!python/object:os.system x",
            "f:2: the tag !!python/object:os.system is of no use",
        ),
        ("a: !mine 3", "f:1: the tag !mine is of no use"),
        ("a: !!int x", "f:1: the tag !!int is of no use"),
        ("a: !!set {x, y}", "f:1: the tag !!set is of no use"),
        ("a: 1\n2: b", "f:2: the key 2 is not a name"),
        ("[a]: b", "f:1: the key ... is not a name"),
        ("a: 1\n<<: 3", "f:2: '<<' merges mappings only"),
        ("a: \x01", r"f:1: is not text: it has the character U\+0001"),
        ("[" * 5000, "f: is nested too deeply"),
    ],
)
def test_unreadable_text_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said) as caught:
        parse(text, "f")
    assert "\n" not in str(caught.value)


@settings(deadline=None)  # the host may be busy
@given(st.text(alphabet="ab: -[]{}&*<'\"\n\t#!,1.e?|>%@", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        document = parse(text, "f")
    except SpecError as error:
        assert str(error).startswith("f:")
    else:
        assert document.line(("a", 0)) >= 1
