"""An invented paper: a sweep over the number of workers, and peers beside it.

``test_second_paper`` carries it out to show that a paper needs no change of the engine.
"""

from pathlib import Path

from reproduction.claims import Cheaper
from reproduction.drawing import SECONDS, Against, Sweep
from reproduction.measures import Target
from reproduction.paper import Paper, Part, Section
from reproduction.series import Scale, Series
from reproduction.tables import Grid, LineTable, last, reached, spent

HERE = Path(__file__).parent
TARGET = Target(2.0, "loss")
PEERS = Series("all-to-all", "All-to-All, n = 2", HERE / "invented.yaml", "all-to-all")
SWEEP = tuple(
    Series(
        f"asgd-{workers}",
        f"ASGD, n = {workers}",
        HERE / "invented.yaml",
        "asgd",
        options=(f"devices.workers={workers}",),
    )
    for workers in (2, 4)
)
ACCURACY = last("accuracy, %")
PART = Part(
    "fig1",
    "Fig. 1: more workers take less time",
    "Loss against time, and accuracy against the number of workers.",
    (*SWEEP, PEERS),
    (
        Section(
            "Results",
            (
                LineTable(f"to {TARGET}", (ACCURACY, reached(TARGET), spent("time", TARGET))),
                Grid("workers", ("ASGD",), {"2": ("asgd-2",), "4": ("asgd-4",)}, ACCURACY.cell),
            ),
        ),
    ),
    (
        Against(SECONDS, measure="loss", target=TARGET),
        Sweep(
            "workers", {"ASGD": {2: "asgd-2", 4: "asgd-4"}}, lambda line: line.last(), "accuracy"
        ),
    ),
    (Cheaper("four workers are faster than two", "asgd-4", "asgd-2", TARGET, "time", 1.1),),
)
PAPER = Paper(
    "invented",
    "The invented paper, reproduced",
    "Nobody: *Nothing*, nowhere.",
    (PART,),
    (Scale("usual"), Scale("short", options=lambda _: ["training.updates=30"])),
    HERE,
)
