"""Mistakes in an encoding of a user's own are found before a start."""

from pathlib import Path

import pytest
import yaml

from testbed.errors import SpecError
from testbed.experiment.load import load
from testbed.planning.encoding_check import check_encoding
from testbed.planning.plan import plan

OWN = """
import numpy as np
from testbed.updates import DenseUpdate, SparseUpdate


class Exact:
    lossy = False

    def __init__(self, sizes):
        self.total = sum(sizes)

    def longest(self):
        return 4 * self.total

    def encode(self, update):
        if isinstance(update, SparseUpdate):
            raise ValueError("dense ones only")
        return update.values.tobytes()

    def decode(self, body):
        return DenseUpdate(np.frombuffer(body, np.float32).copy())


class Forgets(Exact):
    def decode(self, body):
        return DenseUpdate(np.zeros(self.total, np.float32))


class Counts(Exact):
    lossy = True
    count = 0

    def encode(self, update):
        Counts.count += 1
        return bytes([Counts.count])


class Short(Exact):
    def decode(self, body):
        return DenseUpdate(np.frombuffer(body, np.float32)[1:])


class Fails(Exact):
    def __init__(self, sizes, needed):
        pass
"""


def check(folder: Path, name: str, algorithm: object = "asgd") -> None:
    (folder / "own_encodings.py").write_text(OWN)
    spec = {
        "name": "own",
        "dataset": "digits",
        "model": "mlp",
        "training": {"updates": 2},
        "plugins": ["own_encodings.py"],
        "algorithms": [algorithm],
        "devices": {"workers": 2},
        "encoding": f"own_encodings:{name}",
    }
    (folder / "own.yaml").write_text(yaml.safe_dump(spec))
    (one,) = plan(load(folder / "own.yaml"))
    check_encoding(one)


@pytest.mark.parametrize("algorithm", ["asgd", "all-to-all"])
def test_one_that_keeps_its_word_passes(tmp_path: Path, algorithm: str) -> None:
    check(tmp_path, "Exact", algorithm)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Forgets", "a dense update is another one when it is read: set lossy = True"),
        ("Counts", r"encode\(\) gives a dense update other bytes the second time"),
        (
            "Short",
            r"does not read a body of 437544 bytes: .* which it has written of a dense update",
        ),
        ("Fails", r"encoding own_encodings:Fails fails: TypeError: .*needed"),
    ],
)
def test_one_that_does_not_is_told(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        check(tmp_path, name)


def test_an_algorithm_whose_updates_it_refuses_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"refuses a sparse update .*dense ones only"):
        check(tmp_path, "Exact", {"name": "adacomp", "ratio": 0.01})
