# The guest's system: Debian 13 with its own Docker, Compose v2, and what the host side of gradwire imports (there
# Python 3.13). It also has the mke2fs that makes the guest's disks: older ones cannot read a tar archive.
ARG BASE_IMAGE=debian:trixie-slim
FROM ${BASE_IMAGE}
ARG DEBIAN_FRONTEND=noninteractive
RUN apt-get update \
 && apt-get install -y --no-install-recommends \
      docker.io docker-cli docker-compose iptables iproute2 kmod procps openssh-client \
      python3 python3-paramiko python3-docker python3-yaml python3-rich python3-cryptography \
      e2fsprogs libarchive13t64 \
 && rm -rf /var/lib/apt/lists/*
COPY init.sh /sbin/netem-init
