"""Places of constructs, and which stack may refer to which."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from aws_cdk import Stack, Stage
from constructs import IConstruct

_ANSWERS: Final = "_cdk_sagas_answers"
_Answer = TypeVar("_Answer")
_Asked = TypeVar("_Asked")


def asked_once(ask: Callable[[_Asked], _Answer]) -> Callable[[_Asked], _Answer]:
    """Keep for each object of the CDK what never changes: a question to its process takes a fifth of a millisecond."""

    @functools.wraps(ask)
    def asked(construct: _Asked) -> _Answer:
        # In the construct itself: one of the user's may equal another one, or have no hash, as a data class has none.
        answers: dict[Callable[[_Asked], _Answer], _Answer] = construct.__dict__.setdefault(_ANSWERS, {})
        if ask not in answers:
            answers[ask] = ask(construct)
        return answers[ask]

    return asked


@asked_once
def path_of(construct: IConstruct) -> str:
    """The path of a construct in its app."""
    return construct.node.path


@asked_once
def app_of(construct: IConstruct) -> IConstruct:
    """The root of the tree that a construct is in: an app."""
    return construct.node.root


@asked_once
def stack_of(construct: IConstruct) -> Stack:
    """The stack that a construct is in."""
    return Stack.of(construct)


@asked_once
def name_of_stack(stack: Stack) -> str:
    """The name of a stack."""
    return stack.stack_name


def root_of(construct: IConstruct) -> Stack:
    """The stack that is deployed with a construct: of a nested stack, the one around it."""
    return _outermost(stack_of(construct))


@asked_once
def _outermost(stack: Stack) -> Stack:
    while stack.nested_stack_parent is not None:
        stack = stack.nested_stack_parent
    return stack


def require_same_stack(scope: IConstruct, name: str, construct: IConstruct, why: str) -> None:
    """Refuse a construct that is deployed with another stack than a scope.

    Args:
        scope: what refers to the construct, and is referred to.
        name: of the argument.
        construct: what was given.
        why: reason, as a clause.

    Raises:
        ValueError: naming the argument, the construct, its stack and the remedy.
    """
    here, there = root_of(scope), root_of(construct)
    if here is not there:
        raise ValueError(
            f"{name} must be in the stack {here.node.path} of {scope.node.path}, got {construct.node.path} of stack "
            f"{there.node.path}: {why}; create it in {here.node.path}"
        )


def require_same_place(scope: IConstruct, name: str, construct: IConstruct, remedy: str) -> None:
    """Refuse a construct that no function, state machine or transaction of a scope reaches.

    The CDK refuses few of them: it gives a table of another region a name, which means another table here, or none.

    Args:
        scope: what uses the construct.
        name: of the argument.
        construct: what was given.
        remedy: what to do.

    Raises:
        ValueError: unless both are in one stage, account and region.
    """
    here, there = root_of(scope), root_of(construct)
    if here is not there and (Stage.of(there) is not Stage.of(here) or there.environment != here.environment):
        raise ValueError(
            f"{name} must be in the stage, account and region of {scope.node.path} ({here.environment}), got "
            f"{construct.node.path} of {there.environment}; {remedy}"
        )


def refer_to(
    scope: IConstruct, name: str, function: IConstruct, named: Mapping[str, IConstruct | None] | None = None
) -> None:
    """Let a scope's stack depend on that of a function, with a reason that an error about a cycle shows.

    Args:
        scope: what names the function.
        name: of the argument.
        function: what was given.
        named: constructs that the function names in turn, by their arguments.

    Raises:
        ValueError: if scope and function are in different stages, accounts or regions, or the function names something
            in the scope's stack.
    """
    require_same_place(scope, name, function, "create the function there")
    here, there = root_of(scope), root_of(function)
    if here is there:
        return
    for argument, construct in (named or {}).items():
        if construct is not None and root_of(construct) is here:
            raise ValueError(
                f"{argument} must not be in stack {here.node.path} with {name} in stack {there.node.path}, got "
                f"{construct.node.path}: each stack would depend on the other; move it into {there.node.path} or "
                f"into a stack of its own, or the function into {here.node.path}"
            )
    depend_on(scope, "runs", function)


def depend_on(scope: IConstruct, does: str, construct: IConstruct) -> None:
    """Let a scope's stack depend on that of a construct, with a reason that an error about a cycle shows.

    Args:
        scope: what refers to the construct.
        does: what it does with it: ``runs``.
        construct: in any stack of the app.
    """
    here, there = root_of(scope), root_of(construct)
    if here is not there:
        here.add_stack_dependency(
            there,
            f"{scope.node.path} {does} {construct.node.path}, so nothing in {there.node.path} may refer to "
            f"{here.node.path}: move what it refers to into {there.node.path}, or into a stack of its own",
        )
