"""Experiment files: the specs that they become, the places of their errors, and the dump to text."""

import json
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.algorithms import ALGORITHMS, has
from testbed.encoding_choice import SHORT_NAMES, Compression, EncodingChoice, Indices, Values
from testbed.errors import SpecError
from testbed.experiment.load import dump, json_schema, load, load_resolved, parse
from testbed.experiment.sections.directions import LONGEST_DELAY
from testbed.experiment.sections.learning import MODELS, TRANSFORMER
from testbed.experiment.spec import Spec
from testbed.json_dataclasses import to_plain
from testbed.planning.plan import plan
from testbed.units import SLOWEST

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
FILES = sorted(EXPERIMENTS.glob("*.yaml"))

GOOD = """\
name: good
dataset: digits
model: cnn
training: {batch_size: 10, learning_rate: 1e-1, updates: 1000}
algorithms:
  - asgd
  - {name: comp-asgd, ratio: 0.01}
  - name: adacomp
    ratio: 1e-2
devices: {workers: 20}
"""

BAD = """\
name: 2024
sed: 3
updates: 4
dataset: mnits
model: {name: CNN,
  initialization: paper}
training: {batch_size: 1e1, learning_rate: yes, updates: 1000,
  learning_rat: 3, updates: 0}
algorithms:
  - asdg
  - {name: comp-asgd,
     rato: 0.01}
  - name: adacomp
    ratio: 2
    scope: modle
  - {ratio: 1}
  - 3
devices: {runtime: podman}
network:
  uplink: 10mbt
  downlink: 10:30
  delay: 50
  loss: on
waiting: 50ms
evaluation:
colour: blue
"""

PROBLEMS = [
    "1: name: must be text, not 2024: put it in quotes, '2024'",
    "2: sed: unknown key; did you mean 'seed'?",
    "3: updates: unknown key; did you mean 'training.updates'?",
    "4: dataset: 'mnits' is neither a dataset (digits, mnist, fashion-mnist, cifar10, cifar100, ",
    "5: model.name: 'CNN' is not one of cnn, mlp, mlp-large, cnn-small, cnn-5x5, ",
    "6: model.initialization: unknown key; did you mean 'initialisation'?",
    "7: training.batch_size: must be a whole number, not 10.0: write 10",
    "7: training.learning_rate: must be a number, not 'yes'",
    "8: training.learning_rat: unknown key; did you mean 'learning_rate'?",
    "8: training.updates: is given twice, first in line 7: remove one",
    "8: training.updates: must be at least 1, not 0",
    f"10: algorithms.0: 'asdg' is not one of {', '.join(ALGORITHMS)}; did you mean 'asgd'?",
    "12: algorithms.1.rato: unknown key; did you mean 'ratio'?",
    "14: algorithms.2.ratio: must be at most 1, not 2",
    "15: algorithms.2.scope: 'modle' is not one of model, tensor; did you mean 'model'?",
    "16: algorithms.3: has no 'name': give it one of asgd, comp-asgd, ",
    "17: algorithms.4: must be a name or a mapping, not 3",
    "18: devices.runtime: 'podman' is not one of namespaces, docker",
    "18: devices.workers: is missing; for example `workers: 20`",
    "20: network.uplink: '10mbt' has the unknown unit 'mbt'; did you mean '10mbit'?",
    "21: network.downlink: '10:30' is not a rate: ",
    "22: network.delay: '50' has no unit: ",
    "23: network.loss: 'on' is not a share: ",
    "24: waiting: must be a mapping, not '50ms'",
    "25: evaluation: must be a mapping, not empty",
    "26: colour: unknown key; the keys here are name, seed, plugins, dataset, model, ",
]


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    return path


def refusal(path: Path, *overrides: str, seed: int | None = None) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load(path, overrides, seed)
    assert caught.value.exit_status == 2
    return str(caught.value).splitlines()


def with_line(good: Path, old: str, new: str) -> list[str]:
    assert old in GOOD
    good.write_text(GOOD.replace(old, new))
    return [line.removeprefix(f"{good}:") for line in refusal(good)]


def test_a_file_becomes_a_spec(good: Path) -> None:
    spec = load(good)
    assert spec.name == "good"
    assert spec.training.learning_rate == 0.1
    assert list(spec.runs()) == ["asgd", "comp-asgd-0.01", "adacomp-0.01"]
    assert load(str(good)) == spec
    good.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load(good) == spec


