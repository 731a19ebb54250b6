"""The manifest of a job for Kubernetes: a JobSet with one pod per node, their orders, a network policy. Pure.

A JobSet (jobset.x-k8s.io/v1alpha2) makes the headless service by which pods find each other. Every node is a replicated
job of its own, because its order is.
"""

from collections.abc import Mapping, Sequence

import yaml

from cluster.base.errors import UsageError
from cluster.engine.compose import CAPABILITIES, SYSCTLS
from cluster.engine.resources import Limit
from cluster.kubernetes.pods import Pod, files_of, gpu_count, job_again, make_pods
from cluster.run.job import Job
from cluster.run.launch_again import resources_again
from cluster.run.past_run import PastLaunch
from cluster.run.request import IMAGE_NAME
from protocol.pod_order import ORDER_FOLDER
from protocol.vxlan_plan import PORT

Document = dict[str, object]

JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"  # the label that JobSet puts on its pods
# What a pod has no sshd for is left out.
NOT_NEEDED = {"SYS_CHROOT", "AUDIT_WRITE", "CHOWN"}
# Safe sysctls, which need no permission, from Kubernetes 1.32 on.
SAFE_SYSCTLS = {name: SYSCTLS[name] for name in ("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem")}
GRACE_S = 20  # ranks have ten seconds of their own
HEAD = """\
# {run}, for Kubernetes: {nodes} pods of {image}, each with its links.
# Written by `python -m cluster.export --kubernetes`. No Kubernetes cluster has run it: gradwire tests what runs inside
# the pods, in containers, and nothing around them. Links are applied, but not measured: nothing proves them here.
# Needs JobSet (https://jobset.sigs.k8s.io) and Kubernetes 1.32 or later:
#   kubectl apply --server-side --filename FILE
#   kubectl logs --follow --selector {label}={name} --prefix --max-log-requests {nodes}
#   kubectl delete --filename FILE
"""


def manifest_again(run: PastLaunch, image: str) -> str:
    """Return the manifest of an earlier run; raises like `manifest` and `job_again`, and for an invalid image name."""
    if not IMAGE_NAME.fullmatch(image):
        raise UsageError(f"{image!r} is no image's name", "a name as in docker push NAME:TAG")
    limits = resources_again(run).limits([node.name for node in run.spec.nodes], {})
    return manifest(job_again(run), run.folder.resolve().name, image, limits)


def manifest(job: Job, run: str, image: str, limits: Mapping[str, Limit]) -> str:
    """Return the manifest as YAML.

    Args:
        job: the run.
        run: its name.
        image: the image of its nodes, as Kubernetes pulls it.
        limits: the resources of each node.

    Raises:
        UsageError: Kubernetes cannot run it; see `files_of`, `gpu_count`.
    """
    pods, name = make_pods(job, run, limits), job.spec.project
    documents = [
        *(_config_map(name, pod, files_of(pod, job)) for pod in pods),
        _network_policy(name),
        _job_set(name, pods, image),
    ]
    head = HEAD.format(run=run, nodes=len(pods), image=image, label=JOBSET_NAME, name=name)
    head += "".join(f"# {note}\n" for note in notes(job, pods))
    return head + yaml.safe_dump_all(documents, sort_keys=False, width=120, explicit_start=True)


def notes(job: Job, pods: Sequence[Pod]) -> list[str]:
    """Return what the user has to know about this manifest."""
    found = []
    unsafe = sorted({name for pod in pods for name in pod.sysctls})
    if unsafe:
        found.append(f"its links need kubelets with --allowed-unsafe-sysctls {','.join(unsafe)}")
    if job.max_restarts:
        found.append("no rank is restarted: one that fails ends the whole JobSet")
    return [
        *found,
        "what ranks leave in their run folder stays in their pods, and is lost with them",
    ]


def _config_map(name: str, pod: Pod, files: Mapping[str, object]) -> Document:
    metadata = {"name": f"{name}-{pod.node}"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **files}


def _network_policy(name: str) -> Document:
    """Return a policy that admits only packets of the same JobSet: VXLAN itself is not authenticated."""
    selector = {"matchLabels": {JOBSET_NAME: name}}
    ingress = {
        "from": [{"podSelector": selector}],
        "ports": [{"protocol": "UDP", "port": PORT}],
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name},
        "spec": {"podSelector": selector, "policyTypes": ["Ingress"], "ingress": [ingress]},
    }


def _job_set(name: str, pods: Sequence[Pod], image: str) -> Document:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {
            "network": {
                "enableDNSHostnames": True,
                "subdomain": name,
                "publishNotReadyAddresses": True,
            },
            "failurePolicy": {"maxRestarts": 0},
            "replicatedJobs": [_replicated_job(name, pod, image) for pod in pods],
        },
    }


def _replicated_job(name: str, pod: Pod, image: str) -> Document:
    job = {
        "parallelism": 1,
        "completions": 1,
        "completionMode": "Indexed",  # gives the pod its host name
        "backoffLimit": 0,
        "template": {"spec": _pod_spec(name, pod, image)},
    }
    return {"name": pod.node, "replicas": 1, "template": {"spec": job}}


def _pod_spec(name: str, pod: Pod, image: str) -> Document:
    settings = {**SAFE_SYSCTLS, **pod.sysctls}
    sysctls = [{"name": key, "value": value} for key, value in settings.items()]
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_S,
        "securityContext": {"sysctls": sysctls},
        "containers": [
            {
                "name": "node",
                "image": image,
                "command": ["python3", "-m", "node.pod"],
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"], "add": pod_capabilities()},
                },
                "resources": {"limits": _resources(pod.limit)},
                "volumeMounts": [{"name": "order", "mountPath": ORDER_FOLDER, "readOnly": True}],
            }
        ],
        "volumes": [{"name": "order", "configMap": {"name": f"{name}-{pod.node}"}}],
    }


def pod_capabilities() -> list[str]:
    """Return the capabilities of a pod, as those of a node without sshd."""
    return [capability for capability in CAPABILITIES if capability not in NOT_NEEDED]


def _resources(limit: Limit) -> dict[str, str]:
    found = {}
    if limit.cpus is not None:
        found["cpu"] = f"{limit.cpus * 1000:.0f}m"
    if limit.memory_bytes is not None:
        found["memory"] = str(limit.memory_bytes)
    if count := gpu_count(limit):
        found["nvidia.com/gpu"] = str(count)
    return found
