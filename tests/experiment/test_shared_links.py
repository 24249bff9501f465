"""The server's own link and clusters in the experiment file: who is where, and what is refused."""

from pathlib import Path

import pytest
import yaml

from testbed.errors import SpecError
from testbed.experiment.load import dump, load
from testbed.network.links import CORE, MOST_PAIRS, Shape
from testbed.planning.plan import Plan, plan
from testbed.planning.routes import routes

BASE = """
name: shared
dataset: digits
model: mlp
training: {updates: 100}
algorithms: [asgd]
"""
TEN = "devices: {workers: 10}\n"
CLUSTERS = """
network:
  uplink: 10mbit
  server: {uplink: 1gbit, delay: 1ms}
  clusters:
    - {name: campus, share: 60%, uplink: 100mbit, downlink: 300mbit, delay: 5ms}
    - {name: village, share: 40%, uplink: 20mbit}
"""
CLASSES = """
devices:
  workers: 10
  classes: [{name: fast, share: 50%}, {name: slow, share: 30%}, {name: old, share: 20%}]
"""


def planned(tmp_path: Path, text: str, *overrides: str, devices: str = TEN) -> Plan:
    path = tmp_path / "spec.yaml"
    path.write_text(BASE + devices + text)
    (one,) = plan(load(path, overrides))
    return one


def refused(tmp_path: Path, clusters: str, *overrides: str) -> str:
    with pytest.raises(SpecError) as error:
        planned(tmp_path, f"network: {{clusters: [{clusters}]}}\n", *overrides)
    return str(error.value).partition("spec.yaml:")[2].partition(": ")[2]


def test_devices_of_a_cluster_are_behind_its_router(tmp_path: Path) -> None:
    one = planned(tmp_path, CLUSTERS)
    network = one.network
    routers = [network.link(worker).router for worker in one.workers]
    assert routers == ["campus"] * 6 + ["village"] * 4
    assert network.link("server").router == network.link("evaluator").router == CORE
    assert network.link("server").uplink == Shape(10**9, 0.001)
    campus, village = network.links[-2:]
    assert (campus.node, campus.router) == ("campus", CORE)
    assert (campus.uplink, campus.downlink) == (Shape(10**8, 0.005), Shape(3 * 10**8))
    assert (village.uplink, village.downlink) == (Shape(2 * 10**7), Shape())
    # What is not shaped needs no fair queues: the server's downlink, the village's.
    assert set(one.shared) == {(0, True), (campus.index, True), (campus.index, False)} | {
        (village.index, True)
    }
    assert one.shared[campus.index, False] == [("server", f"worker-{i}") for i in range(6)]
    assert len(one.shared[0, True]) == 10


def test_addresses_of_devices_do_not_depend_on_clusters(tmp_path: Path) -> None:
    with_clusters, without = planned(tmp_path, CLUSTERS), planned(tmp_path, "")
    for device in without.network.devices:
        assert with_clusters.network.link(device).address == without.network.link(device).address


def test_without_these_keys_a_file_is_dumped_without_them(tmp_path: Path) -> None:
    without = yaml.safe_load(dump(planned(tmp_path, "").spec))
    assert not {"server", "clusters"} & set(without["network"])
    given = yaml.safe_load(dump(planned(tmp_path, CLUSTERS).spec))["network"]
    assert given["server"] == {"uplink": "1gbit", "delay": "1ms"}
    assert given["clusters"][1] == {"name": "village", "share": "40%", "uplink": "20mbit"}


def test_classes_can_be_put_into_clusters(tmp_path: Path) -> None:
    clusters = "{name: a, classes: [fast, old]}, {name: b, classes: [slow]}"
    one = planned(tmp_path, f"network: {{clusters: [{clusters}]}}\n", devices=CLASSES)
    classes = [one.spec.devices.classes[i].name for i in one.settings.class_of]
    routers = [one.network.link(worker).router for worker in one.workers]
    assert routers == ["b" if name == "slow" else "a" for name in classes]


def test_a_share_that_is_too_small_for_a_device_makes_no_router(tmp_path: Path) -> None:
    clusters = "{name: all, share: 99%}, {name: nobody, share: 1%}"
    one = planned(tmp_path, f"network: {{clusters: [{clusters}]}}\n")
    assert one.network.routers == (CORE, "all")
    assert "nobody" not in one.network.devices


