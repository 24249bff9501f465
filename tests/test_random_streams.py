"""Random streams: named, independent and repeatable."""

from testbed.random_streams import stream


def test_streams_repeat_for_the_same_key_and_differ_for_others() -> None:
    def draw(seed: int, purpose: str, device: int) -> list[int]:
        return [int(x) for x in stream(seed, purpose, device).integers(0, 2**62, 4)]

    assert draw(1, "waiting", 3) == draw(1, "waiting", 3)
    keys = [(1, "waiting", 3), (1, "waiting", 4), (1, "batches", 3), (2, "waiting", 3), (1, "w", 0)]
    assert len({tuple(draw(*key)) for key in keys}) == len(keys)


def test_the_numbers_of_a_stream_never_change() -> None:
    """Published results of seeds depend on these numbers."""
    assert stream(1, "waiting", 0).integers(0, 1000, 4).tolist() == [259, 325, 458, 938]
