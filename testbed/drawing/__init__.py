"""Drawings of a run's network, before and after it: as lines of text and as SVG."""