@pytest.mark.parametrize(
    ("clusters", "said"),
    [
        ("{name: a, share: 50%}", "the shares add up to 50% and not to 100%"),
        ("{name: a, number: 4}", "the numbers add up to 4 and not to devices.workers, 10"),
        ("{name: a}", "give it its devices, in one way: a share, a number, or classes"),
        ("{name: a, share: 1, number: 10}", "give it its devices, in one way: a share, a number"),
        ("{name: a, share: 50%}, {name: b, number: 5}", "their devices are given in several ways"),
        (
            "{name: a, number: 5}, {name: a, number: 5}",
            "'a' is already the name of network.clusters.0",
        ),
        *(
            (
                f"{{name: {name}, share: 1}}",
                f"'{name}' is the name of a node that every run may have",
            )
            for name in ("core", "server", "evaluator", "coordinator")
        ),
        *(
            (f"{{name: {role}-3, share: 1}}", "-3' is the name of a node that every run may have")
            for role in ("server", "worker", "peer", "aggregator", "machine")
        ),
        ("{name: a b, share: 1}", "'a b' cannot be a cluster's name: use up to 64 letters"),
        ("{name: a, classes: [fast]}", "there is no class 'fast' in devices.classes: none"),
        ("{name: a, share: 1, inside: b}", "there is no cluster 'b': a"),
        ("{name: a, share: 1, inside: a}", "'a' is inside itself: take this out"),
        (
            "{name: a, inside: b}, {name: b, number: 10, inside: a}",
            "'a' is inside itself: take this out",
        ),
    ],
)
def test_a_wrong_cluster_is_refused_in_one_sentence(
    tmp_path: Path, clusters: str, said: str
) -> None:
    assert said in refused(tmp_path, clusters)


NESTED = """
network:
  uplink: 10mbit
  clusters:
    - {name: region, uplink: 1gbit, delay: 10ms}
    - {name: campus, inside: region, number: 6, uplink: 100mbit, delay: 5ms}
    - {name: village, inside: town, number: 1}
    - {name: town, number: 3, uplink: 20mbit}
"""


def test_a_cluster_may_be_inside_another_one(tmp_path: Path) -> None:
    network = planned(tmp_path, NESTED).network
    routers = {link.node: link.router for link in network.links if link.node in network.routers}
    assert routers == {"region": CORE, "campus": "region", "village": "town", "town": CORE}
    passed = [
        network.links_by_index[index].node for index, _ in network.route("worker-0", "server")
    ]
    assert passed == ["worker-0", "campus", "region", "server"]
    assert network.link("worker-6").router == "village"
    assert network.link("worker-9").router == "town"


def test_a_cluster_around_one_without_devices_makes_no_router(tmp_path: Path) -> None:
    text = """
network:
  clusters:
    - {name: region}
    - {name: none, inside: region, share: 1%}
    - {name: all, share: 99%}
"""
    assert planned(tmp_path, text).network.routers == (CORE, "all")


def test_a_cluster_that_only_begins_like_a_device_is_a_router(tmp_path: Path) -> None:
    clusters = "network: {clusters: [{name: server-room, share: 1, uplink: 10mbit}]}\n"
    (found,) = routes(planned(tmp_path, clusters))
    assert found.there.limit == "uplink of server-room"


def test_a_class_must_be_in_exactly_one_cluster(tmp_path: Path) -> None:
    def of(*clusters: str) -> str:
        names = ", ".join(f"{{name: c{i}, classes: [{one}]}}" for i, one in enumerate(clusters))
        with pytest.raises(SpecError) as error:
            planned(tmp_path, f"network: {{clusters: [{names}]}}\n", devices=CLASSES)
        return str(error.value)

    assert "class 'old' is in no cluster: add it to the classes of one" in of("fast", "slow")
    twice = of("fast, slow", "slow, old")
    assert "class 'slow' is in network.clusters.0 already: take it out" in twice


def test_peers_have_no_server_whose_link_could_be_shaped(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"peers \(all-to-all\) have no server: take it out"):
        planned(tmp_path, "network: {server: {uplink: 1gbit}}\n", "algorithms=[all-to-all]")


def test_more_conversations_than_queues_are_refused(tmp_path: Path) -> None:
    text = "network: {server: {uplink: 1gbit}}\n"
    with pytest.raises(SpecError, match=r"5,000 conversations of 'asgd' share the link of server"):
        planned(tmp_path, text, "devices.workers=5000", "dataset=mnist")
    planned(tmp_path, text, f"devices.workers={MOST_PAIRS}", "dataset=mnist")
    slow = "network: {server: {uplink: 20kbit}}\n"
    with pytest.raises(
        SpecError, match=r"100 conversations .* have room for 41 at 20kbit: use fewer"
    ):
        planned(tmp_path, slow, "devices.workers=100", "dataset=mnist")
    planned(tmp_path, slow, "devices.workers=41", "dataset=mnist")
    simulated = ("engine=simulation", "clock=virtual", "compute={mean: 1s}")
    planned(tmp_path, slow, "devices.workers=100", "dataset=mnist", *simulated)
