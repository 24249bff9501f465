"""Fault injection: begin, undo and record faults as the run goes."""
