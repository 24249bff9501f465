"""A link's values by direction, its profile and its rate: what they mean, and what is refused."""

import re
from pathlib import Path

import pytest
import yaml

from testbed.errors import SpecError
from testbed.experiment.load import dump, load, load_resolved
from testbed.experiment.profiles import HARDWARE, LINKS
from testbed.experiment.spec import Spec
from testbed.network.links import Shape
from testbed.planning.plan import plan

BASE = """
name: directions
dataset: digits
model: mlp
training: {updates: 10}
algorithms: [asgd]
"""
TWO = "devices: {workers: 2}\n"


def read(tmp_path: Path, text: str, devices: str = TWO) -> Spec:
    path = tmp_path / "spec.yaml"
    path.write_text(BASE + devices + text)
    spec = load(path)
    resolved = tmp_path / "resolved.yaml"
    resolved.write_text(dump(spec))
    assert load_resolved(resolved) == spec
    return spec


def refused(tmp_path: Path, text: str, devices: str = TWO) -> str:
    with pytest.raises(SpecError) as error:
        read(tmp_path, text, devices)
    return "\n".join(line.partition(": ")[2] for line in str(error.value).splitlines())


def network(tmp_path: Path, keys: str) -> tuple[Shape, Shape]:
    spec = read(tmp_path, f"network: {{{keys}}}\n")
    (one,) = plan(spec)
    link = one.network.link("worker-1")
    assert (link.uplink, link.downlink) == spec.link_of(None).first_shapes()
    return link.uplink, link.downlink


def test_a_plain_delay_or_loss_is_the_uplinks_and_is_dumped_plainly(tmp_path: Path) -> None:
    text = "network: {uplink: 1mbit, delay: 20ms, loss: 1%}\n"
    spec = read(tmp_path, text)
    assert spec.link_of(None).first_shapes() == (Shape(1_000_000, 0.02, 0.01), Shape())
    assert yaml.safe_load(dump(spec))["network"] == {
        "uplink": "1mbit",
        "downlink": None,
        "delay": "20ms",
        "loss": "1%",
    }


@pytest.mark.parametrize(
    ("keys", "up", "down"),
    [
        ("delay: {up: 5ms, down: 7ms}", Shape(delay=0.005), Shape(delay=0.007)),
        ("delay: {down: 7ms}", Shape(), Shape(delay=0.007)),
        ("delay: 5ms, jitter: 2ms", Shape(delay=0.005, jitter=0.002), Shape()),
        ("loss: {down: 2%}", Shape(), Shape(loss=0.02)),
        (
            "uplink: 1mbit, downlink: 2mbit, queue: 9kB",
            Shape(1_000_000, queue=9000),
            Shape(2_000_000, queue=9000),
        ),
        ("uplink: 1mbit, queue: {up: 9kB}", Shape(1_000_000, queue=9000), Shape()),
        ("uplink: unlimited, downlink: Unlimited", Shape(), Shape()),
    ],
)
def test_each_direction_may_have_its_own(tmp_path: Path, keys: str, up: Shape, down: Shape) -> None:
    assert network(tmp_path, keys) == (up, down)


def test_a_class_replaces_single_directions_and_a_limit(tmp_path: Path) -> None:
    devices = """
devices:
  workers: 3
  classes:
    - {name: far, number: 1, delay: {down: 40ms}}
    - {name: fast, number: 1, uplink: unlimited, delay: 0s}
    - {name: other, number: 1}
"""
    spec = read(tmp_path, "network: {uplink: 1mbit, delay: {up: 5ms, down: 7ms}}\n", devices)
    far, fast, other = (spec.link_of(one).first_shapes() for one in spec.devices.classes)
    assert far == (Shape(1_000_000, 0.005), Shape(delay=0.04))
    assert fast == (Shape(), Shape())
    assert (
        other == spec.link_of(None).first_shapes() == (Shape(1_000_000, 0.005), Shape(delay=0.007))
    )


@pytest.mark.parametrize("name", LINKS)
def test_every_profile_can_be_used_everywhere(tmp_path: Path, name: str) -> None:
    devices = f"devices: {{workers: 2, classes: [{{name: a, share: 100%, profile: {name}}}]}}\n"
    cluster = f"{{name: c, share: 100%, profile: {name}}}"
    text = f"network: {{server: {{profile: {name}}}, clusters: [{cluster}]}}\n"
    spec = read(tmp_path, text, devices)
    up, down = spec.link_of(spec.devices.classes[0]).first_shapes()
    assert up.rate and down.rate and up.rate <= down.rate
    assert up.delay >= up.jitter > 0 and down.delay >= down.jitter > 0
    (one,) = plan(spec)
    for link in (*map(one.network.link, ("server", "worker-0")), one.network.links[-1]):
        assert (link.uplink, link.downlink) == (up, down)


def test_other_keys_replace_what_a_profile_gives(tmp_path: Path) -> None:
    up, down = network(tmp_path, "profile: starlink")
    keys = "profile: starlink, downlink: unlimited, delay: {up: 9ms}, loss: 0%, queue: {up: 64kB}"
    assert network(tmp_path, keys) == (
        Shape(up.rate, 0.009, jitter=up.jitter, queue=64_000),
        Shape(None, down.delay, jitter=down.jitter),
    )


