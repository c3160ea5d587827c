"""Secrets: what counts as one, how long they are kept, and what a rotation looks like from here."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import boto3
import pytest

from saga_runtime import aws
from saga_runtime.secrets import FORCED_SECONDS, MAX_AGE_SECONDS, SecretsUnavailable, secrets, secrets_in
from tests.unit.support.mutation import Mutant, mutate
from tests.unit.support.receiving import Reception, open_reception
from tests.unit.support.wire import Action, Fault
from tests.unit.support.world import World

module = import_module("saga_runtime.secrets")


@pytest.fixture
def reception(world: World, monkeypatch: pytest.MonkeyPatch) -> Reception:
    """The receivers' surroundings."""
    return open_reception(world, monkeypatch)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("s3cret", ["s3cret"]),
        (" padded ", [" padded "]),
        ('["a", "b"]', ["a", "b"]),
        ('{"current": "a", "previous": "b"}', ["a", "b"]),
        ('["a", "", " ", 7, null, ["b"]]', ["a"]),
        ("12345", ["12345"]),
        ("true", ["true"]),
        ('"quoted"', ['"quoted"']),
        ("[not json", ["[not json"]),
        ("[" * 100_000, ["[" * 100_000]),
        ("[]", []),
        ("{}", []),
        ("", []),
        ("  ", []),
    ],
)
def test_a_secret_is_a_text_or_a_json_list_or_object_of_texts(text: str, found: list[str]) -> None:
    assert secrets_in(text) == found


def test_a_secret_that_was_never_rotated_is_one(reception: Reception) -> None:
    arn = reception.put_secret("hook", "one")

    assert secrets().active([arn]) == ["one"]


def test_the_version_before_still_counts_and_the_current_one_comes_first(reception: Reception) -> None:
    arn = reception.put_secret("hook", "one")
    reception.rotate(arn, "two")
    assert secrets().active([arn]) == ["two", "one"]

    secrets.cache_clear()
    reception.rotate(arn, "three")
    assert secrets().active([arn]) == ["three", "two"]


def test_several_secrets_count_together(reception: Reception) -> None:
    one, two = reception.put_secret("one", '["a","b"]'), reception.put_secret("two", "c")

    assert secrets().active([one, two]) == ["a", "b", "c"]


def test_binary_secrets_count_as_the_text_that_they_are(reception: Reception) -> None:
    client: Any = boto3.client("secretsmanager", config=aws.CONFIG)
    arn = client.create_secret(Name="binary", SecretBinary=b"one")["ARN"]

    assert secrets().active([arn]) == ["one"]


def test_a_secret_is_kept_for_five_minutes(reception: Reception) -> None:
    arn = reception.put_secret("hook", "one")
    secrets().active([arn])
    reception.rotate(arn, "two")
    reception.world.clock.ms += MAX_AGE_SECONDS * 1_000 - 1
    assert reception.world.calls_of(lambda: secrets().active([arn])) == []
    assert secrets().active([arn]) == ["one"]

    reception.world.clock.ms += 1
    assert secrets().active([arn]) == ["two", "one"]


def test_one_look_reads_both_versions(reception: Reception) -> None:
    arn = reception.put_secret("hook", "one")

    assert reception.world.calls_of(lambda: secrets().active([arn])) == ["GetSecretValue", "GetSecretValue"]


def test_a_forced_look_sees_the_rotation_at_once(reception: Reception) -> None:
    arn = reception.put_secret("hook", "one")
    secrets().active([arn])
    reception.rotate(arn, "two")

    assert secrets().active([arn], anew=True) == ["two", "one"]
    assert reception.world.calls_of(lambda: secrets().active([arn])) == []
    assert secrets().active([arn]) == ["two", "one"]


def test_forced_looks_are_rare(reception: Reception) -> None:
    def look() -> bool:
        return secrets().may_look_anew()

    assert [look(), look()] == [True, False]
    reception.world.clock.ms += FORCED_SECONDS * 1_000 - 1
    assert not look()
    reception.world.clock.ms += 1
    assert [look(), look()] == [True, False]


@pytest.mark.parametrize("action", [Action.THROTTLE, Action.DROP])
def test_without_secrets_manager_nothing_is_checked(reception: Reception, action: Action) -> None:
    arn = reception.put_secret("hook", "one")
    reception.world.wire.plan(Fault(operation="GetSecretValue", action=action, times=9))

    with pytest.raises(SecretsUnavailable, match=r"hook.* could not be read"):
        secrets().active([arn])


def test_a_lost_previous_version_is_not_taken_for_none(reception: Reception) -> None:
    arn = reception.put_secret("hook", "one")
    reception.world.wire.plan(Fault(operation="GetSecretValue", action=Action.THROTTLE, on=2, times=9))

    with pytest.raises(SecretsUnavailable):
        secrets().active([arn])


def test_a_secret_that_is_not_there_is_no_empty_secret(reception: Reception) -> None:
    with pytest.raises(SecretsUnavailable, match="could not be read"):
        secrets().active(["arn:nobody"])

    ((name, told),) = reception.world.told.events
    assert (name, told["code"]) == ("secret_not_read", "ResourceNotFoundException")


@pytest.mark.parametrize("value", ["[]", "{}", '[" "]'])
def test_a_secret_with_nothing_in_it_is_said(reception: Reception, value: str) -> None:
    arn = reception.put_secret("hook", value)

    with pytest.raises(SecretsUnavailable, match="put a secret value into it"):
        secrets().active([arn])


def test_no_error_and_no_event_holds_a_secret(reception: Reception) -> None:
    arn = reception.put_secret("hook", "sesame")
    reception.world.wire.plan(Fault(operation="GetSecretValue", action=Action.DROP, on=2, times=9))

    with pytest.raises(SecretsUnavailable) as caught:
        secrets().active([arn])
    assert "sesame" not in repr((caught.value, caught.value.__cause__, reception.world.told.events))


def _rotation_is_seen(reception: Reception) -> None:
    secrets.cache_clear()
    arn = reception.put_secret(f"hook-{reception.world.clock.now_ms()}", "one")
    reception.rotate(arn, "two")
    assert secrets().active([arn]) == ["two", "one"]


def _forced_looks_are_rare(reception: Reception) -> None:
    secrets.cache_clear()
    secrets().may_look_anew()
    assert not secrets().may_look_anew()


def _blanks_are_none(reception: Reception) -> None:
    assert module.secrets_in('["a", " "]') == ["a"]


MUTANTS = [
    Mutant(
        name="both versions are the current one",
        owner=module,
        target="_Versions",
        old='"VersionStage": stage',
        new='"VersionStage": "AWSCURRENT"',
        kills=_rotation_is_seen,
    ),
    Mutant(
        name="every wrong signature looks anew",
        owner=module,
        target="Secrets",
        old="self._forced_at = now_ms",
        new="pass",
        kills=_forced_looks_are_rare,
    ),
    Mutant(
        name="blank secrets count",
        owner=module,
        target="secrets_in",
        old=" and secret.strip()",
        new="",
        kills=_blanks_are_none,
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_condition_is_needed(reception: Reception, monkeypatch: pytest.MonkeyPatch, mutant: Mutant) -> None:
    mutant.kills(reception)
    mutate(monkeypatch, mutant)
    reception.world.clock.ms += 1
    with pytest.raises(AssertionError):
        mutant.kills(reception)
