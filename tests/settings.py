"""Settings of runs for tests, changed value by value."""

from dataclasses import fields, replace
from typing import Any

from testbed.training.settings import (
    DataSettings,
    DeviceSettings,
    FaultSettings,
    NetworkSettings,
    Settings,
    TimingSettings,
    TrainingSettings,
)

RECORDS = {
    "training": TrainingSettings,
    "data": DataSettings,
    "timing": TimingSettings,
    "network": NetworkSettings,
    "faults": FaultSettings,
    "devices": DeviceSettings,
}


def with_changes(settings: Settings, **changes: Any) -> Settings:
    """Return settings with other values, each given by its field's name in any of the records."""
    own = {field.name for field in fields(Settings)} - RECORDS.keys()
    changed: dict[str, Any] = {key: value for key, value in changes.items() if key in own}
    for name, record in RECORDS.items():
        of_record = {f.name for f in fields(record)} & changes.keys()
        values = {key: changes[key] for key in of_record}
        changed[name] = replace(getattr(settings, name), **values)
    unknown = changes.keys() - own - {f.name for r in RECORDS.values() for f in fields(r)}
    assert not unknown, f"no settings: {', '.join(sorted(unknown))}"
    return replace(settings, **changed)


SIMPLE = Settings(
    seed=1,
    workers=1,
    training=TrainingSettings(
        algorithm={"name": "asgd"},
        encoding={},
        pulls="full",
        batch_size=10,
        learning_rate=0.1,
        updates=4,
        evaluate_every=2,
    ),
    data=DataSettings(
        dataset="digits",
        scaling="standardised",
        train_images=None,
        partition={"kind": "equal"},
        evaluation_images=None,
        model="mlp",
        initialisation="paper",
        batched=False,
        device="cpu",
    ),
    timing=TimingSettings(
        clock="wall", suspect_after=None, gradient_time=None, own_processors=False
    ),
    network=NetworkSettings(
        server_addresses=["127.0.0.1"], peer_addresses=(), evaluated_peer=0, secret=bytes(32).hex()
    ),
    faults=FaultSettings(()),
    devices=DeviceSettings(
        compute={"distribution": "constant", "mean": 0.0},
        waiting={"distribution": "constant", "mean": 0.0},
        uplink=None,
        downlink=None,
        delay=0.0,
    ),
    classes=(),
    class_of=(),
)
"""Settings of ASGD with one worker, which never waits."""