def test_all_problems_are_reported_at_once_each_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(BAD)
    lines = refusal(path)
    assert all(line.startswith(f"{path}:") for line in lines)
    said = sorted(line.removeprefix(f"{path}:") for line in lines)
    assert len(said) == len(PROBLEMS)
    for line, wanted in zip(said, sorted(PROBLEMS), strict=True):
        assert line.startswith(wanted)
    numbers = [int(line.removeprefix(f"{path}:").split(":")[0]) for line in lines]
    assert numbers == sorted(numbers)


def test_a_missing_key_is_reported_with_an_example(good: Path) -> None:
    good.write_text("name: x\n")
    assert [line.removeprefix(f"{good}:1: ") for line in refusal(good)] == [
        "dataset: is missing; for example `dataset: digits`",
        "model: is missing; for example `model: cnn`",
        "training: is missing; for example `training: {updates: 1000}`",
        "algorithms: is missing; for example `algorithms: [asgd]`",
        "devices: is missing; for example `devices: {workers: 20}`",
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("  - asgd", "  - {name: asgd, label: figures}", "6: algorithms.0.label: 'figures' is "),
        ("  - asgd", "  - {name: asgd, label: a b}", "6: algorithms.0.label: 'a b' cannot be"),
        ("  - asgd", "  - null", "6: algorithms.0: must be a name or a mapping, not empty"),
        ("  - asgd", "  - []", "6: algorithms.0: must be a name or a mapping, not a list"),
        ("name: adacomp", "name: [1]", "8: algorithms.2.name: a list is not one of asgd, "),
        ("name: good", "name: a/b", "1: name: 'a/b' cannot be a folder's name"),
        ("name: good", "name: latest", "1: name: 'latest' is what commands call the newest run"),
        ("name: good", "name: good\nseed: -1", "2: seed: must be at least 0, not -1"),
        ("name: good", "name: good\nseed: 1.5", "2: seed: must be a whole number, not 1.5"),
        ("name: good", "name: good\nseed: on", "2: seed: must be a whole number, not 'on'"),
        ("name: good", "name: good\nseed: true", "2: seed: must be a whole number, not true"),
        ("learning_rate: 1e-1", "learning_rate: .nan", "4: training.learning_rate: must be "),
        ("learning_rate: 1e-1", "learning_rate: 0", "4: training.learning_rate: must be more"),
        ("dataset: digits", "dataset: {name: digits, train_images: 19}",
         "2: dataset.train_images: 19 images cannot be distributed among 20 workers"),
        ("dataset: digits", "dataset: {scaling: unit}", "2: dataset.name: is missing; for example"),
        ("dataset: digits", "dataset: 3", "2: dataset: must be a name or a mapping, not 3"),
        ("devices: {workers: 20}", "devices: [20]", "10: devices: must be a mapping, not a list"),
        ("devices: {workers: 20}", "devices: {workers: 20, batch_size: 3}",
         "10: devices.batch_size: unknown key; did you mean 'training.batch_size'?"),
        ("learning_rate: 1e-1", "lr: 1e-1", "4: training.lr: unknown key; did you mean 'learning_r"),
        ("updates: 1000}", "updates: 9, epochs: 3}",
         "4: training.epochs: unknown key; a run lasts for `training.updates`, and `testbed plan`"),
        ("updates: 1000}", "updates: 9, momentum: 0.9}",
         "4: training.momentum: unknown key; momentum is the algorithm's: write `algorithms: [mom"),
        ("devices: {workers: 20}", "devices: {clients: 20, workers: 20}",
         "10: devices.clients: unknown key; did you mean 'workers'?"),
        ("name: good", "name: good\nclients: 20",
         "2: clients: unknown key; did you mean 'devices.workers'?"),
        ("ratio: 1e-2", "ratio: 120%", "9: algorithms.2.ratio: must be at most 1, not 1.2"),
        ("ratio: 1e-2", "ratio: 1 percent", "9: algorithms.2.ratio: must be a number, not '1 perc"),
    ],
)  # fmt: skip
def test_a_problem_is_reported_with_its_line(good: Path, old: str, new: str, said: str) -> None:
    (line,) = with_line(good, old, new)
    assert line.startswith(said)


