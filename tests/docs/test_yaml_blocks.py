"""The YAML blocks, each an experiment file or a part of one, are loaded and planned."""

from pathlib import Path

import pytest
import yaml

from testbed.experiment.combinations import load_sweep
from testbed.experiment.load import load_any
from testbed.orchestrator.hosts.hosts_file import HostsFile
from testbed.planning.plans import plans_of
from tests.docs.blocks import Block, blocks

AROUND = {
    "name": "block",
    "dataset": "digits",
    "model": "mlp",
    "training": {"updates": 10},
    "algorithms": ["asgd"],
    "devices": {"workers": 200},
}
"""The experiment file around a block that is a part of one; the block's keys replace these."""
AROUND_PROGRAMS = {"name": "block", "devices": {"workers": 20}}
"""The same of a block with programs."""
OF_OWN_ALGORITHMS = "experiments/four-shapes.yaml"
"""The file that ``test_python_blocks`` runs, where its algorithms exist."""


OF_HOSTS = "underlay: "
"""What the file of the hosts begins with that a run is spread over."""


def test_the_file_of_hosts_can_be_read(tmp_path: Path) -> None:
    block, of_pi = (one for one in blocks("yaml") if OF_HOSTS in one.text)
    path = tmp_path / "hosts.yaml"
    path.write_text(block.text + 'place: {"worker-10..12": b}', encoding="utf-8")
    file = HostsFile.load(path)
    assert [(one.name, one.address, one.port) for one in file.others] == [
        ("b", "10.0.0.2", 14_790),
        ("c", "10.0.0.3", 14_790),
    ]
    workers = [f"worker-{number}" for number in range(30)]
    assert file.placed(workers, {}) == dict.fromkeys(workers[10:13], "b")
    path.write_text(of_pi.text, encoding="utf-8")
    assert HostsFile.load(path).placed(workers, {}) == {"worker-3": "pi"}


@pytest.mark.parametrize(
    "block", [one for one in blocks("yaml") if OF_HOSTS not in one.text], ids=str
)
def test_a_block_is_an_experiment_file_or_a_part_of_one(block: Block, tmp_path: Path) -> None:
    if block.path == OF_OWN_ALGORITHMS:
        pytest.skip("its algorithms are the Python blocks of the same page")
    for table in blocks("csv"):
        name = "outages.csv" if "device" in table.text else "rates.csv"
        (tmp_path / name).write_text(table.text, encoding="utf-8")
    for name in ("lte.up", "lte.down"):
        (tmp_path / name).write_text("3\n17\n1200\n", encoding="utf-8")
    # As text: reading and writing it would hide a key that is given twice or a typing error.
    own = yaml.safe_load(block.text)
    around = AROUND_PROGRAMS if "programs" in own else AROUND
    rest = {key: value for key, value in around.items() if key not in own}
    for name in ("app", "flwr"):
        (tmp_path / name).mkdir()
    path = tmp_path / "block.yaml"
    path.write_text(
        block.text + (yaml.safe_dump(rest, sort_keys=False) if rest else ""), encoding="utf-8"
    )
    if "sweep" in own:
        for point in load_sweep(path).points:
            assert plans_of(point.spec)
        return
    plans = plans_of(load_any(path))
    runs = 1 if "programs" in own else len(own.get("algorithms", AROUND["algorithms"]))
    assert len(plans) == runs
