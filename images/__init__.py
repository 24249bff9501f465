"""The image that serves all roles, and what builds it."""
