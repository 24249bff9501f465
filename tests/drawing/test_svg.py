"""Networks as SVG: whole XML, texts that do not overlap, and nothing from a file that is markup."""

import itertools
import math
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from testbed.drawing.drawn_network import ROOT, Picture
from testbed.drawing.elements import LETTER
from testbed.drawing.layout import places
from testbed.drawing.svg import svg
from tests.drawing.pictures import clusters, grid, star

SPACE = "{http://www.w3.org/2000/svg}"
PICTURES = {
    "a star": star(10),
    "a star after a run": star(10, counted=True),
    "many": star(2000, counted=True),
    "clusters": clusters(10, 20),
    "a grid": grid(7, 7, positions=True),
    "a grid without positions": grid(5, 6, positions=False),
}


def drawn(picture: Picture, *, alone: bool = True) -> ElementTree.Element:
    return ElementTree.fromstring(svg(picture, alone=alone))


@pytest.mark.parametrize("picture", PICTURES.values(), ids=PICTURES)
def test_texts_are_inside_and_do_not_overlap(picture: Picture) -> None:
    root = drawn(picture)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    boxes = []
    for text in root.iter(f"{SPACE}text"):
        kind, content = text.attrib["class"].split(), text.text or ""
        wide = LETTER * len(content) * (0.95 if "name" in kind else 0.85)
        x, y = float(text.attrib["x"]), float(text.attrib["y"])
        left = x - {"middle": wide / 2, "end": wide}.get(kind[-1], 0.0)
        assert left >= 0 and left + wide <= width and 10 <= y <= height, content
        if "inside" not in kind:
            boxes.append((left, y - 9, left + wide, y + 1, content))
    assert len(boxes) >= 5
    for one, other in itertools.combinations(boxes, 2):
        meet = one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
        assert not meet, (one, other)


def test_few_workers_are_drawn_one_by_one_and_many_as_one() -> None:
    names = [text.text for text in drawn(star(10)).iter(f"{SPACE}text")]
    assert {f"worker-{i}" for i in range(10)} <= set(names)
    names = [text.text for text in drawn(star(2000)).iter(f"{SPACE}text")]
    assert "2,000 workers" in names and "worker-1" not in names


def test_a_file_has_its_colours_and_a_part_of_a_page_has_not() -> None:
    picture = star(3)
    assert "prefers-color-scheme: dark" in svg(picture, alone=True)
    part = svg(picture, alone=False)
    assert "prefers-color-scheme" not in part and not part.startswith("<?xml")


def test_names_are_text_and_never_markup() -> None:
    picture = clusters(2, 2)
    wires = [
        replace(
            wire,
            node=wire.node.replace("cluster-0", "<script>"),
            router=wire.router.replace("cluster-0", "<script>"),
        )
        for wire in picture.wires
    ]
    text = svg(replace(picture, wires=wires, title='"><b>', notes=["a & b"]), alone=False)
    ElementTree.fromstring(text)
    assert "<script>" not in text and "<b>" not in text and "a &amp; b" in text


def test_the_use_of_a_link_has_a_colour() -> None:
    picture = star(3, counted=True)
    used = [
        replace(wire, up=replace(wire.up, utilisation=share)) if wire.node == name else wire
        for wire in picture.wires
        for name, share in [("worker-1", 0.6)]
    ]
    text = svg(replace(picture, wires=used), alone=False)
    assert text.count('class="wire much"') == 1 and text.count('class="soft much"') == 1


def test_drawings_are_the_same_each_time() -> None:
    for picture in PICTURES.values():
        assert svg(picture, alone=True) == svg(picture, alone=True)


def test_places_are_those_of_the_source_with_the_north_above() -> None:
    picture = grid(3, 2, positions=True)
    routers = [router for router in picture.routers if router != ROOT]
    found = places(picture, routers, 400, 300)
    assert found["r0-0"][0] == found["r0-1"][0] < found["r1-0"][0] < found["r2-0"][0]
    assert found["r0-1"][1] < found["r0-0"][1]


def test_without_positions_neighbours_are_near_each_other() -> None:
    picture = grid(4, 4, positions=False)
    routers = [router for router in picture.routers if router != ROOT]
    found = places(picture, routers, 600, 600)
    assert all(0 <= x <= 600 and 0 <= y <= 600 for x, y in found.values())

    def apart(one: str, other: str) -> float:
        (x, y), (u, v) = found[one], found[other]
        return math.hypot(x - u, y - v)

    beside = [apart(wire.node, wire.router) for wire in picture.between if wire.router != ROOT]
    assert max(beside) < 0.5 * apart("r0-0", "r3-3")
    assert min(beside) > 0.1 * apart("r0-0", "r3-3")


def test_every_line_says_what_it_is() -> None:
    tips = re.findall(r"<title>([^<]*)</title>", svg(grid(3, 3, positions=True), alone=True))
    assert "r0-0 to r1-0: → 0 conversations, 100 Mbit/s; ← no limit" in tips
