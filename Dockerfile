# The image of every node: sshd, tc, torch, and this project's node/ and protocol/. Because all packages are Debian's, it
# builds the same way on amd64 and arm64. Build arguments, which `python -m cluster.image` sets:
#   BASE_IMAGE  a Debian 13 image. If no registry answers, `python -m cluster.image` bootstraps one under this tag.
#   TORCH       debian (default: 2.6, CPU), or a version of torch from PyPI, with TORCHVISION: for CUDA, and for FSDP2 and
#               libuv on the CPU: TORCH=2.9.1 TORCHVISION=0.24.1 USE_LIBUV=1
#   MUJOCO      1: also install requirements-mujoco.txt
ARG BASE_IMAGE=debian:trixie-slim
# Compiles the wire's per-packet path, which is in C. The compiler itself does not get into the image.
FROM ${BASE_IMAGE} AS compiler
ARG DEBIAN_FRONTEND=noninteractive
RUN apt-get update -q && apt-get install -q -y --no-install-recommends gcc libc6-dev python3-pip
# Python packages that Debian lacks. `python -m cluster.image` adds their wheels to the build context, so that the build
# needs only Debian's mirror; a plain `docker build` downloads them.
COPY requirements-image.txt requirements-mujoco.txt wheel[s] /wheels/
ARG MUJOCO=
RUN if ls /wheels/*.whl > /dev/null 2>&1; then from="--no-index --find-links /wheels"; fi \
 && pip install --quiet --no-cache-dir --no-deps --no-compile --target /packages --require-hashes $from \
      --requirement /wheels/requirements-image.txt ${MUJOCO:+--requirement /wheels/requirements-mujoco.txt} \
 && python3 -m compileall -q -s /packages -p /usr/lib/python3/dist-packages /packages
COPY node/wire/nfqueue/fast_path.c /
RUN gcc -shared -fPIC -O2 -Wall -Wextra -Werror -o /libfastpath.so /fast_path.c

FROM ${BASE_IMAGE}

# Cheap steps come first: some storage drivers scan the whole image in every later step.
# Debian's torch lacks libuv. node/boot.sh sets the same variables for SSH sessions.
ARG USE_LIBUV=0
ENV USE_LIBUV=${USE_LIBUV} \
    PYTHONPATH=/opt/gradwire \
    PYTHONDONTWRITEBYTECODE=1

WORKDIR /root
EXPOSE 22
CMD ["/opt/gradwire/node/boot.sh"]

ARG DEBIAN_FRONTEND=noninteractive
ARG TORCH=debian
ARG TORCHVISION=
# apt.conf.d: apt keeps neither packages nor caches (370 MB), also in images built FROM this one, as in Debian's own image.
# libtorch-test: python3-torch depends on these 62 MB of C++ test programs; they are not unpacked.
# libopenblas0-pthread: matrix products are 28 times faster than with the reference BLAS.
# python3-setuptools: torch.testing and DTensor's debugging tools import it. PyPI's torch depends on it, but not on the
# packages that Debian's torch adds for its test tools.
# runc, conmon, tini: on hosts without Docker, the image's own (node/bare).
# gunzip: pictures are unpacked once instead of by every rank.
# Status-Fd, raw: progress for cluster/engine/build_progress.py.
RUN echo 'path-exclude=/usr/lib/libtorch-test/*' > /etc/dpkg/dpkg.cfg.d/gradwire \
 && printf '%s "%s";\n' APT::Keep-Downloaded-Packages false Dir::Cache::pkgcache "" Dir::Cache::srcpkgcache "" \
      > /etc/apt/apt.conf.d/gradwire \
 && if [ "$TORCH" = debian ]; then \
      torch="python3-torch python3-torchvision libopenblas0-pthread python3-setuptools"; \
    else \
      torch="python3-pip python3-expecttest python3-hypothesis python3-psutil python3-requests python3-yaml"; \
    fi \
 && apt-get update -q \
 && apt-get install -q -y --no-install-recommends -o APT::Status-Fd=1 \
      openssh-server openssh-client iproute2 iptables iputils-ping iperf3 ethtool procps runc conmon tini \
      python3 python-is-python3 python3-cloudpickle python3-safetensors python3-zmq dataset-fashion-mnist $torch \
 && if [ "$TORCH" != debian ]; then \
      pip install --progress-bar raw --root-user-action ignore --no-cache-dir --break-system-packages \
        "torch==$TORCH" "torchvision==$TORCHVISION" numpy; \
    fi \
 && gunzip /usr/share/datasets/fashion-mnist/*.gz \
 && rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_* \
 && mkdir -p /run/sshd && mkdir -p -m 700 /root/.ssh /run/gradwire

# Last, because it changes most: a new version of the code rebuilds in seconds. Bytecode is compiled here, once, so that
# programs on a node start sooner.
COPY --from=compiler /packages /usr/lib/python3/dist-packages
COPY protocol /opt/gradwire/protocol
COPY node /opt/gradwire/node
COPY --from=compiler /libfastpath.so /opt/gradwire/node/wire/nfqueue/
RUN python3 -m compileall -q /opt/gradwire
