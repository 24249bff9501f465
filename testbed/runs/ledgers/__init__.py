"""Three ledgers of a run's traffic, compared at its end.

1. The roles: the bytes of every connection, as the sum of the server's messages.
2. The kernel: the class counter at the server's link.
3. The capture at that link, re-split into frames (``traffic.accounting``).

Where two ledgers should be equal and are not, the difference is reported with its likely reason; none
is ever corrected.
"""
