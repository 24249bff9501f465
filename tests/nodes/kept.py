"""A keeper as the first process of namespaces of its own, for tests; run as a program.

Its arguments are the descriptor of its channel, its folder, and the bytes of output to keep.
"""

import os
import sys

from testbed.channel import Channel
from testbed.nodes import keeper, linux
from testbed.nodes.confinement import HOME
from testbed.nodes.user_namespace import enter_user_namespace


def main() -> int:
    channel, folder, output = sys.argv[1:]
    enter_user_namespace()
    network = linux.new_network()
    linux.setns(network, linux.CLONE_NEWNET)
    linux.unshare(linux.CLONE_NEWPID | linux.CLONE_NEWNS)
    first = os.fork()
    if first:
        return os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
    linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
    linux.mount_proc()
    home = f"{folder}/{HOME}"
    role: keeper.KeeperArguments = {"folder": folder, "home": home, "output": int(output)}
    os._exit(keeper.keep(role, Channel.from_descriptor(int(channel))))


if __name__ == "__main__":
    sys.exit(main())
