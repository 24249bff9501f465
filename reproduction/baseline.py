"""The paper's own baseline, modelled: gradients as pickled Python floats, and TCP/IP headers.

460 GB for 250,000 pushes of 211,690 parameters is what 9 bytes a parameter (a pickled float's opcode
and its double) and headers make: 1,905,901 bytes a push, in segments of 1,448 bytes with 52 bytes of IP
and TCP each. That is 459.7 GiB. A push of plain float32 is 2.25 times smaller, so that ratios to the
two baselines differ by as much.
"""

PARAMETERS = 211_690
PICKLED = 9 * PARAMETERS + 691
"""Bytes of a pickled push of the CNN: 1,905,901; what is beyond 9 a parameter is the list around it."""
_SEGMENT, _HEADERS = 1448, 52


def pickled_ingress(pushes: float) -> float:
    """Bytes that so many pickled pushes of the whole gradient are, headers included."""
    return pushes * (PICKLED + _HEADERS * -(-PICKLED // _SEGMENT))
