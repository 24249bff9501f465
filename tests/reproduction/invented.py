"""An invented paper: one sweep over the number of workers, its claims, its figure and its tables.

``test_second_paper`` carries it out to show that a paper needs no change of the engine.
"""

from pathlib import Path

from reproduction.claims import Cheaper, Exceeds
from reproduction.drawing import SECONDS, UPDATES, Against, Sweep
from reproduction.measures import Target
from reproduction.paper import Paper, Part, Section
from reproduction.series import Key, Scale, Study
from reproduction.tables import Grid, LineTable, average, last, reached, spent

HERE = Path(__file__).parent
TARGET = Target(2.0, "loss")
WORKERS = Key("devices.workers", (2, 4), "n")
STUDY = Study(HERE / "invented.yaml", (WORKERS,))
SYSTEMS = {"asgd": "ASGD", "all-to-all": "All-to-All"}
AT = {title: STUDY.across(label, "devices.workers") for label, title in SYSTEMS.items()}
ACCURACY = last("accuracy, %")
PART = Part(
    "fig1",
    "Fig. 1: more workers take less time",
    "Loss against time, and accuracy against the number of workers.",
    STUDY.lines(SYSTEMS, {"asgd-4": 30.0}),
    (
        Section(
            "Results",
            (
                LineTable(f"to {TARGET}", (ACCURACY, reached(TARGET), spent("time", TARGET))),
                Grid.of(AT, "workers", ACCURACY.cell),
                LineTable("", (average("last fifth", "delay", 4, 5),)),
            ),
        ),
    ),
    (
        Against(SECONDS, measure="loss", target=TARGET),
        Against(UPDATES, measure="delay"),
        Sweep("workers", AT, lambda line: line.last(), "accuracy"),
    ),
    (
        Cheaper("four workers are faster than two", "asgd-4", "asgd-2", TARGET, "time", 1.1),
        Exceeds("asgd-4", "asgd-2", lambda line: line.last("time"), "takes longer than", "s"),
    ),
)
PAPER = Paper(
    "invented",
    "The invented paper, reproduced",
    "Nobody: *Nothing*, nowhere.",
    (PART,),
    (Scale("usual"), Scale("short", options=lambda _: ["training.updates=30"])),
    HERE,
)
