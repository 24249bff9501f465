"""Figures of accuracy against ingress and of ingress over time, with the faults marked."""