def test_a_ratio_may_be_a_percentage(good: Path) -> None:
    plain = load(good)
    good.write_text(GOOD.replace("ratio: 1e-2", "ratio: 1%"), encoding="utf-8")
    assert load(good) == plain
    assert dump(load(good)) == dump(plain)


@pytest.mark.parametrize("empty", ["algorithms: []", "algorithms:\n  []"])
def test_an_empty_list_of_algorithms_is_refused(good: Path, empty: str) -> None:
    head, _, tail = GOOD.partition("algorithms:")
    good.write_text(f"{head}{empty}\n{tail[tail.index('devices') :]}")
    (line,) = refusal(good)
    said = "algorithms: is empty: give at least one; for example `algorithms: [asgd]`"
    assert line == f"{good}:5: {said}"


def test_a_duplicate_label_is_refused_with_the_place_of_the_first(good: Path) -> None:
    text = GOOD.replace("- asgd", "- {name: asgd, label: x}")
    good.write_text(text.replace("name: adacomp\n", "name: adacomp\n    label: x\n"))
    (line,) = refusal(good)
    assert line == f"{good}:9: algorithms.2.label: 'x' is already the label of algorithms.0"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", ": is empty; "),
        (b"# nothing\n", ": is empty; "),
        (b"---\n", ": is empty; "),
        (b"\n- a\n", ":2: must be a mapping"),
        (b"hello", ":1: must be a mapping"),
        (b"name: x\nb: [\n", ":3: is not valid YAML: "),
        (b"name: x\nb: \xff", ":2: is not UTF-8 text"),
        ("name: x".encode("utf-16"), ":1: is not UTF-8 text"),
        (b"name: x\n\x00", ":2: is not text: it has the character U+0000"),
        (b"#" * (1 << 20) + b"\n", ": is larger than 1 MiB"),
    ],
)
def test_a_file_that_is_no_experiment_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    (line,) = refusal(path)
    assert line.startswith(f"{path}{said}")


def test_a_path_that_is_no_readable_file_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "no.yaml") == [f"{tmp_path / 'no.yaml'}: there is no such file"]
    assert refusal(tmp_path)[0].startswith(f"{tmp_path}: is a directory")
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    assert "loop.yaml: cannot be read: " in refusal(tmp_path / "loop.yaml")[0]


def test_overrides_are_applied_in_their_order(good: Path) -> None:
    spec = load(
        good,
        [
            "training.updates=50",
            "algorithms.0=adacomp",
            "algorithms.0.ratio=0.1",
            "algorithms.comp-asgd.label=mine",
            "algorithms.mine.ratio=1e-3",
            "network.uplink=10mbit",
            "network.downlink=",
            "dataset.scaling=unit",
            "training.updates=60",
            "waiting={mean: 1s, distribution: constant}",
        ],
        seed=9,
    )
    assert spec.training.updates == 60
    assert list(spec.runs()) == ["adacomp-0.1", "mine", "adacomp-0.01"]
    assert spec.algorithms[1].model_dump()["ratio"] == 0.001
    assert (spec.network.uplink, spec.network.downlink) == (10_000_000, None)
    assert (spec.dataset.name, spec.dataset.scaling) == ("digits", "unit")
    assert spec.waiting.model_dump() == {"distribution": "constant", "mean": 1}
    assert spec.seed == 9


