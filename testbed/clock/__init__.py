"""The virtual clock: it computes when things happen, and never sleeps.

``transfers`` says how long messages take, ``star`` orders the ``event_queue`` around a parameter server
and ``mesh`` those among peers. ``fault_strikes`` says when faults strike, and ``device_conditions``
what they do to a device; ``worker_faults`` and ``peer_faults`` say what that means for what is on its
way. None of them knows sockets, tensors or the host's time: a stage, the emulation's or the
simulator's, carries out what they decide.
"""
