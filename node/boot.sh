#!/bin/sh
# What a node container runs: install this node's keys, lay its first links, then sshd.
# Keys and the plan of the links come read-only from the host (/run/keys, made by `python -m cluster.up`); without keys
# nobody can log in. Few programs are started here: each costs 10 ms or more while a whole cluster boots.
set -eu

keys=/run/keys
host_key=/etc/ssh/ssh_host_ed25519_key
state=/run/gradwire
device=eth0
# That of 10.77.0.0/16, the data network's: its address is in hexadecimal digits, the last byte first. The default route
# may lead over another one: where nodes are on several hosts their host is behind it.
while read -r name destination _; do
  case $destination in 00??4D0A) device=$name ;; esac
done < /proc/net/route
umask 077

# A new node lays its links while sshd starts. Who holds the lock knows that they are laid: cluster/lifecycle/provision.py.
# Without `site` (-S): the wire wants nothing but the standard library.
if [ -f "$keys/plan.json" ] && [ ! -e "$state/first-report.json" ]; then
  exec 9> "$state/first-report.lock"
  flock 9
  python3 -S -m node.wire apply < "$keys/plan.json" > "$state/first-report.json" &
  exec 9>&-
fi

if [ -f "$keys/ssh_host_ed25519_key" ]; then
  cp "$keys/authorized_keys" "$keys/id_ed25519" "$keys/known_hosts" /root/.ssh/
  cp "$keys/ssh_host_ed25519_key" "$host_key"
else
  echo "$HOSTNAME: no keys in $keys, so nobody can log in yet: python -m cluster.up makes them"
  [ -f "$host_key" ] || ssh-keygen -q -t ed25519 -N '' -f "$host_key"
fi

echo "$HOSTNAME: sshd is up"
exec /usr/sbin/sshd -D -e -f /opt/gradwire/node/sshd_config \
  -o "SetEnv=GLOO_SOCKET_IFNAME=$device TP_SOCKET_IFNAME=$device USE_LIBUV=${USE_LIBUV:-} PYTHONPATH=${PYTHONPATH:-} PYTHONDONTWRITEBYTECODE=1"
