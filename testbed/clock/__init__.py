"""The virtual clock: what happens when, computed and never slept.

``transfers`` says how long messages take, ``star`` keeps the order of events around a parameter server,
``mesh`` that among peers. They know nothing of sockets, tensors or the host's time; a stage, which is
an emulation or the simulator, carries out what they say.
"""
