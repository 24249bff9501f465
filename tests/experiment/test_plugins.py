"""Experiments with algorithms of plug-ins: files beside the experiment, and installed modules."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from testbed.algorithms import algorithm_named
from testbed.doctor.requirements import check_data
from testbed.errors import DataError, SpecError
from testbed.experiment.load import dump, json_schema, load, load_resolved
from testbed.experiment.plugin_code import plugin_digests
from testbed.json_dataclasses import to_plain
from testbed.learning.data import datasets
from testbed.learning.description import describe
from testbed.learning.inputs import GREY_28
from testbed.planning import node_plan
from testbed.planning.plan import plan
from testbed.training import computation
from testbed.training.settings import Settings
from testbed.training.times import durations

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "plugin"))


def write(folder: Path, **change: Any) -> Path:
    data = yaml.safe_load((folder / "momentum.yaml").read_text())
    path = folder / "changed.yaml"
    path.write_text(yaml.safe_dump(data | change))
    return path


def test_an_algorithm_is_named_from_a_file_beside_the_experiment(folder: Path) -> None:
    spec = load(folder / "momentum.yaml")
    own = spec.algorithms[1]
    assert own.name == "rules:Momentum"
    assert own.model_dump()["beta"] == 0.5
    assert type(own).__name__ == "MomentumOptions"
    assert list(spec.runs()) == ["asgd", "Momentum-0.5"]
    settings = plan(spec)[1].settings
    assert [plugin.source.module for plugin in settings.spec.plugins] == ["rules"]
    assert plugin_digests(spec) == {}


def test_a_resolved_spec_needs_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = load(folder / "momentum.yaml")
    resolved = folder / "spec.yaml"
    resolved.write_text(dump(spec))
    assert "class Momentum(ServedAlgorithm):\n" in resolved.read_text()
    (folder / "rules.py").write_text("raise AssertionError('this is not read')\n")
    monkeypatch.delitem(sys.modules, "rules")
    again = load_resolved(resolved)
    assert dump(again) == dump(spec)
    assert algorithm_named("rules:Momentum").__name__ == "Momentum"


def test_a_device_that_cannot_run_a_plug_in_says_so_in_a_sentence(folder: Path) -> None:
    settings = to_plain(plan(load(folder / "momentum.yaml"))[1].settings)
    settings["spec"]["plugins"][0]["content"] = "import not_in_the_image\n"
    with pytest.raises(SpecError, match="not_in_the_image") as refused:
        Settings.of_plain(settings)
    assert str(refused.value).startswith("rules.py, line 1: ")
    settings["spec"]["plugins"], settings["spec"]["algorithms"][0]["name"] = [], "nowhere:Rule"
    with pytest.raises(SpecError, match="nowhere") as refused:
        Settings.of_plain(settings)
    assert "\n" not in str(refused.value)


def test_the_schema_allows_own_names(folder: Path) -> None:
    data = yaml.safe_load((folder / "momentum.yaml").read_text())
    data["algorithms"].append("package.rules:Other")
    jsonschema.validate(data, json_schema())
    data["algorithms"].append("no such")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, json_schema())


OWN: dict[str, Any] = {"name": "rules:Momentum"}


@pytest.mark.parametrize(
    ("algorithms", "text"),
    [
        ([OWN | {"beta": 2}], "algorithms.0.beta: must be less than 1, not 2"),
        ([OWN | {"bet": 0.5}], "algorithms.0.bet: unknown key; did you mean 'beta'?"),
        ([OWN | {"beta": "x"}], "algorithms.0.beta: must be a number, not 'x'"),
        (["rules:Momentun"], "algorithms.0: 'rules:Momentun': the module rules has no 'Momentun'"),
        (["nowhere:Rule"], "the module nowhere cannot be imported: ModuleNotFoundError"),
        (["rules:MomentumServer"], "'rules:MomentumServer' is no algorithm"),
        (
            ["rules:ServedAlgorithm"],
            "'rules:ServedAlgorithm' is not complete: it has no server",
        ),
        (["momentum"], "'momentum' is not one of asgd, comp-asgd"),
    ],
)
def test_a_mistake_is_named_with_its_line(folder: Path, algorithms: list[Any], text: str) -> None:
    with pytest.raises(SpecError) as refused:
        load(write(folder, algorithms=algorithms))
    assert text in str(refused.value)
    assert "changed.yaml:" in str(refused.value)


def test_a_file_that_cannot_be_used_is_the_only_problem(folder: Path) -> None:
    (folder / "rules.py").write_text("import numpy as np\nnp.no_such_thing\n")
    with pytest.raises(SpecError) as refused:
        load(folder / "momentum.yaml")
    assert str(refused.value).endswith(
        "plugins.0: rules.py, line 2: AttributeError: module 'numpy' has no attribute 'no_such_thing'"
    )
    assert "algorithms" not in str(refused.value)


def test_two_files_of_one_name_are_refused_unless_they_say_the_same(folder: Path) -> None:
    (folder / "more").mkdir()
    more = folder / "more" / "rules.py"
    more.write_text((folder / "rules.py").read_text())
    path = write(folder, plugins=["rules.py", "more/rules.py"])
    load(path)
    more.write_text(more.read_text().replace("default=0.9", "default=0.8"))
    with pytest.raises(SpecError, match="both be the module rules, and only one"):
        load(path)


def test_an_image_has_the_files_of_the_experiment_and_no_other_modules(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = {"workers": 4, "runtime": "docker", "launch": "image"}
    load(write(folder, devices=image))
    (folder / "installed_rules.py").write_text((folder / "rules.py").read_text())
    monkeypatch.syspath_prepend(folder)
    path = write(folder, devices=image, plugins=[], algorithms=["installed_rules:Momentum"])
    with pytest.raises(SpecError, match="the image does not have the module installed_rules"):
        load(path)
    load(path, ["devices.launch=fork"])


LAW = """
import math
from dataclasses import asdict, dataclass

