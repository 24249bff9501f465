"""Settings of runs for tests, changed value by value."""

from dataclasses import fields, replace
from typing import Any

from testbed.algorithms.learning_rate import ConstantRate
from testbed.experiment.contents import Contents
from testbed.experiment.spec import Spec
from testbed.json_dataclasses import of_plain, to_plain
from testbed.planning.plan import plan
from testbed.training.run_devices import NetworkSettings, TimingSettings
from testbed.training.settings import DeviceSettings, FaultSettings, Settings

RECORDS = {
    "timing": TimingSettings,
    "network": NetworkSettings,
    "faults": FaultSettings,
    "devices": DeviceSettings,
}
KEYS = {
    "seed": ("seed",),
    "encoding": ("encoding",),
    "pulls": ("pulls",),
    "partition": ("partition",),
    "compute": ("compute",),
    "waiting": ("waiting",),
    "batch_size": ("training", "batch_size"),
    "learning_rate": ("training", "learning_rate"),
    "updates": ("training", "updates"),
    "evaluate_every": ("evaluation", "every"),
    "evaluation_images": ("evaluation", "images"),
    "model": ("model", "name"),
    "scaling": ("dataset", "scaling"),
    "batched": ("simulation", "batched"),
    "processors": ("simulation", "processors"),
}
"""The keys of the experiment file that are changed by one name."""


def _with_keys(spec: Contents, changes: dict[str, Any]) -> Contents:
    plain = to_plain(spec)
    for name, path in KEYS.items():
        if name in changes:
            *sections, key = path
            section = plain
            for one in sections:
                section = section[one]
            section[key] = changes[name]
    if "algorithm" in changes:
        plain["algorithms"] = [changes["algorithm"]]
    return of_plain(Contents, plain)


def with_changes(settings: Settings, **changes: Any) -> Settings:
    """Return settings with other values, each given by its field's name in any of the records.

    Those of ``KEYS``, and the one algorithm, are as in the experiment file.
    """
    own = {field.name for field in fields(Settings)} - RECORDS.keys()
    changed: dict[str, Any] = {key: value for key, value in changes.items() if key in own}
    for name, record in RECORDS.items():
        of_record = {f.name for f in fields(record)} & changes.keys()
        values = {key: changes[key] for key in of_record}
        changed[name] = replace(getattr(settings, name), **values)
    unknown = changes.keys() - own - {f.name for r in RECORDS.values() for f in fields(r)}
    unknown -= {*KEYS, "algorithm"}
    assert not unknown, f"no settings: {', '.join(sorted(unknown))}"
    changed["spec"] = spec = _with_keys(settings.spec, changes)
    if isinstance(settings.rate, ConstantRate):
        (options,) = spec.algorithms
        alpha = options.learning_rate or spec.training.learning_rate
        changed["rate"] = ConstantRate(alpha)
    return replace(settings, **changed)


SIMPLE = with_changes(
    plan(
        Spec.model_validate(
            {
                "name": "simple",
                "dataset": "digits",
                "model": "mlp",
                "training": {"updates": 4},
                "evaluation": {"every": 2},
                "algorithms": ["asgd"],
                "devices": {"workers": 1},
                "waiting": {"distribution": "constant", "mean": "0s"},
            }
        )
    )[0].settings,
    server_addresses=["127.0.0.1"],
    secret=bytes(32).hex(),
)
"""Settings of ASGD with one worker, which never waits."""