def test_an_override_of_an_alias_does_not_change_its_anchor(good: Path) -> None:
    text = GOOD.replace("- {name: comp-asgd, ratio: 0.01}", "- &a {name: comp-asgd, ratio: 0.01}")
    good.write_text(text.replace("- asgd", "- asgd\n  - {name: adacomp, label: b}") + "\n")
    shared = good.read_text().replace("devices:", "  - *a\ndevices:")
    good.write_text(shared)
    ratios = [
        o.model_dump().get("ratio") for o in load(good, ["algorithms.4.ratio=0.5"]).algorithms
    ]
    assert ratios == [None, 0.01, 0.01, 0.01, 0.5]


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("trainig.updates=3", "trainig: unknown key; did you mean 'training'?"),
        ("training.update=3", "training.update: unknown key; did you mean 'updates'?"),
        ("training.updates=x", "training.updates: must be a whole number, not 'x'"),
        ("training.updates=", "training.updates: must be a whole number, not empty"),
        ("training=3", "training: must be a mapping, not 3"),
        ("training={}", "training.updates: is missing; for example `updates: 1000`"),
        ("algorithms.1.ratio=2", "algorithms.1.ratio: must be at most 1, not 2"),
        ("algorithms.adacomp.ratio=2", "algorithms.2.ratio: must be at most 1, not 2"),
        ("algorithms.1=adacmp", "algorithms.1: 'adacmp' is not one of "),
        ("algorithms.3=asgd", "'algorithms' has 3 entries, counted from 0"),
        (f"algorithms.{'9' * 5000}=asgd", "'algorithms' has 3 entries, counted from 0"),
        ("algorithms.adacmp.ratio=1", "'algorithms' is a list: .*; did you mean 'adacomp'?"),
        ("network.uplink=10mbt", "network.uplink: '10mbt' has the unknown unit"),
        ("name.x=3", "'name' is 'good' and has no keys to set"),
        (
            "encoding=compct",
            "encoding: 'compct' is not one of plain, compact, compact-16, compact-8",
        ),
        ("encoding=5", "encoding: must be a name or a mapping, not 5"),
        ("encoding.values=f16", "encoding.values: 'f16' is not one of .*did you mean 'float16'?"),
        ("encoding.level=23", "encoding.level: must be at most 22, not 23"),
        ("encoding.value=int8", "encoding.value: unknown key; did you mean 'values'?"),
        (
            "algorithms.adacomp.encoding.indices=rise",
            "algorithms.2.encoding.indices: 'rise' is not",
        ),
        ("algorithms.asgd.pulls=all", "algorithms.0.pulls: 'all' is not one of full, changed"),
        ("dataset=cifar", "dataset: 'cifar' is neither a dataset"),
        ("name", "write it as key=value"),
        ("=3", "write it as key=value"),
        ("a..b=3", "write it as key=value"),
        ("name=[", "1: is not valid YAML"),
        ("training={updates: 1, updates: 2}", "is given twice"),
    ],
)
def test_an_error_in_an_override_names_the_override(good: Path, option: str, said: str) -> None:
    (line,) = refusal(good, option)
    assert line.startswith(f"--set {option}:")
    text = line.removeprefix(f"--set {option}:").strip()
    first, _, last = said.partition(".*")
    assert text.startswith(first)
    assert text.endswith(last)


def test_an_ambiguous_override_is_refused(good: Path) -> None:
    (line,) = refusal(good, "algorithms.0=adacomp", "algorithms.adacomp.ratio=1")
    assert line.endswith("more than one 'adacomp': write algorithms.0 or algorithms.2")


def test_an_error_names_the_file_or_the_option_that_it_is_in(good: Path) -> None:
    good.write_text(GOOD.replace("batch_size: 10", "batch_size: 0") + "trainig: {updates: 1}\n")
    lines = refusal(good, "training.updates=0", "trainig.updates=3", seed=-1)
    assert sorted(lines) == [
        "--seed -1: seed: must be at least 0, not -1",
        "--set training.updates=0: training.updates: must be at least 1, not 0",
        f"{good}:11: trainig: unknown key; did you mean 'training'?",
        f"{good}:4: training.batch_size: must be at least 1, not 0",
    ]


def test_a_dataset_is_relative_to_the_file_or_in_options_to_the_cwd(
    good: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = good.parent / "elsewhere"
    for folder in (good.parent / "beside", here / "mine"):
        folder.mkdir(parents=True)
    monkeypatch.chdir(here)
    good.write_text(GOOD.replace("dataset: digits", "dataset: ./beside"))
    assert load(good).dataset.name == str((good.parent / "beside").resolve())
    assert load(good, ["dataset=mine"]).dataset.name == str((here / "mine").resolve())
    (line,) = refusal(good, "dataset=beside")
    assert line.startswith("--set dataset=beside: dataset: 'beside' is neither")


def test_a_resolved_spec_loads_without_its_dataset(good: Path) -> None:
    folder = good.parent / "beside"
    folder.mkdir()
    good.write_text(GOOD.replace("dataset: digits", "dataset: beside"))
    spec = load(good)
    resolved = good.parent / "spec.yaml"
    resolved.write_text(dump(spec))
    assert load(resolved) == load_resolved(resolved) == spec
    folder.rmdir()
    assert load_resolved(resolved) == spec
    assert "nor an existing directory" in refusal(resolved)[0]


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True) | st.sampled_from(
    ["on", "1e-3", "1e5", "10", "null", "true", "0x10", "1.5", "2024-01-01", "1_0", "012", "no"]
)
RATIOS = st.floats(0, 1, exclude_min=True)
ALGORITHM_LISTS = st.lists(
    # Aggregators need clusters, and are only simulated.
    st.builds(
        lambda name: {"name": name},
        st.sampled_from(sorted(name for name in ALGORITHMS if not has(name, "aggregator"))),
    )
    | st.builds(
        lambda name, ratio, scope: {"name": name, "ratio": ratio, "scope": scope},
        st.sampled_from(["adacomp", "comp-asgd"]),
        RATIOS,
        st.sampled_from(["model", "tensor"]),
    ),
    min_size=1,
    max_size=4,
)


