"""The error for a user whose links are broken or undecided. Pure."""

from cluster.base.errors import ClusterError, ContractBroken, ContractUndecided
from cluster.contract.verdicts import Contract
from cluster.shaping.host_load import overload_sentence


def refusal(contract: Contract, cluster: str, *, of_launch: bool = False) -> ClusterError:
    """Return the error for a contract that does not hold.

    With `of_launch` it says that nothing was started, and how to start all the same.

    Returns:
        ContractBroken, or ContractUndecided if nothing is broken.
    """
    nothing, remedy = "; nothing was started" if of_launch else "", contract.remedy(cluster)
    if contract.is_broken:
        anyway = "; or run anyway: --no-verify" if of_launch else ""
        words = f"the links are not what was asked for: {contract.verdict()}{nothing}"
        return ContractBroken(words, remedy + anyway, contract.document())
    anyway = "; or run anyway: --allow-undecided" if of_launch else ""
    why = overload_sentence(contract.limits)
    return ContractUndecided(
        f"{contract.verdict()}{nothing}: {why}", remedy + anyway, contract.document()
    )
