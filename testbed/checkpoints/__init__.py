"""Checkpoints: what a run needs to go on from one of its versions, under the virtual clock to the bit.

Going on means rolling back: what was done behind the checkpoint is done again, and comes out the same
because everything random comes from named streams. ``stateful`` says what of an object is its state,
``values`` turns states into JSON and arrays, ``files`` keeps them where a crash cannot spoil the last
good one. None of them knows what a run is.
"""
