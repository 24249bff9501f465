"""The descriptors that a role in its own process is handed, one after the other."""

import os
from pathlib import Path

import pytest

from testbed.experiment.load import load
from testbed.json_dataclasses import to_plain
from testbed.planning.plan import plan
from testbed.roles.arguments import RoleArguments, RunArguments
from testbed.roles.orders import OrderChannel
from testbed.roles.sharing import SharedResources
from testbed.training.exchange import Hears
from tests.docs.blocks import REPOSITORY
from tests.loaded_modules import loaded_by


@pytest.mark.parametrize("number", [0, 1])
def test_a_peer_is_handed_the_file_of_its_states_and_its_channel(
    number: int, tmp_path: Path
) -> None:
    path = REPOSITORY / "experiments" / "agree-peers-faults.yaml"
    settings = plan(load(path))[0].settings
    keys = ("paces", "spill", *map(str, range(settings.workers)))
    files = {key: os.open(tmp_path / key, os.O_RDWR | os.O_CREAT) for key in keys}
    os.truncate(files["paces"], 8 * settings.workers)
    models = [files[str(peer)] for peer in range(settings.workers)]
    arguments: RunArguments = {
        "settings": to_plain(settings),
        "paces": files["paces"],
        "spill": [files["spill"]],
        "states": models,
    }
    shared = SharedResources.make(arguments)
    role: RoleArguments = {"role": "peer", "number": number}
    sent = [os.dup(one) for one in shared.descriptors(role)]
    handed = SharedResources.handed(settings, arguments, role, sent)
    (model,) = handed.states
    assert os.fstat(model).st_ino == os.fstat(models[number]).st_ino
    (spill,) = handed.spills
    assert os.fstat(spill).st_ino == os.fstat(files["spill"]).st_ino
    assert handed.orders is not None
    assert shared.orders is not None
    channel = handed.orders.of_device(number, OrderChannel)
    channel.report(Hears(number))
    assert shared.orders.of_clock(OrderChannel)[number].hear() == {"kind": "hears", "peer": number}
    # A role that keeps no model is handed no file for one.
    assert not set(models) & set(shared.descriptors({"role": "evaluator", "number": 9}))
    for one in files.values():
        os.close(one)


def test_what_shares_descriptors_loads_neither_sections_nor_settings() -> None:
    # The launcher of containers makes them; only roles read the experiment file, and run plug-ins.
    loaded = loaded_by("import testbed.roles.sharing")
    assert loaded & {"testbed.experiment", "testbed.training.settings", "torch"} == set()
