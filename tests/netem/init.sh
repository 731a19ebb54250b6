#!/bin/bash
# The guest's first process: what systemd would do on a Debian machine with Docker, in the order in which it is needed;
# then the command that the host left; then power off. If this script ended early the kernel would panic, so it goes on
# whatever fails (no set -e): what is missing shows in the command's own results.
#
# The host gives a disk with this system (root), a disk with the node image's files (/dev/ubdb), two of its folders
# in the variables host_folder and modules_folder, and the node image's name in node_image. On /host:
#   command      what to run once Docker answers      exit_code    where its exit status goes
#   image.tar    the node image without its files     dockerd.log  what Docker has to say
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8

MODULES="overlay bridge veth br_netfilter
  ifb sch_netem sch_htb sch_ingress cls_u32 act_mirred tcp_bbr
  ip_tables iptable_nat iptable_filter iptable_mangle nf_nat nfnetlink_queue
  xt_MASQUERADE xt_conntrack xt_addrtype xt_mac xt_mark xt_NFQUEUE"

say() { echo "init: $(cut -d' ' -f1 /proc/uptime) s: $*"; }

mount_system() {
  mount -t proc proc /proc
  mount -t sysfs sys /sys
  mount -t devtmpfs dev /dev 2>/dev/null  # the kernel may have done it already
  mkdir -p /dev/pts /dev/shm /host
  mount -t devpts pts /dev/pts
  for folder in /dev/shm /run /tmp; do mount -t tmpfs tmpfs "$folder"; done
  mount -t cgroup2 cgroup /sys/fs/cgroup
  mkdir -p /var/lib/docker
  # The containers' own layers: small, and much faster than on a disk of this kernel.
  mount -t tmpfs -o size=2g docker /var/lib/docker
}

# Kernel modules lie on the host, beside the kernel that they belong to.
mount_host() {
  mkdir -p /lib/modules
  mount -t hostfs -o "hostfs=$1" host /host
  mount -t hostfs -o "hostfs=$2" modules /lib/modules
}

load_modules() {
  local module
  for module in $MODULES; do
    modprobe "$module" || say "no kernel module $module"
  done
}

start_docker() {
  # This kernel has none of the chains that the nft flavour of iptables needs for NAT.
  update-alternatives --set iptables /usr/sbin/iptables-legacy >/dev/null
  restart-dockerd || say "dockerd did not start"
}

# image.tar is the node image with one layer, which is empty: its files come from the disk, mounted where Docker keeps
# that layer. To unpack 1.9 GB here would take minutes.
load_image() {
  docker load --quiet --input /host/image.tar
  docker image inspect --format '{{.GraphDriver.Data.UpperDir}}' "$node_image" >/run/node-layer
  mount -o ro /dev/ubdb "$(cat /run/node-layer)"
}

mount_system
mount_host "$host_folder" "$modules_folder"
hostname guest
ip link set lo up
load_modules
say "starting Docker"
start_docker
load_image
say "Docker $(docker version --format '{{.Server.Version}}') is up, $(docker compose version)"
bash /host/command
echo $? >/host/exit_code
say "done"
echo o >/proc/sysrq-trigger
sleep 60
