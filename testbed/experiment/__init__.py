"""The experiment file: what may stand in it (spec, units), and how it is read and written (load).

Nothing is imported here, so that whoever needs only a part does not pay for the rest.
"""
