"""Random inputs: experiment files over the whole schema, and mutated input for each reader."""