from testbed.durations import Law


@dataclass(frozen=True, slots=True)
class Weibull(Law):
    shape: float = 2.0

    def __post_init__(self):
        if self.shape <= 0:
            raise ValueError("the shape of a Weibull law is more than 0")

    @property
    def variance(self):
        return math.inf

    def sample(self, stream):
        return self.mean / math.gamma(1 + 1 / self.shape) * stream.weibull(self.shape)
"""


def of_law(folder: Path, **options: Any) -> Path:
    (folder / "laws.py").write_text(LAW)
    compute = {"distribution": "laws:Weibull", "mean": "100ms"} | options
    return write(folder, plugins=["laws.py", "rules.py"], compute=compute)


def test_durations_follow_a_law_of_ones_own(folder: Path) -> None:
    (one, _) = plan(load(of_law(folder, shape=0.7)))
    crossed = Settings.of_plain(json.loads(json.dumps(to_plain(one.settings))))
    assert crossed.spec.compute.model_dump()["shape"] == 0.7
    seconds = durations(crossed, "compute")[0].of_device(0)
    drawn = [seconds.sample(0.0) for _ in range(2000)]
    assert seconds.mean == 0.1
    assert 0.08 < sum(drawn) / len(drawn) < 0.12
    with_default = load(of_law(folder)).compute
    assert with_default.model_dump()["shape"] == 2.0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"shape": -1}, "compute: the shape of a Weibull law is more than 0"),
        ({"shape": "x"}, "compute.shape: must be a number, not 'x'"),
        ({"shap": 1}, "compute.shap: unknown key; did you mean 'shape'?"),
        ({"distribution": "laws:Other"}, "compute: 'laws:Other': the module laws has no 'Other'"),
        ({"distribution": "rules:Momentum"}, "'rules:Momentum' is no law of durations"),
    ],
)
def test_a_mistake_in_a_law_is_named(folder: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError) as refused:
        load(of_law(folder, **options))
    assert text in str(refused.value)


DURATION = "a duration is a number of seconds, 0 or more and finite"


@pytest.mark.parametrize(
    ("drawn", "text"),
    [
        ("-0.1", f"Weibull.sample has drawn -0.1: {DURATION}"),
        ("math.nan", f"Weibull.sample has drawn nan: {DURATION}"),
        ("None", f"Weibull.sample has drawn None: {DURATION}"),
        ("[0.1, 0.2]", f"Weibull.sample has drawn [0.1, 0.2]: {DURATION}"),
        (
            "next(COUNT)",
            "Weibull.sample() draws 1 and then 2 from streams that are alike, so that runs would "
            "differ: let it draw from its argument only",
        ),
    ],
)
def test_what_a_law_draws_is_a_duration_and_the_same_each_time(
    folder: Path, drawn: str, text: str
) -> None:
    path = of_law(folder)
    before, returns, _ = LAW.rpartition("return ")
    (folder / "laws.py").write_text(
        f"{before}{returns}{drawn}\nfrom itertools import count\nCOUNT = count(1)\n"
    )
    with pytest.raises(SpecError) as refused:
        load(path)
    assert str(refused.value).endswith(f": {text}")


def test_a_duration_may_be_any_kind_of_number(folder: Path) -> None:
    path = of_law(folder)
    before, returns, _ = LAW.rpartition("return ")
    (folder / "laws.py").write_text(f"import numpy as np\n{before}{returns}np.float32(0.5)\n")
    (one, _) = plan(load(path))
    assert type(durations(one.settings, "compute")[0].of_device(0).sample(0.0)) is float


MODEL = """
from torch import nn

