"""Getting the right to make namespaces: root has it, other users get it in a user namespace."""

import os
from pathlib import Path

from testbed.errors import HostError
from testbed.nodes.linux import CLONE_NEWUSER, show_own_proc, unshare

REMEDY = (
    "run it as root, or let ordinary users make user namespaces "
    "(sysctl user.max_user_namespaces=15000; on Debian kernel.unprivileged_userns_clone=1; on "
    "Ubuntu 24.04 and later kernel.apparmor_restrict_unprivileged_userns=0)"
)


def enter_user_namespace() -> None:
    """Make this process root in a user namespace of its own, unless it is root already.

    The calling process must have one thread. Files it makes still belong to the calling user, whose
    other processes may enter the namespace (``testbed exec``).

    Raises:
        HostError: the kernel or its settings forbid user namespaces.
    """
    if os.geteuid() == 0:
        return
    uid, gid = os.geteuid(), os.getegid()
    try:
        unshare(CLONE_NEWUSER)
        # The kernel lets a group be mapped only once setgroups(2) is given up.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
        show_own_proc()
    except OSError as error:
        raise HostError(
            f"this user may not make a user namespace ({error.strerror}): {REMEDY}"
        ) from error
