"""Results: tables, figures and reports, from run directories alone.

Nothing here speaks to a live process or knows how a run came about: what cannot be read from a run
directory cannot be shown. ``reading`` loads one run, ``finding`` turns what a person types into
runs, ``table``, ``figures`` and ``report`` show several beside each other.
"""
