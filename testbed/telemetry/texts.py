"""What the texts of events say by which a run directory's readers know what happened."""

TRAINING = "training begins"
RESUMED = "resumed from "
"""Where the run goes on from follows: a session begins."""
SUSPECTED = "is suspected"
WELCOMED = "welcomed back"
DIED = "died: "
"""Behind the device's name; how it died follows."""
