"""Networks as branches and as lines of text: who is drawn together, and what is said."""

from dataclasses import replace

from testbed.drawing import link_labels, text_drawing
from testbed.drawing.drawn_network import Way
from testbed.drawing.tree import grown, is_tree
from tests.drawing.pictures import MBIT, clusters, grid, star


def test_devices_that_are_alike_are_one_line() -> None:
    lines = text_drawing.lines(star(200))
    assert len(lines) == 4
    assert lines[-1].startswith("└─ 200 workers, worker-0 to worker-199")
    assert lines[-1].endswith("each ↑ 10 Mbit/s, 20 ms  ↓ 50 Mbit/s")


def test_devices_of_other_classes_or_links_are_lines_of_their_own() -> None:
    picture = star(4)
    wires = [*picture.wires[:-1], replace(picture.wires[-1], up=Way(1 * MBIT))]
    classes = {"worker-0": "phones", "worker-1": "boards", "worker-2": "boards"}
    root = grown(replace(picture, wires=wires, classes=classes))
    assert [branch.text for branch in root.branches] == [
        "server",
        "evaluator",
        "worker-0 (phones)",
        "2 workers (boards)",
        "worker-3",
    ]


def test_few_devices_may_be_branches_of_their_own() -> None:
    assert len(grown(star(10), most_alone=16).branches) == 12
    assert len(grown(star(17), most_alone=16).branches) == 3


def test_many_routers_that_are_alike_are_one_and_few_are_not() -> None:
    assert grown(clusters(10, 20)).rows == 12
    (*_, together) = grown(clusters(100, 20, alike=True)).branches
    assert (together.text, together.detail) == ("100 routers", "cluster-0 to cluster-99")
    (devices,) = together.branches
    assert devices.text == "20 workers" and len(devices.up) == 2000
    lines = text_drawing.lines(clusters(100, 20, alike=True))
    assert len(lines) == 5 and "bottleneck of 2,000" in lines[3]


def test_a_cluster_graph_is_a_tree_and_a_grid_is_not() -> None:
    assert is_tree(clusters(3, 2)) and not is_tree(grid(3, 3, positions=False))


def test_a_graph_is_some_lines() -> None:
    assert text_drawing.lines(grid(3, 4, positions=True)) == [
        "core, with the server, beside r2-3",
        "worker-0: ↑ 10 Mbit/s, 20 ms  ↓ 50 Mbit/s",
        "devices: 1 at r0-0",
        "17 links between 12 routers: 100 Mbit/s or no limit",
    ]


def test_words_have_their_unit_once_where_it_is_the_same() -> None:
    ways = [Way(10 * MBIT, 0.001, 999, 0.02), Way(20 * MBIT, 0.004, 1_500, 0.5)]
    assert link_labels.asked(ways) == "10–20 Mbit/s, 1–4 ms"
    assert link_labels.counted(ways) == "999 B–1.50 kB, 2.0–50 %"
    assert link_labels.asked([Way(), ways[0]]) == "10 Mbit/s or no limit, 0–1 ms"
    assert link_labels.counted([Way()]) == ""
    assert link_labels.from_to(["worker-3", "worker-9"]) == "worker-3, worker-9"
    assert link_labels.from_to(["a", "b", "c"]) == "a, b, …"