def test_a_profile_of_a_class_replaces_all_of_networks_link(tmp_path: Path) -> None:
    devices = "devices: {workers: 2, classes: [{name: a, share: 100%, profile: dsl}]}\n"
    spec = read(tmp_path, "network: {uplink: 9mbit, loss: {down: 3%}, delay: 99ms}\n", devices)
    alone = read(tmp_path, "network: {profile: dsl}\n")
    assert (
        spec.link_of(spec.devices.classes[0]).first_shapes() == alone.link_of(None).first_shapes()
    )


def test_hardware_multiplies_the_mean_of_the_general_time_to_compute(tmp_path: Path) -> None:
    devices = """
devices:
  workers: 3
  hardware: raspberry-pi-5
  classes:
    - {name: slow, number: 1, hardware: raspberry-pi-4}
    - {name: same, number: 1}
    - {name: own, number: 1, compute: {mean: 7ms}, hardware: jetson-nano}
"""
    spec = read(tmp_path, "compute: {distribution: exponential, mean: 20ms}\n", devices)
    (one,) = plan(spec)
    means = [compute.model_dump()["mean"] for compute, _ in one.settings.times_of_kinds]
    factors = [HARDWARE[name].factor for name in ("raspberry-pi-4", "raspberry-pi-5")]
    assert means == pytest.approx([0.02 * factors[0], 0.02 * factors[1], 0.007])
    assert spec.compute.mean == 0.02  # type: ignore[union-attr]
    assert HARDWARE["server-core"].factor == 1


def test_hardware_gives_containers_its_memory_unless_they_have_their_own(tmp_path: Path) -> None:
    devices = """
devices:
  workers: 2
  runtime: docker
  classes:
    - {name: pi, number: 1, hardware: raspberry-pi-4}
    - {name: small, number: 1, hardware: raspberry-pi-4, memory: 1GiB}
"""
    spec = read(tmp_path, "compute: {mean: 20ms}\n", devices)
    assert [one.memory for one in spec.devices.classes] == [4 * 2**30, 2**30]
    assert spec.devices.memory is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("network: {uplink: 0}", "network.uplink: at a rate of 0 nothing would pass"),
        ("network: {server: {downlink: 0bit}}", "network.server.downlink: at a rate of 0 nothing"),
        ("network: {uplink: 4bit}", "at least 250bit"),
        ("network: {uplink: none}", "'none' is not a rate: .*, or `unlimited`"),
        (
            "network: {profile: 4gg}",
            "network.profile: '4gg' is not one of dsl, .*did you mean '4g'",
        ),
        ("network: {delay: fast}", "network.delay: 'fast' is not a duration"),
        ("network: {delay: {up: fast}}", "network.delay.up: 'fast' is not a duration"),
        ("network: {delay: {upp: 1ms}}", "network.delay.upp: unknown key; did you mean 'up'"),
        ("network: {loss: {down: 100%}}", "network.loss.down: '100%' is not below 1"),
        ("network: {delay: 2ms, jitter: 3ms}", "network.jitter: the uplink's jitter is more than"),
        (
            "network: {delay: 5ms, jitter: {down: 1ms}}",
            "network.jitter: the downlink's jitter is more",
        ),
        (
            "network: {uplink: 1mbit, queue: 9kB}",
            "network.queue: .* give the downlink one, or name",
        ),
        ("network: {uplink: 1mbit, queue: 2kB}", "network.queue: '2kB' is too short"),
        (
            "network: {server: {queue: 9kB}}",
            "network.server.queue: nothing waits where there is no rate: give the link one, or take",
        ),
        (
            "clock: virtual\nnetwork: {uplink: 1mbit, loss: 1%}",
            "network.loss: nothing is lost under the virtual clock: take it out, or",
        ),
        (
            "clock: virtual\nnetwork: {profile: starlink}",
            "network.loss: .*: write `loss: 0%` beside `profile: starlink`, which gives it, or",
        ),
        (
            "clock: virtual\nnetwork: {uplink: 1mbit, queue: {up: 9kB}}",
            "network.queue: queues are never full under the virtual clock",
        ),
        (
            "clock: virtual\nnetwork: {uplink: 1mbit, server: {loss: 1%}}",
            "network.server.loss: nothing is lost",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    told = refused(tmp_path, text + "\n")
    assert re.search(said, told), told
    assert "\n" not in told


def test_hardware_without_a_time_to_compute_is_refused(tmp_path: Path) -> None:
    told = refused(tmp_path, "", "devices: {workers: 2, hardware: phone}\n")
    assert told.startswith("devices.hardware: it multiplies the mean of `compute`")
    devices = "devices: {workers: 2, classes: [{name: a, share: 100%, hardware: pi}]}\n"
    told = refused(tmp_path, "compute: {mean: 1ms}\n", devices)
    assert told.startswith("devices.classes.0.hardware: 'pi' is not one of server-core, phone")


@pytest.mark.parametrize("key", ["delay", "jitter", "loss", "queue"])
@pytest.mark.parametrize("text", ["{}", "{up: null, down: null}"])
def test_two_directions_without_a_value_are_read_as_such_again(
    tmp_path: Path, key: str, text: str
) -> None:
    assert read(tmp_path, f"network: {{{key}: {text}}}\n").link_of(None).first_shapes() == (
        Shape(),
        Shape(),
    )
