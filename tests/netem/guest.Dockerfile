# Three images, all Debian 13. `kernel` runs on this machine: user-mode Linux, and the mke2fs that makes the guest's disks
# (older ones cannot read a tar archive). `system` is what the guest's disk is made from: its own Docker, Compose v2, and
# what the host side of gradwire and the tests of links import (there Python 3.13).
ARG BASE_IMAGE=debian:trixie-slim
FROM ${BASE_IMAGE} AS compiler
ARG DEBIAN_FRONTEND=noninteractive
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev
COPY whole_registers.c /
RUN gcc -shared -fPIC -O2 -Wall -Wextra -o /whole_registers.so /whole_registers.c

FROM ${BASE_IMAGE} AS kernel
ARG DEBIAN_FRONTEND=noninteractive
RUN apt-get update \
 && apt-get install -y --no-install-recommends user-mode-linux e2fsprogs libarchive13t64 \
 && rm -rf /var/lib/apt/lists/*
COPY --from=compiler /whole_registers.so /usr/local/lib/

FROM ${BASE_IMAGE} AS system
ARG DEBIAN_FRONTEND=noninteractive
RUN apt-get update \
 && apt-get install -y --no-install-recommends \
      docker.io docker-cli docker-compose iptables iproute2 kmod procps openssh-client \
      python3 python3-paramiko python3-docker python3-yaml python3-rich python3-cryptography python3-pytest \
 && rm -rf /var/lib/apt/lists/*
COPY init.sh /sbin/netem-init
COPY restart-dockerd.sh /sbin/restart-dockerd

# A host of a cluster with a kernel of its own: tests/shared/kernel_machine.py. The guest's root is the container's own.
FROM kernel AS host
ARG DEBIAN_FRONTEND=noninteractive
RUN apt-get update \
 && apt-get install -y --no-install-recommends iproute2 kmod openssh-server procps \
 && rm -rf /var/lib/apt/lists/* \
 && mkdir -p /root/.ssh
ENV LD_PRELOAD=/usr/local/lib/whole_registers.so TMPDIR=/memory
COPY host-start.sh host-init.sh /sbin/
CMD ["/sbin/host-start.sh"]
