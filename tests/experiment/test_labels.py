"""Labels tell the algorithms of a file apart and are valid names of folders."""

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from testbed.algorithms import ALGORITHMS
from testbed.algorithms.interface import Options
from testbed.experiment.labels import check_name, labels


class Many(Options):
    """Options of every type that an algorithm could have."""

    name: Literal["many"] = "many"
    rate: float = 0.5
    count: int | None = None
    window: int = Field(default=5, repr=False)
    nesterov: bool = False
    warm: bool = True
    law: str = "wide"
    parts: tuple[int, ...] = ()


def make(name: str, **options: object) -> Options:
    return ALGORITHMS[name].options_type.model_validate({"name": name, **options})


def test_a_label_is_the_name_and_the_options_that_tell_it_apart() -> None:
    algorithms = [
        make("asgd"),
        make("adacomp"),
        make("adacomp", ratio=0.1),
        make("comp-asgd", ratio=1, scope="tensor"),
        make("adacomp", error_feedback=True, error_decay=0.5),
        make("adacomp", error_feedback=True, momentum=0.5),
        make("adam", epsilon=1e20),
        Many(),
        Many(rate=1e-5, count=3, window=7, nesterov=True, warm=False, law="a b/c", parts=(1,)),
    ]
    assert labels(algorithms) == (
        "asgd",
        "adacomp-0.01",
        "adacomp-0.1",
        "comp-asgd-1-tensor",
        "adacomp-0.01-error_feedback-error_decay-0.5",
        "adacomp-0.01-error_feedback-momentum-0.5",
        "adam-epsilon-1e20",
        "many-0.5",
        "many-1e-05-count-3-window-7-nesterov-no-warm-a-b-c-parts",
    )


def test_a_label_in_the_file_is_kept_and_generated_ones_avoid_it() -> None:
    algorithms = [make("asgd"), make("asgd"), make("adacomp", label="asgd-2"), make("asgd")]
    assert labels(algorithms) == ("asgd", "asgd-3", "asgd-2", "asgd-4")


@given(st.lists(st.sampled_from(sorted(ALGORITHMS)), max_size=8))
def test_labels_are_unique_folder_names(names: list[str]) -> None:
    made = labels([make(name) for name in names])
    assert len(set(made)) == len(names)
    assert [check_name(label) for label in made] == list(made)


@pytest.mark.parametrize("name", ["", ".", "..", "-x", ".x", "a/b", "a b", "é", "a\n", "x" * 101])
def test_a_name_that_cannot_be_a_folder_s_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be a folder's name"):
        check_name(name)
