"""StepHost: runs functions in any language as an external step."""

from __future__ import annotations

from math import ceil
from typing import Final

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from constructs_lib.functions.function_options import FunctionOptions
from constructs_lib.functions.runtime_function import RuntimeFunction, own_code
from constructs_lib.saga.steps.provider import Provider
from constructs_lib.shared.accepted import AnyFunction
from constructs_lib.shared.types import checked
from saga_runtime.protocol import CLIENT_SHARE, Env

_MARGIN_SECONDS: Final = 5
"""How much longer the host lives than what it calls: it must still write down what came of it."""
_LONGEST_SECONDS: Final = 900
"""How long a Lambda function lives at most."""


class StepHost(Construct):
    """Runs functions in any language, for example Node.js or Go, as an external step: it keeps the saga log.

    Creates one function for the step and, with ``undo``, one for its compensation. They reserve (the row states that
    there may be a call), call your function, query ``verify`` for the outcome of an interrupted call, and commit. Your
    functions receive and return one JSON object; the contract is in the how-to "Write a step in another language".

    Guaranteed: what ``Step.external`` guarantees. The hosts may invoke your functions, and do nothing else that the
    saga log does not need. A host waits for a function as long as that may run; when the host dies all the same, the
    function lives on, so the provider's ``grace`` must not be shorter than the longest timeout of your functions. Add
    how long the host's call of a function, and the function's own request, can travel.
    Not guaranteed: anything that ``provider`` declares and the provider does not keep.

    Example::

        host = StepHost(self, "ChargeHost", apply=charge, verify=find, undo=refund, provider=provider)
        Step.external("Charge", fn=host.step, compensate=host.compensation, provider=provider)

    Args:
        scope: parent construct.
        id: construct id.
        apply: does what the step does. Give it a timeout.
        provider: what the provider guarantees; the same that the step is declared with.
        verify: returns the outcome of a call; needed exactly if ``provider.verify``.
        undo: undoes it.
        verify_undo: returns the outcome of a compensation; needed exactly if ``provider.verify_undo``.
        function_options: ``FunctionOptions`` for the functions and log groups of this construct.
        removal_policy: of the log groups; retained by default.

    Attributes:
        step: the function to give to ``Step.external(fn=…)``.
        compensation: the function to give to ``Step.external(compensate=…)``, if there is an ``undo``.

    Raises:
        ValueError: for a function that is missing, never called, or whose timeout is unknown or does not fit.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        apply: AnyFunction,
        provider: Provider,
        verify: AnyFunction | None = None,
        undo: AnyFunction | None = None,
        verify_undo: AnyFunction | None = None,
        function_options: FunctionOptions | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(scope, id)
        if function_options is not None:
            function_options.apply_to(self)
        for name, declared, function in (
            ("verify", provider.verify, verify),
            ("verify_undo", provider.verify_undo, verify_undo),
        ):
            if declared != (function is not None):
                raise ValueError(
                    f"{name} must be given exactly if the provider declares it, got {name}={function and 'a function'} "
                    f"and Provider({name}={declared}); correct one of them"
                )
        if verify_undo is not None and undo is None:
            raise ValueError("verify_undo needs undo, got none; give both, or neither")
        given = {
            Env.STEP_HOST_APPLY: apply,
            Env.STEP_HOST_VERIFY: verify,
            Env.STEP_HOST_UNDO: undo,
            Env.STEP_HOST_VERIFY_UNDO: verify_undo,
        }
        targets = {name: function for name, function in given.items() if function is not None}
        seconds = {name: _timeout_of(function) for name, function in targets.items()}
        longest = max(seconds.values())
        if provider.grace.to_seconds() < longest:
            raise ValueError(
                f"grace of the provider must be at least the longest timeout of the functions, got "
                f"{provider.grace.to_seconds():g} s for {longest} s: a function outlives a host that dies; "
                "raise the grace or lower the timeout"
            )
        forward: dict[Env, AnyFunction] = {
            name: f for name, f in targets.items() if name in (Env.STEP_HOST_APPLY, Env.STEP_HOST_VERIFY)
        }
        # What is not known is found out first: the provider is asked, or, if it cannot be, called again to compensate.
        backward = {
            name: function
            for name, function in targets.items()
            if name is not Env.STEP_HOST_APPLY or not provider.verify
        }
        self.step = self._host(
            "Step",
            "handlers.step_host.handler",
            forward,
            life=_life(seconds.get(Env.STEP_HOST_VERIFY, 0), seconds[Env.STEP_HOST_APPLY]),
            removal_policy=removal_policy,
        )
        self.compensation = (
            self._host(
                "Compensation",
                "handlers.step_host.undo_handler",
                backward,
                life=_life(
                    max(seconds[name] for name in backward if name is not Env.STEP_HOST_UNDO),
                    seconds[Env.STEP_HOST_UNDO],
                ),
                removal_policy=removal_policy,
            )
            if undo is not None
            else None
        )

    def _host(
        self, id: str, handler: str, targets: dict[Env, AnyFunction], *, life: int, removal_policy: RemovalPolicy
    ) -> RuntimeFunction:
        host = RuntimeFunction(
            self,
            id,
            code=own_code(),
            handler=handler,
            description="Runs functions of another language as a step of a saga",
            environment={name: function.function_arn for name, function in targets.items()},
            timeout=Duration.seconds(life),
            longest_timeout=Duration.seconds(life),
            removal_policy=removal_policy,
        )
        for function in targets.values():
            host.role.add_to_principal_policy(_invoke(function))
        return host


def _life(first: int, second: int) -> int:
    """Seconds that a host lives that calls two functions, one after the other, and waits for each to its end.

    Raises:
        ValueError: if no function lives that long.
    """
    life = max(first + ceil(second / CLIENT_SHARE), ceil(first / CLIENT_SHARE)) + _MARGIN_SECONDS
    if life > _LONGEST_SECONDS:
        raise ValueError(
            f"the timeouts of the functions must leave a host at most {_LONGEST_SECONDS} s, got {life} s for {first} s "
            f"and {second} s, which it may have to wait for one after the other; lower them"
        )
    return life


def _invoke(function: AnyFunction) -> iam.PolicyStatement:
    """This function, and none of its versions: ``grant_invoke`` would allow them all."""
    return iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[function.function_arn])


def _timeout_of(function: AnyFunction) -> int:
    timeout = function.timeout if isinstance(function, lambda_.Function) else None
    if timeout is None:
        raise ValueError(
            f"the timeout of {function.node.path} cannot be known; give the function one: the host must outlive it"
        )
    return int(timeout.to_seconds())
