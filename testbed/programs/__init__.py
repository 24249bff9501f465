"""Programs of users in devices: their instances, and their life from the first start to the run's end.

Nothing here knows a process, a socket or a clock: what happened goes in, what follows comes out.
"""
