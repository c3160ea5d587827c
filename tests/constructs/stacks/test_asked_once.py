"""Questions to the CDK's process whose answers never change: each is asked once."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from aws_cdk import NestedStack, Stack
from constructs import Construct, IConstruct

from constructs_lib.shared.stacks import asked_once, path_of, root_of, stack_of


def test_each_construct_is_asked_once(stack: Stack) -> None:
    asked: list[str] = []

    @asked_once
    def id_of(construct: IConstruct) -> str:
        asked.append(construct.node.id)
        return construct.node.id

    one, other = Construct(stack, "One"), Construct(stack, "Other")

    assert [id_of(each) for each in (one, other, one, other)] == ["One", "Other", "One", "Other"]
    assert asked == ["One", "Other"]


def test_constructs_that_are_equal_are_asked_apart(stack: Stack) -> None:
    """Data classes have no hash, and compare what they hold: here a name."""

    @dataclass
    class Named(Construct):
        name: str

        def __init__(self, scope: Construct, id: str) -> None:
            super().__init__(scope, id)
            self.name = "same"

    one, other = Named(stack, "One"), Named(stack, "Other")

    assert one == other
    assert [path_of(each) for each in (one, other, one)] == ["Test/One", "Test/Other", "Test/One"]


def test_an_error_is_raised_each_time(stack: Stack) -> None:
    @asked_once
    def refused(construct: IConstruct) -> str:
        raise ValueError(construct.node.path)

    for _ in range(2):
        with pytest.raises(ValueError, match="Test"):
            refused(stack)


def test_places_are_those_of_the_cdk(stack: Stack) -> None:
    inner = Construct(NestedStack(stack, "Nested"), "Inner")

    for _ in range(2):
        assert path_of(inner) == inner.node.path == "Test/Nested/Inner"
        assert stack_of(inner) is Stack.of(inner)
        assert root_of(inner) is stack
