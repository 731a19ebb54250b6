#!/bin/bash
# The guest's first process on a host with a kernel of its own: network, kernel modules, sshd. `address` and `gateway`
# come from host-start.sh. What fails here shows when somebody logs in (no set -e).
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8

# Of the module for NFQUEUE's rules, too: without modprobe's help from the kernel nothing loads it later.
MODULES="overlay bridge veth vxlan
  ifb sch_netem sch_htb sch_ingress cls_u32 act_mirred tcp_bbr
  ip_tables iptable_mangle nfnetlink_queue xt_mac xt_mark xt_NFQUEUE"

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /lib/modules /var/lib/gradwire
mount -t devpts pts /dev/pts
for folder in /dev/shm /run /tmp; do mount -t tmpfs tmpfs "$folder"; done
mount -t cgroup2 cgroup /sys/fs/cgroup
mount /dev/ubda /var/lib/gradwire
mount -t hostfs -o hostfs=/usr/lib/uml/modules modules /lib/modules
for module in $MODULES; do
  modprobe "$module" || echo "no kernel module $module"
done
ip link set dev lo up
ip address add "$address" dev vec0
ip link set dev vec0 up
ip route add default via "$gateway"
mkdir -p /run/sshd
# Not as the first process itself, which must also reap what nodes leave behind.
/usr/sbin/sshd -D
