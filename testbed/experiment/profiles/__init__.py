"""Named links and devices: a table of figures, each with its source."""
