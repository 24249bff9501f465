"""Connections between devices: accepting, greeting, sending, receiving, and the kernel's queues."""
