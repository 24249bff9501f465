"""Figures of accuracy, or another quality, against ingress; of ingress over time; faults marked."""
