"""The evaluator, and what waits for it: parameters that are to be evaluated."""
