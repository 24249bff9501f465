"""Boot kernels that users have in QEMU, and run the tests that need them.

``debian`` fetches and unpacks a kernel package, ``initramfs`` packs the files that the kernel starts
with, ``machine`` boots it, ``in_guest`` runs tests in it, and ``results`` reads their results. Nothing
is installed on the host: the guest sees the host's root read-only, with a tmpfs over it. The tests
themselves are in ``tests/kernels``.

The modules need only Python's standard library, so that CI can fetch a kernel before anything is
installed.
"""
