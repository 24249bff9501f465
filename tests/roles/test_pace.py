"""The pace of a device: the times that it draws, slowed down or about to be killed."""

from testbed.roles.pace import PacedTimes, Paces
from testbed.training.times import DeviceTimes


class Times(DeviceTimes):
    """Times without waiting, as most experiments have them."""

    def __init__(self) -> None:
        pass

    def draw(self, now: float, gradients: int = 1) -> tuple[float, float]:
        return 2.0 * gradients, 0.0


def test_a_device_draws_its_times_at_its_pace_also_before_it_is_killed() -> None:
    paces = Paces.make(2)
    paced = PacedTimes(Times(), paces, 1)
    assert paced.draw(0.0) == (2.0, 0.0)
    paces[1] = 10.0
    assert paced.draw(0.0, 3) == (60.0, 0.0)
    paces.end(1)
    assert paced.draw(0.0, 3) == (6.0, 0.0)
    assert paces.ended() == {1}
