"""Servers of whole tensors or layers in the experiment file: shares, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.cli.plan_text import as_json, describe
from testbed.errors import SpecError
from testbed.experiment.load import dump, load
from testbed.planning.plan import Plan, plan

BASE: dict[str, Any] = {
    "name": "allocation",
    "dataset": "digits",
    "model": "mlp",
    "training": {"updates": 100},
    "algorithms": ["asgd"],
}


def written(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(BASE | changes), encoding="utf-8")
    return path


def planned(tmp_path: Path, allocation: str, servers: int = 3, **changes: Any) -> Plan:
    devices = {"workers": 4, "servers": servers, "allocation": allocation}
    (one,) = plan(load(written(tmp_path, devices=devices, **changes)))
    return one


@pytest.mark.parametrize(
    ("allocation", "shares"),
    [
        ("ranges", ["36,462 parameters, 146 kB"] * 3),
        (
            "tensors",
            [
                "100,416 parameters, 402 kB, of 2 tensors",
                "768 parameters, 3.07 kB, of 2 tensors",
                "8,202 parameters, 32.8 kB, of 2 tensors",
            ],
        ),
        (
            "layers",
            [
                "100,480 parameters, 402 kB, of 2 tensors",
                "8,256 parameters, 33.0 kB, of 2 tensors",
                "650 parameters, 2.60 kB, of 2 tensors",
            ],
        ),
    ],
)
def test_the_plan_tells_each_servers_share(
    tmp_path: Path, allocation: str, shares: list[str]
) -> None:
    emulated = planned(tmp_path, allocation)
    lines = [line for line in describe([emulated]) if "  server-" in line]
    assert [line.split(maxsplit=2)[2].split(";")[0] for line in lines] == shares
    how: dict[str, Any] = {"compute": {"distribution": "constant", "mean": "10ms"}}
    simulated = planned(tmp_path, allocation, engine="simulation", clock="virtual", **how)
    lines = [line for line in describe([simulated]) if line.startswith("  server-")]
    assert [line.split(maxsplit=1)[1] for line in lines] == shares
    told = as_json(emulated)["servers"]
    assert [one["name"] for one in told] == ["server-0", "server-1", "server-2"]
    assert sum(one["bytes"] for one in told) == 4 * 109_386
    if allocation == "tensors":
        assert told[1]["tensors"] == ["dense1.bias", "dense3.weight"]


def test_the_default_is_not_in_a_resolved_file(tmp_path: Path) -> None:
    assert "allocation:" not in dump(planned(tmp_path, "ranges").spec)
    assert "allocation: layers" in dump(planned(tmp_path, "layers").spec)


@pytest.mark.parametrize(
    ("allocation", "servers", "text"),
    [
        ("tensors", 7, "devices.servers: mlp has 6 tensors, and each server needs one: use fewer"),
        ("layers", 4, "devices.servers: mlp has 3 layers, and each server needs one: use fewer"),
        ("round-robin", 2, "devices.allocation: "),
    ],
)
def test_a_server_without_a_tensor_is_refused(
    tmp_path: Path, allocation: str, servers: int, text: str
) -> None:
    with pytest.raises(SpecError, match=text):
        planned(tmp_path, allocation, servers)


def test_no_server_may_have_running_statistics_only(tmp_path: Path) -> None:
    """ResNet-20 has 59 tensors of parameters, and 38 more of shared running statistics."""
    model = {"name": "resnet20", "buffers": "shared"}
    assert len(planned(tmp_path, "tensors", 59, model=model).servers) == 59
    with pytest.raises(SpecError, match="resnet20 has 59 tensors"):
        planned(tmp_path, "tensors", 60, model=model)
