#!/bin/sh
# The container's command for a host with a kernel of its own: hands the container's network over to the guest.
# The guest takes the MAC and the address of eth0, so other hosts find it there; without the address, the container's own
# kernel answers nothing.
set -eu
device=eth0
read -r mac <"/sys/class/net/$device/address"
address=$(ip -4 -oneline address show dev "$device" | awk '{print $4}')
gateway=$(ip -4 route show default | awk '{print $3}')
ip address flush dev "$device"
# overlayfs needs a file system below that has extended attributes, which hostfs has not.
truncate --size 8G /memory/data.ext4
mke2fs -q -F -t ext4 -O ^has_journal -m 0 /memory/data.ext4
# gro=1: packets that Docker's side sends are as large as TCP makes them, and would else be dropped.
exec linux.uml mem=2048M quiet rootfstype=hostfs rootflags=/ rw ubd0=/memory/data.ext4 \
  con=null con0=null,fd:1 uml_dir=/memory umid=host panic=-1 init=/sbin/host-init.sh \
  "vec0:transport=raw,ifname=$device,depth=128,gro=1,mac=$mac" address="$address" gateway="$gateway"
