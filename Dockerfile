# The one image of every node: sshd, tc, torch, and this project's own node/ code.
# Debian's packages make it build the same on amd64 and arm64. Build arguments:
#   BASE_IMAGE  a Debian 13 image. Where no registry answers, `python -m cluster.image` bootstraps one under this tag.
#   TORCH       debian (default: 2.6, CPU), or the version of torch and torchvision to take from PyPI, for CUDA:
#               TORCH=2.9.0 TORCHVISION=0.24.0
ARG BASE_IMAGE=debian:trixie-slim
FROM ${BASE_IMAGE}

# What costs nothing comes first: some storage drivers look through the whole image for every later step.
# Debian's torch has no libuv. Every SSH session is told the same (node/boot.sh).
ENV USE_LIBUV=0 \
    PYTHONPATH=/opt/gradwire \
    PYTHONDONTWRITEBYTECODE=1

WORKDIR /root
EXPOSE 22
CMD ["/opt/gradwire/node/boot.sh"]

ARG DEBIAN_FRONTEND=noninteractive
ARG TORCH=debian
ARG TORCHVISION=
# libopenblas0-pthread: matrix products are 28 times faster than with the reference BLAS.
RUN apt-get update \
 && apt-get install -y --no-install-recommends \
      openssh-server openssh-client iproute2 iptables iputils-ping iperf3 ethtool procps \
      python3 python-is-python3 dataset-fashion-mnist \
 && if [ "$TORCH" = debian ]; then \
      apt-get install -y --no-install-recommends python3-torch python3-torchvision libopenblas0-pthread; \
    else \
      apt-get install -y --no-install-recommends python3-pip \
      && pip install --no-cache-dir --break-system-packages "torch==$TORCH" "torchvision==$TORCHVISION" numpy; \
    fi \
 && rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_* \
 && mkdir -p /run/sshd && mkdir -p -m 700 /root/.ssh /run/gradwire

# Last, because it changes most: a new version of the code rebuilds in seconds. Bytecode is made once, here, so that everything on
# a node starts sooner.
COPY node /opt/gradwire/node
RUN python3 -m compileall -q /opt/gradwire/node
