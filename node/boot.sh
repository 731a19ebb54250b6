#!/bin/sh
# Entry point of a node container: installs the node's keys, applies its first links, runs sshd.
# The host provides keys and link plan read-only in /run/keys (`python -m cluster.up` creates them); without keys nobody
# can log in. Every program started here costs 10 ms or more while a whole cluster boots, so there are few.
set -eu

keys=/run/keys
host_key=/etc/ssh/ssh_host_ed25519_key
state=/run/gradwire
device=eth0
# The device of the data network, 10.77.0.0/16 (/proc/net/route has addresses in hexadecimal, last byte first). It need
# not be the device of the default route: with several hosts that one leads to the host.
while read -r name destination _; do
  case $destination in 00??4D0A) device=$name ;; esac
done < /proc/net/route
umask 077

# A new node applies its links while sshd starts. cluster/lifecycle/provision.py takes the lock to wait until it is done.
# -S (without `site`): the wire needs only the standard library.
if [ -f "$keys/plan.json" ] && [ ! -e "$state/first-report.json" ]; then
  exec 9> "$state/first-report.lock"
  flock 9
  python3 -S -m node.wire apply < "$keys/plan.json" > "$state/first-report.json" 3<&- &
  exec 9>&-
fi

if [ -f "$keys/ssh_host_ed25519_key" ]; then
  cp "$keys/authorized_keys" "$keys/id_ed25519" "$keys/known_hosts" /root/.ssh/
  cp "$keys/ssh_host_ed25519_key" "$host_key"
else
  echo "$HOSTNAME: no keys in $keys, so nobody can log in yet: python -m cluster.up makes them"
  [ -f "$host_key" ] || ssh-keygen -q -t ed25519 -N '' -f "$host_key"
fi

set -- -e -f /opt/gradwire/node/sshd_config \
  -o "SetEnv=GLOO_SOCKET_IFNAME=$device TP_SOCKET_IFNAME=$device USE_LIBUV=${USE_LIBUV:-} PYTHONPATH=${PYTHONPATH:-} PYTHONDONTWRITEBYTECODE=1"
# A node on a host without Docker inherits a socket of the host (sd_listen_fds(3)): one sshd serves it, another port 22.
if [ -n "${LISTEN_FDS:-}" ]; then
  env --unset=LISTEN_FDS /usr/sbin/sshd "$@"
  export LISTEN_PID=$$
fi
echo "$HOSTNAME: sshd is up"
exec /usr/sbin/sshd -D "$@"
