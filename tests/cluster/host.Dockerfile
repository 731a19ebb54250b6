# A machine with a Docker engine and an sshd, for tests/cluster/test_hosts.py: a container that stands for another host.
# Its engine may be that of another release of Debian.
ARG BASE=debian:trixie-slim
FROM $BASE
ARG RELEASE=trixie
RUN cd /etc/apt && if [ $RELEASE != trixie ]; then \
      if [ -s sources.list ]; then sed -i "p; s/trixie/$RELEASE/" sources.list; fi; \
      if [ -s sources.list.d/debian.sources ]; then sed -i "s/^Suites: .*/& $RELEASE/" sources.list.d/debian.sources; fi; \
    fi
# Until trixie the engine's package has the client in it; with `docker.io/RELEASE`, apt takes the rest from trixie.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends docker.io/$RELEASE iptables iproute2 procps openssh-server \
      $(test $RELEASE != trixie || echo docker-cli) \
 && rm -rf /var/lib/apt/lists/* \
 && mkdir -p /run/sshd /root/.ssh
CMD ["sh", "-c", "/usr/sbin/sshd && exec dockerd --storage-driver overlay2"]
