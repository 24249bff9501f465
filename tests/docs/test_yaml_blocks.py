"""The YAML blocks, each as an experiment file or as a part of one, loaded and planned."""

from pathlib import Path

import pytest
import yaml

from testbed.experiment.load import load
from testbed.planning.plan import plan
from tests.docs.blocks import Block, blocks

AROUND = {
    "name": "block",
    "dataset": "digits",
    "model": "mlp",
    "training": {"updates": 10},
    "algorithms": ["asgd"],
    "devices": {"workers": 200},
}
"""What a block that is a part of an experiment file stands in; its own keys take the place of these."""
OF_OWN_ALGORITHMS = "experiments/four-shapes.yaml"
"""Carried out where its algorithms are: ``test_python_blocks``."""


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_it_is_an_experiment_file_or_a_part_of_one(block: Block, tmp_path: Path) -> None:
    if block.path == OF_OWN_ALGORITHMS:
        pytest.skip("its algorithms are the Python blocks of the same page")
    for table in blocks("csv"):
        (tmp_path / "outages.csv").write_text(table.text, encoding="utf-8")
    # As text: a key given twice, or a typing error, must not be made good by reading and writing it.
    own = yaml.safe_load(block.text)
    rest = {key: value for key, value in AROUND.items() if key not in own}
    path = tmp_path / "block.yaml"
    path.write_text(
        block.text + (yaml.safe_dump(rest, sort_keys=False) if rest else ""), encoding="utf-8"
    )
    plans = plan(load(path))
    assert len(plans) == len(own.get("algorithms", AROUND["algorithms"]))
