"""Fault injection: faults begun, undone and written down as the run goes."""
