"""Checkpoints: saved states from which a run goes on, to the bit under the virtual clock.

To go on is to roll back: what was done after the checkpoint is done again, with the same result,
because everything random comes from named streams. ``stateful`` says which attributes of an object are
its state, ``state_encoding`` turns states into JSON and arrays, ``records`` writes them with a
checksum, ``files`` stores those of a run so that a crash cannot damage the last good one, and
``state_file`` those of one device. None of these knows what a run is.
"""
