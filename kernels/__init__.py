"""Kernels that users have, booted in QEMU to run the tests that need them.

``debian`` fetches and unpacks a kernel package, ``initramfs`` packs what the kernel starts first,
``machine`` boots it, ``in_guest`` is the script that it then runs, and ``results`` reads what came out.
Nothing is installed on the host: the guest sees the host's root read-only, with a tmpfs over it. The
tests themselves are ``tests/kernels``.

The modules need no more than Python's standard library, so that CI can fetch a kernel before anything
is installed.
"""