ENCODINGS = st.sampled_from(list(SHORT_NAMES)) | st.builds(
    lambda indices, values, compression, level: {
        "indices": indices,
        "values": values,
        "compression": compression,
        "level": level,
    },
    st.sampled_from(get_args(Indices)),
    st.sampled_from(get_args(Values)),
    st.sampled_from(get_args(Compression)),
    st.integers(1, 22),
)


CONTAINERS: st.SearchStrategy[dict[str, Any]] = st.just({}) | st.fixed_dictionaries(
    {"runtime": st.just("docker")},
    optional={
        "launch": st.sampled_from(["image", "fork"]),
        "image": NAMES,
        "cpus": st.floats(0.01, 64),
        "memory": st.integers(300 * 2**20, 2**40),
    },
)
CLASSES: st.SearchStrategy[dict[str, Any]] = st.just({}) | st.fixed_dictionaries(
    {
        "classes": st.tuples(
            st.fixed_dictionaries(
                {"name": st.just("fast"), "share": st.just(0.25)},
                optional={
                    "compute": st.just({"distribution": "pareto", "mean": "70ms", "shape": 2.5}),
                    "waiting": st.just({"mean": "1s"}),
                    "uplink": st.integers(SLOWEST, 2**63 - 1),
                    "delay": st.just("50ms"),
                },
            ),
            st.fixed_dictionaries(
                {"name": st.just("slow-1_A"), "share": st.just(0.75)},
                optional={"downlink": st.integers(SLOWEST, 2**63 - 1), "loss": st.just("1%")},
            ),
        )
    }
)


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    def maybe(strategy: st.SearchStrategy[Any]) -> Any:
        return draw(st.none() | strategy)

    data: dict[str, Any] = {
        "name": draw(NAMES),
        "seed": draw(st.integers(0, 2**63 - 1)),
        "dataset": {
            "name": draw(st.sampled_from(["digits", "mnist", "fashion-mnist"])),
            "scaling": draw(st.sampled_from(["standardised", "unit"])),
            "train_images": maybe(st.integers(500, 60_000)),
        },
        "model": draw(st.sampled_from(["cnn", "mlp", "mlp-large"])),
        "training": {
            "batch_size": draw(st.integers(1, 1000)),
            "learning_rate": draw(st.floats(0, 1e6, exclude_min=True)),
            "updates": draw(st.integers(1, 10**9)),
        },
        "algorithms": draw(ALGORITHM_LISTS),
        "devices": {"workers": draw(st.integers(1, 500)), **draw(CONTAINERS), **draw(CLASSES)},
        "network": {
            "uplink": maybe(st.integers(SLOWEST, 2**63 - 1)),
            "downlink": maybe(st.integers(SLOWEST, 2**63 - 1)),
            "delay": f"{draw(st.floats(0, LONGEST_DELAY))!r}s",
            "loss": draw(st.floats(0, 1, exclude_max=True)),
        },
        "waiting": {
            "distribution": draw(st.sampled_from(["constant", "uniform", "exponential"])),
            "mean": f"{draw(st.floats(0, 1e6))!r}s",
        },
        "evaluation": {"every": draw(st.integers(1, 10**9)), "images": maybe(st.integers(1, 99))},
        "encoding": draw(ENCODINGS),
        "pulls": draw(st.sampled_from(["full", "changed"])),
        "partition": draw(
            st.sampled_from(["equal", "shards", {"kind": "dirichlet", "alpha": 1 / 3}])
        ),
    }
    data["algorithms"][0]["encoding"] = maybe(ENCODINGS)
    if has(data["algorithms"][0]["name"], "server"):
        data["algorithms"][0]["pulls"] = maybe(st.sampled_from(["full", "changed"]))
    label = maybe(NAMES)
    if label not in (None, "figures"):
        data["algorithms"][0]["label"] = label
    return Spec.model_validate(data, strict=True)


