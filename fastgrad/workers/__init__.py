"""Gradients of many workers at once, on a processor or on an accelerator."""
