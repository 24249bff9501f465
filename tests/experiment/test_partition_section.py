"""The experiment file's section ``partition``: short forms, defaults and refusals."""

import hashlib
from pathlib import Path

import jsonschema
import pytest
from pydantic import TypeAdapter

from testbed.errors import SpecError
from testbed.experiment.load import dump, load, load_resolved
from testbed.experiment.sections.partition import PartitionSpec
from testbed.experiment.spec import Spec
from testbed.planning.images import share_out
from testbed.planning.node_plan import files_read
from testbed.planning.plan import plan

BASE = """
name: parts
dataset: digits
model: mlp
training: {updates: 100}
algorithms: [asgd]
devices: {workers: 4, classes: [{name: a, number: 3, weight: 2}, {name: b, number: 1, weight: 0.5}]}
"""
WITHOUT = BASE.replace(", weight: 2", "").replace(", weight: 0.5", "")


def read(tmp_path: Path, text: str) -> Spec:
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    return load(path)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("", {"kind": "equal"}),
        ("partition: equal", {"kind": "equal"}),
        ("partition: shards", {"kind": "shards", "per_worker": 2}),
        ("partition: {kind: shards, per_worker: 3}", {"kind": "shards", "per_worker": 3}),
        ("partition: {kind: dirichlet, alpha: 0.5}", {"kind": "dirichlet", "alpha": 0.5}),
        ("partition: {kind: inner-dirichlet, alpha: 2.0}",
         {"kind": "inner-dirichlet", "alpha": 2.0, "sizes": None}),
        ("partition: pathological",
         {"kind": "pathological", "classes_per_worker": 2, "class_assignment": "random"}),
        ("partition: linear", {"kind": "linear"}),
        ("partition: exponential", {"kind": "exponential", "ratio": None}),
        ("partition: {kind: natural, by: writer_id}",
         {"kind": "natural", "by": "writer_id", "file": None, "per_worker": None, "sha256": None}),
    ],
)  # fmt: skip
def test_settings_hold_the_partition_with_its_defaults(
    tmp_path: Path, text: str, plain: dict[str, object]
) -> None:
    spec = read(tmp_path, WITHOUT + text)
    (one,) = plan(spec)
    assert one.settings.partition == plain
    assert read(tmp_path, dump(spec)) == spec


def test_sizes_resolve_to_a_weight_for_each_device(tmp_path: Path) -> None:
    (one,) = plan(read(tmp_path, BASE + "partition: sizes"))
    expected = [(2.0, 0.5)[of] for of in one.settings.class_of]
    assert one.settings.partition == {"kind": "sizes", "weights": expected}
    assert sorted(expected) == [0.5, 2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("partition: shard",
         "partition: 'shard' is not one of equal, dirichlet, inner-dirichlet, pathological, shards, "
         "sizes, linear, exponential, natural, file, same, stream; did you mean 'shards'?"),
        ("partition: {kind: shard}",
         "partition.kind: 'shard' is not one of equal, dirichlet, inner-dirichlet, pathological, "
         "shards, sizes, linear, exponential, natural, file, same, stream; did you mean 'shards'?"),
        ("partition: 3", "partition: must be a name or a mapping, not 3"),
        ("partition: dirichlet",
         "partition.alpha: is missing: 'dirichlet' needs it; for example `alpha: 0.5`"),
        ("partition: {kind: dirichlet, alpha: 0}", "partition.alpha: must be at least 1e-09, not 0"),
        ("partition: {kind: equal, alpha: 0.5}",
         "partition.alpha: is an option of 'dirichlet' and 'inner-dirichlet', and the kind is 'equal': "
         "remove it, or write `kind: dirichlet`"),
        ("partition: {alpha: 0.5}",
         "partition.alpha: is an option of 'dirichlet' and 'inner-dirichlet', and the kind is 'equal': "
         "remove it, or write `kind: dirichlet`"),
        ("partition: {kind: shards, per_worker: 0}",
         "partition.per_worker: must be at least 1, not 0"),
        ("partition: {kind: shards, perworker: 2}",
         "partition.perworker: unknown key; did you mean 'per_worker'?"),
        ("partition: {file: none.txt}", "partition.file: there is no file 'none.txt'"),
        ("partition: natural",
         "partition: has neither `by` nor `file`: give it the column, or the file, that has each "
         "image's owner"),
        ("partition: {kind: inner-dirichlet, alpha: 1, sizes: [3, 4]}",
         "partition.sizes: has 2 sizes, and there are 4 workers: give each one"),
        ("partition: {kind: inner-dirichlet, alpha: 1, sizes: [3, 4, 0, 1]}",
         "partition.sizes.2: must be at least 1, not 0"),
        ("partition: {kind: exponential, ratio: 1}", "partition.ratio: must be more than 1, not 1"),
        ("partition: {kind: pathological, class_assignment: first}",
         "partition.class_assignment: 'first' is not one of random, deterministic, "
         "first-deterministic"),
        ("partition: sizes",
         "devices.classes.0: has no weight, and `partition: sizes` needs one; for example "
         "`weight: 3`"),
    ],
)  # fmt: skip
def test_an_impossible_partition_is_refused_with_its_place(
    tmp_path: Path, text: str, expected: str
) -> None:
    with pytest.raises(SpecError) as refused:
        read(tmp_path, WITHOUT + text)
    first = str(refused.value).splitlines()[0]
    assert first.partition(": ")[2] == expected


def test_sizes_need_classes_of_devices(tmp_path: Path) -> None:
    text = BASE.replace(BASE.splitlines()[-1], "devices: {workers: 4}")
    with pytest.raises(SpecError, match=r"partition: sizes go by the weights of devices\.classes"):
        read(tmp_path, text + "\npartition: sizes")


def test_a_file_alone_is_a_partition_and_its_digest_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "parts.txt"
    path.write_text("0\n1\n2\n3\n")
    spec = read(tmp_path, WITHOUT + "partition: {file: parts.txt}")
    (one,) = plan(spec)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    expected = {"kind": "file", "file": str(path), "sha256": digest}
    assert one.settings.partition == expected
    assert (path, None) in files_read(one)
    (tmp_path / "resolved.yaml").write_text(dump(spec))
    path.write_text("0\n1\n2\n4\n")
    (again,) = plan(load_resolved(tmp_path / "resolved.yaml"))
    assert again.settings.partition == expected
    with pytest.raises(SpecError, match="has changed since the experiment was begun"):
        share_out(again)
    text = WITHOUT.replace("digits", "{name: digits, train_images: 500}")
    with pytest.raises(SpecError, match=r"dataset.train_images: partition.file is about all"):
        read(tmp_path, text + "partition: {file: parts.txt}")


def test_the_schema_accepts_what_files_may_say() -> None:
    schema = TypeAdapter(PartitionSpec).json_schema()
    for good in ({"file": "parts.txt"}, "linear", {"kind": "natural", "by": "writer"}):
        jsonschema.validate(good, schema)
    for bad in ({"file": "parts.txt", "alpha": 1}, "file.txt", {"kind": "natural", "alpha": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, schema)
