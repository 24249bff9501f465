"""Roles that handle events and return actions, without socket, clock or thread."""
