"""Least privilege, the second way: what roles may do, and no simulated call needed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from constructs_lib.testing.simulator.aws.roles import Grant
from constructs_lib.testing.simulator.deployment.deployment import Deployment
from constructs_lib.testing.simulator.enumeration import break_each_call
from constructs_lib.testing.simulator.simulation import deployed
from constructs_lib.testing.simulator.workload import Workload

if TYPE_CHECKING:
    from aws_cdk import Stack, Stage


def unused_grants(
    stack: Stack | Stage | Path | Deployment, workload: Workload, *, seeds: Sequence[int] = (0,)
) -> list[Grant]:
    """List what the stack's roles may do, and what no call of its sagas needed, of functions, machines and services.

    For each seed, the first intent's saga runs once without a fault, and once with each of its calls broken in each
    way (``break_each_call``). A statement's actions, resources and values of conditions count one by one. What is left
    is to be removed, or needed by something that these intents do not do: give more seeds, or keep the reason.

    Listed, too: what functions need that the simulator cannot run. Not counted: managed policies, policies of
    resources, and the use of KMS keys, which the simulator does not check.

    Args:
        stack: A CDK stack, an app, a synthesized assembly, or what is deployed already, as ``simulate`` takes it; its
            earlier runs count, too.
        workload: Its clients' intents.
        seeds: What the first intents are drawn from; at least one: one for each way that a saga can go.

    Returns:
        Grants, sorted.

    Raises:
        ValueError: If there is no seed.
        PromiseBrokenError: If a run found something: a role that may not do what it does, for instance. Also if no
            request was done, or refused by a step: then no grant was needed.

    Example:
        ```python
        def test_no_role_may_do_more_than_it_does() -> None:
            assert unused_grants(FundsTransferStack(App(), "FundsTransfer"), Transfers(), seeds=range(20)) == []
        ```
    """
    given: Any = seeds
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise ValueError(f"seeds must be a sequence of at least one integer, got {seeds!r}; range(20) is twenty")
    with ExitStack() as opened:
        deployment = deployed(stack, opened)
        for seed in seeds:
            break_each_call(deployment, workload, seed=seed).require_kept()
        return sorted(deployment.roles.unused())
