"""The names of the files of a run's traffic, in the folder ``traffic`` of its directory.

With one captured device (a run's only server, or the observed peer) the names have no device in them;
with several servers each has files of its own.
"""


def capture_file(device: str | None) -> str:
    """Return the name of the first file of a capture; the next ones end in ``-2``, ``-3``, ….

    Args:
        device: the device whose link is captured, of several; None: there is only one.
    """
    return f"{_with(device, 'ingress')}.pcapng"


def ledgers_file(device: str | None) -> str:
    """Return the name of the file of a device's ledgers; ``device`` as of ``capture_file``."""
    return f"{_with(device, 'ledgers')}.json"


def _with(device: str | None, name: str) -> str:
    return name if device is None else f"{name}-{device}"
