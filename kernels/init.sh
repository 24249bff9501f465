#!/bin/busybox sh
# The guest's first process. It makes the host's root, read-only, the lower half of an overlay, and
# goes on inside it: switch_root and not chroot, because no user namespace can be made in a chroot.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev

stop() {
    echo "kernels: $1" >/dev/console
    poweroff -f
}

while read -r module; do
    insmod "/modules/$module" 2>/dev/null || lsmod | grep -q "^$(basename "$module" .ko | tr - _) " ||
        stop "the module $module cannot be loaded"
done </modules/order

plan9=trans=virtio,version=9p2000.L,msize=262144
mount -t 9p -o "$plan9,ro,cache=loose" root /lower || stop "the host's root cannot be mounted"
mount -t tmpfs -o mode=755 tmpfs /upper
mkdir /upper/changes /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/changes,workdir=/upper/work overlay /new ||
    stop "the overlay cannot be mounted"
mkdir -p /new/proc /new/sys /new/dev /new/tmp /new/run /new/lib/modules
mount --move /proc /new/proc
mount --move /sys /new/sys
mount --move /dev /new/dev
mkdir -p /new/dev/pts /new/dev/shm
mount -t devpts devpts /new/dev/pts
mount -t tmpfs -o mode=1777 tmpfs /new/dev/shm
# /tmp is the overlay's, because the checkout may be there; what tests make is in memory.
mount -t tmpfs -o mode=755 tmpfs /new/run
mkdir -m 1777 /new/run/tmp
mount -t cgroup2 cgroup2 /new/sys/fs/cgroup || stop "cgroup2 cannot be mounted"
mount -t 9p -o "$plan9,ro,cache=loose" modules /new/lib/modules || stop "the modules cannot be mounted"
mkdir -p /new/run/kernels/results /new/run/kernels/bin
mount -t 9p -o "$plan9,access=any" results /new/run/kernels/results ||
    stop "the folder for results cannot be mounted"
cp /bin/busybox /new/run/kernels/bin/busybox
for applet in sh modprobe poweroff ip hostname; do
    ln -s busybox "/new/run/kernels/bin/$applet"
done
echo /run/kernels/bin/modprobe >/new/proc/sys/kernel/modprobe
ip link set lo up
hostname guest
exec switch_root /new /run/kernels/bin/sh /run/kernels/results/start.sh </new/dev/console >/new/dev/console 2>&1
