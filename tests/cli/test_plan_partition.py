"""The partition of images as ``testbed plan`` shows it, and the partitions that it refuses."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.cli import plan_partition
from testbed.cli.plan_text import as_json, describe
from testbed.doctor.requirements import check_data
from testbed.errors import DataError, SpecError
from testbed.experiment.spec import Spec
from testbed.learning.data import datasets
from testbed.planning.images import share_out
from testbed.planning.plan import Plan, plan
from testbed.training import computation


def planned(workers: int, **sections: Any) -> Plan:
    data: dict[str, Any] = {
        "name": "small",
        "dataset": "digits",
        "model": "mlp",
        "training": {"updates": 10},
        "algorithms": ["asgd"],
        "devices": {"workers": workers},
    }
    return plan(Spec.model_validate(data | sections, strict=True))[0]


def lines(one: Plan) -> list[str]:
    return plan_partition.describe(one, plan_partition.partitioned(one))


DIRICHLET = {"kind": "dirichlet", "alpha": 0.5}


def test_equal_parts_are_counted() -> None:
    assert lines(planned(20)) == ["images: equal; each worker has 72 to 73"]
    assert lines(planned(1)) == ["images: equal; each worker has 1,442"]


def test_the_plan_shows_the_partition_of_the_run() -> None:
    one = planned(12, partition=DIRICHLET)
    dataset = datasets.load("digits", seed=one.settings.seed)
    parts = computation.parts(one.settings, dataset.train_labels)
    title, headings, *rows = lines(one)
    assert headings.split() == ["worker", "images", *map(str, range(10))]
    assert len(rows) == 12
    shared = share_out(one)
    assert shared.by_label is not None
    assert shared.images.tolist() == [len(part) for part in parts]
    for row, part, counts in zip(rows, parts, shared.by_label, strict=True):
        assert counts.tolist() == np.bincount(dataset.train_labels[part], minlength=10).tolist()
        assert row.split()[1:] == [str(len(part)), *(str(count) for count in counts if count)]
    sizes = [len(part) for part in parts]
    labels = [len(set(dataset.train_labels[part].tolist())) for part in parts]
    most = np.array(
        [100 * np.bincount(dataset.train_labels[part]).max() / len(part) for part in parts]
    )
    assert title == (
        f"images: dirichlet, alpha 0.5; each worker has {min(sizes)} to {max(sizes)} "
        f"(median {np.median(sizes):.10g}), of {min(labels)} to {max(labels)} "
        f"(median {np.median(labels):.10g}) labels; its most frequent label has {most.min():.0f} to "
        f"{most.max():.0f} % (median {np.median(most):.0f} %) of its images"
    )


def test_many_workers_are_summed_up() -> None:
    line, headings, *rows, more = lines(planned(100, partition={"kind": "shards", "per_worker": 2}))
    assert line.startswith(
        "images: shards, per_worker 2; each worker has 14 to 16 (median 14), of 1 to "
    )
    assert headings.split()[:3] == ["worker", "images", "0"]
    assert [row.split()[0] for row in rows] == [str(i) for i in range(10)]
    assert more == "  and 90 more workers"


def test_classes_have_their_sizes() -> None:
    classes = (
        {"name": "large", "number": 2, "weight": 8.0},
        {"name": "small", "number": 4, "weight": 2.0},
    )
    one = planned(6, devices={"workers": 6, "classes": classes}, partition="sizes")
    shared = plan_partition.partitioned(one)
    assert plan_partition.by_class(one, shared) == ["481", "120"]
    table = [line.split() for line in describe([one])]
    assert ["large", "2", "481"] in table
    assert ["small", "4", "120"] in table
    record = as_json(one)["partition"]
    assert sorted(record["images"]) == [120] * 4 + [481] * 2
    assert len(record["labels"]) == 6


def test_without_the_dataset_the_rest_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESTBED_DATA", str(tmp_path))
    one = planned(20, dataset="mnist", partition=DIRICHLET)
    (line,) = lines(one)
    assert line.startswith("images: dirichlet, alpha 0.5; not counted: dataset mnist is not in ")
    assert as_json(one)["partition"] == DIRICHLET | {"images": None, "labels": None}
    with pytest.raises(DataError):
        check_data(one)


def test_a_worker_that_cannot_draw_a_mini_batch_is_named() -> None:
    classes = (
        {"name": "large", "number": 5, "weight": 100.0},
        {"name": "tiny", "number": 1, "weight": 1.0},
    )
    one = planned(6, devices={"workers": 6, "classes": classes}, partition="sizes")
    tiny = one.settings.class_of.index(1)
    with pytest.raises(SpecError, match=f"worker {tiny} has 3, fewer than a mini-batch of 10"):
        check_data(one)
    with pytest.raises(SpecError, match="1442 training images cannot be split among 145 workers"):
        check_data(planned(145, partition=DIRICHLET))
    with pytest.raises(SpecError, match=r"over 144 workers .*: use \d+ workers"):
        lines(planned(144, partition=DIRICHLET))
    check_data(planned(144, partition="equal"))
