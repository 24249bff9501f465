"""A model of the paper's own baseline: gradients as pickled Python floats, and TCP/IP headers.

The paper's 460 GB for 250,000 pushes of 211,690 parameters result from 9 bytes a parameter (a pickled
float's opcode and its double) and headers: 1,905,901 bytes a push, in segments of 1,448 bytes with 52
bytes of IP and TCP each, make 459.7 GiB. A push of plain float32 is 2.25 times smaller, and ratios to
the two baselines differ by the same factor.
"""

PARAMETERS = 211_690
PICKLED = 9 * PARAMETERS + 691
"""Bytes of a pickled push of the CNN: 1,905,901, of which 691 are the list around the floats."""
_SEGMENT, _HEADERS = 1448, 52


def pickled_ingress(pushes: float) -> float:
    """Return the bytes of ``pushes`` pickled pushes of the whole gradient, headers included."""
    return pushes * (PICKLED + _HEADERS * -(-PICKLED // _SEGMENT))
