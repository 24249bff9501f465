"""The evaluator, and the parameters that wait for their evaluation."""