@settings(deadline=None)  # the host may be busy
@given(specs())
def test_a_dumped_spec_loads_as_an_equal_spec(
    tmp_path_factory: pytest.TempPathFactory, spec: Spec
) -> None:
    path = tmp_path_factory.getbasetemp() / "spec.yaml"
    for written in (spec, *spec.runs().values()):
        path.write_text(dump(written), encoding="utf-8")
        assert load(path) == written
        # Other programs read the file with other parsers.
        assert Spec.model_validate(yaml.safe_load(path.read_text(encoding="utf-8"))) == written


def test_the_dump_is_readable() -> None:
    assert dump(load(EXPERIMENTS / "quickstart.yaml").runs()["adacomp-0.01"]) == (
        "name: quickstart\n"
        "seed: 1\n"
        "dataset: {name: digits, scaling: standardised, train_images: null}\n"
        "model: {name: mlp, initialisation: paper, buffers: none}\n"
        "training: {batch_size: 32, learning_rate: 0.1, schedule: null, weight_decay: 0.0, clip: null, "
        "augmentation: null,\n"
        "  updates: 2000}\n"
        "engine: emulation\n"
        "clock: virtual\n"
        "algorithms:\n"
        "- {name: adacomp, label: adacomp-0.01, ratio: 0.01, error_feedback: false, error_decay: null, "
        "momentum: null,\n"
        "  scope: tensor}\n"
        "encoding: {indices: auto, values: float32, compression: none, level: 3}\n"
        "pulls: full\n"
        "devices: {workers: 20, runtime: namespaces}\n"
        "partition: {kind: equal}\n"
        "network: {uplink: 10mbit, downlink: 100mbit, delay: 0s, loss: 0%}\n"
        "compute: {distribution: constant, mean: 20ms}\n"
        "waiting: {distribution: exponential, mean: 50ms}\n"
        "evaluation: {every: 100, images: null, peer: 0}\n"
        "checkpoints: {every: null}\n"
        "faults: []\n"
        "traffic: {capture: true, file_size: 256MiB, total_size: 4GiB, period: 1s}\n"
        "simulation: {batched: false, device: cpu}\n"
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_experiment_loads_and_is_named_after_its_file(path: Path) -> None:
    assert load(path).name == path.stem


def test_the_large_experiment_has_the_paper_s_settings() -> None:
    spec = load(EXPERIMENTS / "mnist-200.yaml")
    assert (spec.dataset.name, spec.model.name, spec.devices.workers) == ("mnist", "cnn", 200)
    assert (spec.training.batch_size, spec.training.learning_rate) == (10, 0.1)
    assert spec.training.updates == 20_000
    assert spec.waiting.model_dump() == {"distribution": "exponential", "mean": 0.6}
    assert (spec.network.uplink, spec.network.downlink) == (None, None)
    assert spec.evaluation.every == 1000
    labels = ["asgd", "comp-asgd-0.01", "comp-asgd-0.01-tensor", "adacomp-0.01"]
    assert list(spec.runs()) == labels


def test_the_schema_lists_every_section_and_algorithm() -> None:
    schema = json_schema()
    assert set(schema["properties"]) == set(Spec.model_fields)
    assert schema["additionalProperties"] is False
    short, own, long = schema["properties"]["algorithms"]["items"]["anyOf"]
    assert short["enum"] == list(ALGORITHMS)
    assert own["examples"] == ["rules:Momentum"]
    built_in, own = long["anyOf"]
    assert len(built_in["oneOf"]) == len(ALGORITHMS)
    assert "additionalProperties" not in own
    assert schema["properties"]["model"]["anyOf"][0]["enum"] == [*MODELS, TRANSFORMER]
    assert "enum" not in schema["properties"]["dataset"]["anyOf"][0]


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft202012Validator:
    """The schema of experiment files, which is one itself."""
    validator = jsonschema.Draft202012Validator(json_schema())
    validator.check_schema(validator.schema)
    return validator


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_schema_accepts_valid_files_and_refuses_invalid_ones(
    path: Path, schema: jsonschema.Draft202012Validator
) -> None:
    written = yaml.safe_load(path.read_text(encoding="utf-8"))
    schema.validate(written)
    schema.validate(yaml.safe_load(dump(load(path))))
    wrong: dict[str, Any]
    for wrong in (
        {"sed": 3},
        {"network": {"uplink": "10mbt"}},
        {"waiting": {"mean": 5}},
        {"algorithms": []},
        {"algorithms": ["sgd"]},
        {"algorithms": [{"ratio": 0.1}]},
        {"model": "resnet"},
        {"training": {}},
        {"encoding": "compct"},
        {"encoding": {"values": "float64"}},
        {"algorithms": [{"name": "asgd", "encoding": {"value": "int8"}}]},
        {"pulls": "all"},
    ):
        assert not schema.is_valid(written | wrong), wrong


KEYS = st.sampled_from([*Spec.model_fields, "ratio", "updates", "workers", "label", "x", "uplink"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)  # the host may be busy
@given(
    st.dictionaries(KEYS, ANYTHING, max_size=4),
    st.lists(
        st.builds(lambda a, b, value: f"{a}.{b}={value}", KEYS, KEYS | st.just("0"), NAMES),
        max_size=2,
    ),
)
def test_any_file_is_loaded_or_refused_with_the_place_of_the_error(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, Any], overrides: list[str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(GOOD) | changes), encoding="utf-8")
    try:
        load(path, overrides)
    except SpecError as error:
        for line in str(error).splitlines():
            assert line.startswith((f"{path}:", "--set "))


def test_encodings_and_pulls_may_be_set_for_all_or_per_algorithm(
    good: Path,
) -> None:
    spec = load(
        good,
        [
            "encoding=compact-16",
            "encoding.compression=zstd",
            "algorithms.asgd.encoding=plain",
            "algorithms.adacomp.encoding={indices: rice, values: int8}",
            "algorithms.adacomp.pulls=changed",
        ],
    )
    assert spec.encoding == EncodingChoice(values="float16", compression="zstd")
    assert list(spec.runs()) == [
        "asgd-plain",
        "comp-asgd-0.01",
        "adacomp-0.01-rice-int8-changed-pulls",
    ]
    plans = {plan.label: plan.settings for plan in plan(spec)}
    assert plans["asgd-plain"].encoding.indices == "uint32"
    assert plans["asgd-plain"].pulls == "full"
    assert plans["comp-asgd-0.01"].encoding == spec.encoding
    assert plans["adacomp-0.01-rice-int8-changed-pulls"].encoding.values == "int8"
    assert plans["adacomp-0.01-rice-int8-changed-pulls"].pulls == "changed"
    told = to_plain(plans["asgd-plain"])
    assert json.loads(json.dumps(told)) == told


@given(ENCODINGS)
def test_an_encoding_has_the_name_of_no_other_encoding(fields: Any) -> None:
    choice = EncodingChoice.model_validate(fields)
    others = [EncodingChoice.model_validate(name) for name in SHORT_NAMES]
    assert all(other == choice or other.name != choice.name for other in others) or (
        choice.compression == "none" and choice.level != 3  # the level is unused then
    )
    if isinstance(fields, str):
        assert choice.name == fields


@pytest.mark.parametrize("name", ["x" * 300, "~nobody-of-this-name/x", "a\\0b", "x/" * 3000])
@pytest.mark.parametrize(
    "text",
    [
        "dataset: {}",
        "dataset: {{name: text, path: {}}}",
        "compute: {{distribution: trace, file: {}}}",
        "network: {{trace: {}}}",
        "network: {{graph: {{file: {}}}}}",
        "devices: {{workers: 2, presence: {}}}",
        "faults: [{{when: {{trace: {}}}, how: kill}}]",
        "plugins: [{}]",
    ],
)
def test_a_name_that_no_file_can_have_is_one_of_no_file(text: str, name: str) -> None:
    said = text.format(f'"{name}"')
    rest = {"dataset: digits", "devices: {workers: 2}"}
    given = [one for one in sorted(rest) if not said.startswith(one.partition(":")[0])]
    fixed = "name: x\nmodel: mlp\ntraining: {updates: 3}\nalgorithms: [asgd]\n"
    with pytest.raises(SpecError, match=r"^x\.yaml:\d+: "):
        parse("\n".join([fixed, *given, said, ""]), Path("x.yaml"))