from testbed.learning.inputs import Inputs


def two_layers(inputs: Inputs, width: int = 16, dropout: float = 0.0) -> nn.Module:
    channels, height, columns = inputs.image
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(channels * height * columns, width),
        nn.Tanh(),
        nn.Dropout(dropout),
        nn.Linear(width, inputs.classes),
    )


def no_module(inputs: Inputs):
    return 7


def with_taken_name(inputs: Inputs, buffers: int = 3) -> nn.Module:
    return two_layers(inputs)


def normalised(inputs: Inputs) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(784), nn.Linear(784, inputs.classes))


def with_reserved_name(inputs: Inputs, options: int = 3) -> nn.Module:
    return two_layers(inputs)


def layers(inputs: Inputs, widths: list[int], gains: dict[str, float]) -> nn.Module:
    sizes = [784, *widths, inputs.classes]
    found = [nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])]
    nn.init.orthogonal_(found[0].weight, gains["first"])
    return nn.Sequential(nn.Flatten(), *found)
"""


def of_model(folder: Path, *, rest: dict[str, Any] | None = None, **section: Any) -> Path:
    (folder / "nets.py").write_text(MODEL)
    model = {"name": "nets:two_layers"} | section
    return write(folder, plugins=["nets.py", "rules.py"], model=model, **(rest or {}))


def test_a_model_of_ones_own_has_its_functions_arguments_as_options(folder: Path) -> None:
    spec = load(of_model(folder, width=24, dropout=0.1))
    assert spec.model.options == {"width": 24, "dropout": 0.1}
    settings = Settings.of_plain(json.loads(json.dumps(to_plain(plan(spec)[1].settings))))
    learner = computation.learner(settings, GREY_28)
    assert learner.layout.total == 784 * 24 + 24 + 24 * 10 + 10
    assert load(of_model(folder)).model.options == {"width": 16, "dropout": 0.0}
    jsonschema.validate(yaml.safe_load(dump(spec)), json_schema())


def test_options_may_be_lists_and_mappings(folder: Path) -> None:
    spec = load(of_model(folder, name="nets:layers", widths=[12, 8], gains={"first": 0.5}))
    (_, one) = plan(spec)
    assert describe(computation.model(one.settings), GREY_28).parameters == 784 * 12 + 12 + 104 + 90
    other = load(of_model(folder, name="nets:layers", widths=[8], gains={"first": 0.5}))
    (_, two) = plan(other)
    assert describe(computation.model(two.settings), GREY_28).parameters == 784 * 8 + 8 + 90
    resolved = folder / "spec.yaml"
    resolved.write_text(dump(spec))
    assert load_resolved(resolved).model.options == spec.model.options


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ({"width": "x"}, "model.width: must be a whole number, not 'x'"),
        ({"widht": 3}, "model.widht: unknown key; did you mean 'width'?"),
        ({"width": -1}, "model nets:two_layers does not take images of 1 × 28 × 28 in 10 classes"),
        ({"name": "nets:other"}, "model: 'nets:other': the module nets has no 'other'"),
        ({"name": "nets:no_module"}, "model nets:no_module returns int and no torch.nn.Module"),
        ({"name": "nets:with_taken_name"}, "the argument buffers is a key that every model has"),
        (
            {"name": "nets:with_reserved_name"},
            "the argument options can be no key: give it another",
        ),
        ({"initialisation": "x"}, "model.initialisation: 'x' is not one of paper, torch, module"),
    ],
)
def test_a_mistake_in_a_model_is_named(folder: Path, section: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError) as refused:
        load(of_model(folder, **section))
    assert text in str(refused.value)


def of_dataset(folder: Path, **section: Any) -> Path:
    whole = yaml.safe_load((folder / "pictures.yaml").read_text())
    path = folder / "changed.yaml"
    path.write_text(yaml.safe_dump(whole | {"dataset": whole["dataset"] | section}))
    return path


def test_a_dataset_of_ones_own_has_its_functions_arguments_as_options(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = of_dataset(folder, train=50)
    spec = load(path)
    stripes = str(folder / "stripes.csv")
    assert spec.dataset.options == {"path": stripes, "train": 50, "test": 100, "noise": 40.0}
    assert spec.dataset.scaling is None
    (one,) = plan(spec)
    settings = Settings.of_plain(json.loads(json.dumps(to_plain(one.settings))))
    check_data(one)
    loaded = datasets.load(settings.dataset, settings.spec.dataset.scaling)
    assert loaded.train_images.shape == (50, 3, 32, 32)
    assert loaded.inputs.classes == 5
    assert node_plan.chosen(plan(load(path, ["devices.runtime=docker"]))[0])["mounts"] == {
        stripes: stripes
    }
    resolved = folder / "spec.yaml"
    resolved.write_text(dump(spec))
    jsonschema.validate(yaml.safe_load(dump(spec)), json_schema())
    assert dump(load_resolved(resolved)) == dump(spec)
    monkeypatch.chdir(folder.parent)
    (folder.parent / "other.csv").write_text("1,0,0,0,9,9,9\n3,9,9,9,0,0,0\n")
    other = load(path, ["dataset.path=other.csv"])
    assert plan(other)[0].settings.dataset_digest != settings.dataset_digest


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ({"train": "x"}, "dataset.train: must be a whole number, not 'x'"),
        ({"trian": 3}, "dataset.trian: unknown key; did you mean 'train'?"),
        ({"path": "none.csv"}, "dataset.path: there is no file or folder 'none.csv'"),
        (
            {"name": "pictures:other"},
            "dataset: 'pictures:other': the module pictures has no 'other'",
        ),
        ({"name": "pictures:SIDE"}, "'pictures:SIDE' is no dataset: it must be a function"),
        ({"scaling": "x"}, "dataset.scaling: 'x' is not one of standardised, unit, per-channel"),
        ({"name": "text", "train": 3}, "dataset.train: unknown key"),
    ],
)
def test_a_mistake_in_a_dataset_is_named(folder: Path, section: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError) as refused:
        load(of_dataset(folder, **section))
    assert text in str(refused.value)


def test_a_function_that_fails_is_reported_before_anything_is_started(folder: Path) -> None:
    (one,) = plan(load(of_dataset(folder, train=-1)))
    with pytest.raises(DataError, match=r"^dataset pictures:stripes: pictures.py, line \d+: Value"):
        check_data(one)


def test_an_installed_dataset_is_code_of_the_experiment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "installed_data.py").write_text((folder / "pictures.py").read_text())
    monkeypatch.syspath_prepend(folder)
    spec = load(of_dataset(folder, name="installed_data:stripes"))
    assert list(plugin_digests(spec)) == ["installed_data"]
