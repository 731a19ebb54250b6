"""The orders of a job's pods: each node of the cluster becomes one pod, which makes its links itself. Pure."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from cluster.base.errors import UsageError
from cluster.base.spec import ClusterSpec
from cluster.engine.compose import SLOW_START_AFTER_IDLE, SYSCTLS
from cluster.engine.resources import ALL, Limit
from cluster.hosts.vxlan import vxlan_plan
from cluster.links.link_spec import link_plans
from cluster.run.job import Job, make_job
from cluster.run.launch_again import experiment_again
from cluster.run.past_run import PastLaunch
from cluster.run.program import pack
from cluster.shaping.link_state import planned_link_state
from protocol.node_plan import NodePlan
from protocol.pod_order import ORDER_FILE, PROGRAM_FILE, PodOrder
from protocol.reader import document
from protocol.vxlan_plan import PORT

MOST_BYTES = 1_000_000  # a ConfigMap has at most 1 MiB
FORWARDING = {
    name: SYSCTLS[name] for name in ("net.ipv4.ip_forward", "net.ipv4.conf.all.send_redirects")
}


@dataclass(frozen=True)
class Pod:
    """One node as a pod.

    Attributes:
        node: the node's name, also that of its replicated job.
        order: what it does.
        limit: the resources that it may use.
        sysctls: kernel settings that its links need and that a kubelet does not allow by default.
    """

    node: str
    order: PodOrder
    limit: Limit
    sysctls: Mapping[str, str]


def job_again(run: PastLaunch) -> Job:
    """Return the job of an earlier run, over the same links on any kernel and any network.

    Raises:
        UsageError: run.yml does not say enough, or a part of the run needs this machine (a schedule, checkpoints, a
            shared folder).
    """
    experiment = experiment_again(run)
    plans: Mapping[str, NodePlan] = {}
    if run.link_spec is not None:
        # The wire on record is the one that this machine's kernel took.
        plans = link_plans(run.spec.nodes, replace(run.link_spec, wire="auto"))
    job = make_job(experiment, run.spec, run.nodes, planned_link_state(plans))
    _refuse_what_needs_us(job)
    return job


def make_pods(job: Job, run: str, limits: Mapping[str, Limit]) -> list[Pod]:
    """Return the pods of a job, in the order of the nodes.

    Args:
        job: the run.
        run: its name.
        limits: the resources of each node.
    """
    orders, plans = job.orders(run), job.link_state.plans
    endpoints = {node.name: (pod_host(job.spec, node.name), PORT) for node in job.spec.nodes}
    return [
        Pod(
            node.name,
            PodOrder(
                vxlan_plan(job.spec, node, endpoints),
                plans.get(node.name),
                [order for place, order in orders.items() if place.node == node.name],
            ),
            limits.get(node.name, Limit()),
            _sysctls(plans.get(node.name)),
        )
        for node in job.spec.nodes
    ]


def pod_host(spec: ClusterSpec, node: str) -> str:
    """Return the DNS name of a node's pod: JobSet's <jobset>-<replicated job>-<job index>-<pod index>.<subdomain>."""
    return f"{spec.project}-{node}-0-0.{spec.project}"


def files_of(pod: Pod, job: Job) -> dict[str, dict[str, str]]:
    """Return the contents of a pod's ConfigMap, its `data` and `binaryData`.

    Raises:
        UsageError: the program's files are larger than a ConfigMap may be.
    """
    order = json.dumps(document(pod.order))
    if job.program.folder is None:
        return {"data": {ORDER_FILE: order}}
    program = base64.b64encode(pack(job.program.folder)).decode()
    if len(order) + len(program) > MOST_BYTES:
        raise UsageError(
            f"{job.program.folder} is too large for a ConfigMap: {len(program) / 1e6:.1f} MB in base64, of 1.0",
            "put the program into an image of your own, or send a smaller folder: launch --folder",
        )
    return {"data": {ORDER_FILE: order}, "binaryData": {PROGRAM_FILE: program}}


def gpu_count(limit: Limit) -> int:
    """Return the number of GPUs of a node.

    Raises:
        UsageError: it has all of its machine's, whose number is not known here.
    """
    if limit.gpus == ALL:
        raise UsageError(
            "the run's nodes have all GPUs of their machine, and Kubernetes wants a number",
            "export a run with numbered ones: --gpus 0,1",
        )
    return len(limit.gpus.split(",")) if limit.gpus else 0


def _refuse_what_needs_us(job: Job) -> None:
    needs = {
        "a schedule, which is played from this machine": bool(job.schedule),
        "checkpoints to continue from, which are sent from this machine": job.program.resume,
        "a folder that all ranks share": job.shared,
    }
    for what, is_needed in needs.items():
        if is_needed:
            raise UsageError(f"this run has {what}", "export a run without it")


def _sysctls(plan: NodePlan | None) -> dict[str, str]:
    if plan is None:
        return {}
    slow_start = {} if plan.slow_start_after_idle else {SLOW_START_AFTER_IDLE: "0"}
    return slow_start | (FORWARDING if plan.routes else {})
