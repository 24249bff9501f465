"""The decision that a run can make no update any more, from the events that lead to it."""

from testbed.faults.futility import EACH, MOST, Futility


def struck(devices: int, times: int) -> Futility:
    """Return what knows of absences, one device after the other."""
    futility = Futility()
    for strike in range(times):
        futility.struck([strike % devices])
    return futility


def test_no_run_is_given_up_before_the_bound() -> None:
    assert not struck(1, MOST).is_certain(lambda: [0])
    assert not struck(1, MOST).is_certain(list)
    assert struck(1, MOST + 1).is_certain(lambda: [0])


def test_every_device_of_which_anything_is_to_come_must_have_been_struck_often() -> None:
    many = 4 * MOST // EACH
    assert not struck(many, many * EACH).is_certain(lambda: range(many))
    assert struck(many, many * (EACH + 1)).is_certain(lambda: range(many))
    # One that was never struck may push, unless nothing is to come of it.
    assert not struck(2, MOST + 1).is_certain(lambda: [0, 1, 2])
    assert struck(2, MOST + 1).is_certain(lambda: [0, 1])


def test_an_update_begins_anew() -> None:
    futility = struck(1, MOST + 1)
    futility.reached(1, 2.5)
    assert not futility.is_certain(lambda: [0])
    for _ in range(MOST + 1):
        futility.struck([0])
        futility.reached(1, 3.5)  # by a push that leads to no update
    assert futility.is_certain(lambda: [0])
    assert futility.reason == (
        "no update was made after 2.5 s of the run's clock, while devices left or were struck "
        "10,001 times: let them be there for longer than a push takes"
    )


def test_a_checkpoint_holds_what_was_counted() -> None:
    again = Futility()
    again.restore(struck(2, MOST + 1).state())
    assert again.is_certain(lambda: [0, 1])
