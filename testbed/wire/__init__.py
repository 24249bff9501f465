"""The protocol between devices, sans-IO: bytes in, messages out.

``frames`` frames messages and reads them from a stream; ``encodings`` turns updates into bytes and
back. This package never uses a socket and trusts nothing that comes from one: lengths are checked
before memory is allocated, and no pickle is ever read.
"""


class WireError(Exception):
    """The bytes of a connection violate the protocol; the connection must be closed."""
