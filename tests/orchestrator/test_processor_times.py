"""The processor times of devices over the time of training."""

from testbed.messages.agent_reports import ProcessorTimesRead
from testbed.orchestrator.training_records import ProcessorWindow


def reading(time: float, **seconds: float) -> ProcessorTimesRead:
    return ProcessorTimesRead(time, "control group", seconds)


def test_the_window_is_from_the_begin_of_training_to_the_reading_after_the_last_update() -> None:
    window = ProcessorWindow()
    window.take(reading(1.0, a=5.0), 0.0)  # set-up
    assert window.used == {}
    window.begin()
    window.take(reading(10.0, a=6.0), 0.0)
    assert window.used == {}
    window.take(reading(11.0, a=6.5, late=0.25), 0.9)
    window.take(reading(12.0, a=7.0, late=0.5), 1.8)
    window.take(reading(13.0, a=9.0, late=3.0), 1.8)  # no update since: training is over
    assert window.used == {
        "a": ("control group", 2.0, 1.0),
        "late": ("control group", 2.0, 0.5),
    }
