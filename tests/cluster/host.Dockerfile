# A machine with a Docker engine and an sshd, for tests/cluster/test_hosts.py: a container that stands for another host.
ARG BASE=debian:trixie-slim
FROM $BASE
RUN apt-get update \
 && apt-get install --yes --no-install-recommends docker.io docker-cli iptables iproute2 procps openssh-server \
 && rm -rf /var/lib/apt/lists/* \
 && mkdir -p /run/sshd /root/.ssh
CMD ["sh", "-c", "/usr/sbin/sshd && exec dockerd --storage-driver overlay2"]
