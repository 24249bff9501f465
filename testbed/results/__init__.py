"""Results: tables, figures and reports, from run directories alone.

Nothing here speaks to a live process or knows how a run was made: what cannot be read from a run
directory cannot be shown. ``reading`` finds and loads runs; ``tables``, ``figures`` and ``report`` show
several together.
"""
