"""The protocol between devices, sans-IO: bytes in, messages out.

``frames`` says how messages are framed and reads them from a stream; ``encodings`` turns updates into
bytes and back. Nothing here touches a socket, and nothing from a socket is trusted: lengths are
checked before memory is taken, and no pickle is ever read.
"""


class WireError(Exception):
    """What came over a connection is not what this protocol allows; the connection is to be closed."""
