"""The pydantic models of an experiment: defaults, refusals, and one spec for each run."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from testbed.algorithms import ALGORITHMS, has
from testbed.experiment.alternatives import alternatives, tags
from testbed.experiment.sections.datasets import DatasetSpec
from testbed.experiment.spec import Spec
from testbed.network.links import Shape

SMALLEST: dict[str, Any] = {
    "name": "small",
    "dataset": "digits",
    "model": "cnn",
    "training": {"updates": 10},
    "algorithms": ["asgd"],
    "devices": {"workers": 4},
}


def make(**changes: Any) -> Spec:
    return Spec.model_validate(SMALLEST | changes, strict=True)


def test_a_small_spec_has_the_documented_defaults() -> None:
    spec = make()
    assert spec.seed == 1
    assert (spec.dataset.name, spec.dataset.scaling) == ("digits", "standardised")
    assert spec.dataset.train_images is None
    assert (spec.model.name, spec.model.initialisation) == ("cnn", "paper")
    assert (spec.training.batch_size, spec.training.learning_rate) == (10, 0.1)
    assert spec.devices.runtime == "namespaces"
    assert (spec.network.uplink, spec.network.downlink) == (None, None)
    assert spec.link_of(None).first_shapes() == (Shape(), Shape())
    assert spec.waiting.model_dump() == {"distribution": "exponential", "mean": 0}
    assert (spec.evaluation.every, spec.evaluation.images) == (100, None)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_name_of_an_algorithm_alone_means_its_defaults(name: str) -> None:
    how: dict[str, Any] = {}
    if has(name, "aggregator"):
        how = {
            "network": {"clusters": [{"name": "all", "number": 4}]},
            "engine": "simulation",
            "clock": "virtual",
            "compute": {"distribution": "constant", "mean": "1s"},
        }
    short, long = (make(algorithms=[one], **how) for one in (name, {"name": name}))
    assert short == long
    assert type(short.algorithms[0]) is ALGORITHMS[name].options_type


def test_a_spec_is_frozen_and_its_dump_makes_an_equal_one() -> None:
    spec = make(network={"uplink": "10mbit", "loss": "1%"}, waiting={"mean": "50ms"})
    with pytest.raises(ValidationError, match="frozen"):
        spec.training.updates = 3
    assert spec.network.uplink == 10_000_000
    assert Spec.model_validate(spec.model_dump(mode="json")) == spec


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": -1},
        {"seed": 2**63},
        {"seed": 1.0},
        {"seed": True},
        {"name": "../up"},
        {"dataset": {"name": "digits", "train_images": 3}},
        {"model": "resnet"},
        {"training": {"updates": 0}},
        {"training": {"updates": 1, "batch_size": 0}},
        {"training": {"updates": 1, "learning_rate": 0}},
        {"training": {"updates": 1, "learning_rate": float("inf")}},
        {"training": {"updates": 1, "learning_rate": "0.1"}},
        {"algorithms": []},
        {"algorithms": "asgd"},
        {"algorithms": [{"name": "adacomp", "ratio": 0}]},
        {"algorithms": [{"name": "adacomp", "ratio": True}]},
        {"algorithms": [{"name": "asgd", "ratio": 0.1}]},
        {"algorithms": [{"name": "asgd", "label": "a/b"}]},
        {"algorithms": [{"name": "asgd", "label": "figures"}]},
        {"algorithms": [{"name": "asgd", "label": "x"}, {"name": "adacomp", "label": "x"}]},
        {"devices": {"workers": 0}},
        {"network": {"uplink": 0}},
        {"network": {"loss": 1}},
        {"waiting": {"distribution": "gama"}},
        {"waiting": {"distribution": "gamma"}},
        {"compute": {"mean": -1}},
        {"evaluation": {"every": 0}},
        {"evaluation": {"images": 0}},
    ],
)
def test_an_impossible_value_is_refused_at_its_key(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        make(**changes)
    for error in caught.value.errors():
        assert error["type"] == "conflict" or error["loc"][0] in changes


def test_evaluations_may_be_further_apart_than_the_run_is_long() -> None:
    assert make(evaluation={"every": 1000}).evaluation.every == 1000


def test_only_synchronous_runs_suspect_silent_workers_by_default() -> None:
    names = ["asgd", "sync-sgd"]

    def found(**devices: Any) -> list[float | None]:
        spec = make(algorithms=names, devices={"workers": 4} | devices)
        again = Spec.model_validate(spec.model_dump(mode="json"))
        values = [one.suspect_after(one.algorithms[0]) for one in spec.runs().values()]
        assert [one.suspect_after(one.algorithms[0]) for one in again.runs().values()] == values
        return values

    assert found() == [None, 30]
    assert found(suspect_after="2min") == [120, 120]
    assert found(suspect_after=None) == [None, None]
    with pytest.raises(ValidationError, match="suspect_after"):
        make(devices={"workers": 4, "suspect_after": 0})
    peers = make(algorithms=["all-to-all"], devices={"workers": 4, "suspect_after": "1s"})
    assert peers.suspect_after(peers.algorithms[0]) == 1
    assert make(algorithms=["all-to-all"]).suspect_after(make().algorithms[0]) is None


def test_checkpoints_need_a_server_and_a_killed_server_needs_them() -> None:
    simulated = {
        "engine": "simulation",
        "waiting": {"distribution": "constant", "mean": "1s"},
        "checkpoints": {"every": 10},
    }
    killed = {"faults": [{"who": "server", "how": "kill", "when": {"iteration": 5}}]}
    emulated = simulated | killed | {"engine": "emulation", "clock": "virtual"}
    feedback = {"name": "adacomp", "ratio": 0.1, "error_feedback": True}
    assert make().checkpoints.every is None
    assert make(**emulated).checkpoints.every == 10
    assert make(**simulated).checkpoints.every == 10
    assert make(**simulated, **killed).faults[0].of_server
    docker = {"devices": {"workers": 4, "runtime": "docker"}}
    possible: list[dict[str, Any]] = [{"clock": "wall"}, docker]
    local = {"name": "downpour", "fetch_every": 2}
    possible += [{"clock": "wall", "algorithms": [feedback]}, {"algorithms": [feedback, local]}]
    possible += [{"partition": "stream", "clock": clock} for clock in ("wall", "virtual")]
    for one in possible:
        assert make(**emulated | one).checkpoints.every == 10
    assert make(checkpoints={"every": 10}).checkpoints.every == 10
    assert make(**simulated | {"algorithms": ["all-to-all"]}).checkpoints.every == 10
    for changes, told in (
        (simulated | killed | {"checkpoints": {}}, r"add `checkpoints: \{every: 1000\}`"),
        (killed, r"add `checkpoints: \{every: 1000\}`"),
        ({"checkpoints": {"every": 10}, "algorithms": ["all-to-all"]}, "only after a kill with `l"),
    ):
        with pytest.raises(ValidationError, match=told):
            make(**changes)
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        make(**simulated | {"checkpoints": {"every": 0}})


def test_a_spec_is_split_into_one_for_each_run() -> None:
    spec = make(algorithms=["asgd", {"name": "adacomp", "ratio": 0.1}, "asgd"])
    runs = spec.runs()
    assert list(runs) == ["asgd", "adacomp-0.1", "asgd-2"]
    for label, run in runs.items():
        assert [options.label for options in run.algorithms] == [label]
        assert list(run.runs()) == [label]
        assert run.model_copy(update={"algorithms": spec.algorithms}) == spec
    assert runs["adacomp-0.1"].algorithms[0].name == "adacomp"


def test_a_dataset_may_be_an_existing_directory(tmp_path: Path) -> None:
    (tmp_path / "data" / "mine").mkdir(parents=True)
    context = {"folder": tmp_path / "data"}
    read = DatasetSpec.model_validate({"name": "mine"}, context=context)
    assert read.name == str((tmp_path / "data" / "mine").resolve())
    assert DatasetSpec.model_validate({"name": "mnist"}, context=context).name == "mnist"
    for name in ("other", "/no/such/directory", ""):
        with pytest.raises(ValidationError, match="nor an existing directory"):
            DatasetSpec.model_validate({"name": name}, context=context)
    # Without a folder no directory is sought, and a relative path is refused.
    assert DatasetSpec(name="/no/such/directory").name == "/no/such/directory"
    with pytest.raises(ValidationError, match="did you mean 'fashion-mnist'"):
        DatasetSpec(name="fashion_mnist")


def models(model: type[BaseModel]) -> set[type[BaseModel]]:
    found = [m for f in model.model_fields.values() for m in alternatives(f.annotation)]
    return {model}.union(*map(models, found))


def test_every_field_has_a_description() -> None:
    for model in models(Spec):
        assert model.__doc__, model.__name__
        for key, field in model.model_fields.items():
            # An alternative is described as a whole, and so is an algorithm's name.
            tag = key == "name" or (len(tags(model)) == 1 and key == next(iter(model.model_fields)))
            assert field.description or tag, f"{model.__name__}.{key}"
    assert len(models(Spec)) >= 40


def test_more_workers_than_any_dataset_has_images_are_refused_before_lists_of_them_are_made() -> (
    None
):
    with pytest.raises(ValidationError, match="less than or equal to 100000"):
        make(devices={"workers": 2**31})
