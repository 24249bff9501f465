"""Figures: accuracy against ingress, ingress over time, faults beside them."""
