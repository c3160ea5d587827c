"""Secrets: which key they hold, how long they are kept, and what a rotation looks like from here."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest

from saga_runtime.protocol import MIN_KEY_BYTES, PREVIOUS_SECONDS
from saga_runtime.shared import aws
from saga_runtime.shared.secrets import (
    FORCED_SECONDS,
    MAX_AGE_SECONDS,
    SecretKeys,
    SecretsUnavailable,
    SecretUnusable,
    secrets,
)
from tests.unit.support.receiving import Reception, open_reception
from tests.unit.support.wire import Action, Fault
from tests.unit.support.world import World

ONE, TWO, THREE = ("one-and-sixteen-bytes", "two-and-sixteen-bytes", "three-and-sixteen-bytes")


@pytest.fixture
def reception(world: World, monkeypatch: pytest.MonkeyPatch) -> Reception:
    """The receivers' surroundings."""
    return open_reception(world, monkeypatch)


def wanted(*names: str, field: str | None = None, previous_seconds: int = PREVIOUS_SECONDS) -> SecretKeys:
    """Keys that are texts."""
    return SecretKeys(names=names, key_of=str.encode, field=field, previous_seconds=previous_seconds)


def active(*names: str, anew: bool = False, **more: Any) -> list[str]:
    """The active keys."""
    return [key.decode() for key in secrets().keys(wanted(*names, **more), anew=anew)]


# Which key a secret holds


@pytest.mark.parametrize("text", [ONE, f" {ONE} ", "1234567890123456", '"a quoted text of 16"', "[not json 0123456789"])
def test_a_secret_is_its_text(reception: Reception, text: str) -> None:
    assert active(reception.put_secret("hook", text)) == [text]


def test_a_field_of_a_json_object_is_the_key_and_no_other_signs(reception: Reception) -> None:
    value = {"webhook_secret": ONE, "account": "acct_0123456789abcdef", "mode": "live-live-live-live"}

    assert active(reception.put_secret("hook", json.dumps(value)), field="webhook_secret") == [ONE]


@pytest.mark.parametrize("value", [{"key": ONE}, {}, [ONE], []])
def test_a_json_secret_without_a_named_field_signs_nothing(reception: Reception, value: Any) -> None:
    arn = reception.put_secret("hook", json.dumps(value))

    with pytest.raises(SecretUnusable, match=r"it is JSON; name the field that is the key: field=…"):
        active(arn)
    ((name, told),) = reception.world.telemetry.events
    assert name == "secret_unusable"
    assert ONE not in repr(told)


@pytest.mark.parametrize("text", [ONE, "{}", '{"other": "0123456789abcdef"}', '{"key": 7}', '{"key": " "}', '["key"]'])
def test_a_secret_without_the_field_that_is_named_signs_nothing(reception: Reception, text: str) -> None:
    with pytest.raises(SecretUnusable, match="must be a JSON object with text in its field key"):
        active(reception.put_secret("hook", text), field="key")


@pytest.mark.parametrize("text", [" ", "\n\t"])
def test_a_blank_secret_signs_nothing(reception: Reception, text: str) -> None:
    with pytest.raises(SecretUnusable, match="it is blank; put a secret value into it"):
        active(reception.put_secret("hook", text))


def test_a_key_that_can_be_guessed_signs_nothing(reception: Reception) -> None:
    assert active(reception.put_secret("long", "k" * MIN_KEY_BYTES)) == ["k" * MIN_KEY_BYTES]

    with pytest.raises(SecretUnusable, match="a key must have 16 bytes or more, got 15"):
        active(reception.put_secret("short", "k" * (MIN_KEY_BYTES - 1)))


def test_one_unusable_secret_among_several_is_reported(reception: Reception) -> None:
    one, two = reception.put_secret("one", ONE), reception.put_secret("two", "x")

    with pytest.raises(SecretUnusable):
        active(one, two)


def test_several_secrets_count_together(reception: Reception) -> None:
    one, two = reception.put_secret("one", ONE), reception.put_secret("two", TWO)

    assert active(one, two) == [ONE, TWO]


def test_binary_secrets_are_treated_as_text(reception: Reception) -> None:
    client: Any = boto3.client("secretsmanager", config=aws.CONFIG)
    arn = client.create_secret(Name="binary", SecretBinary=ONE.encode())["ARN"]

    assert active(arn) == [ONE]


# Versions


def test_a_secret_that_was_never_rotated_is_one(reception: Reception) -> None:
    assert active(reception.put_secret("hook", ONE)) == [ONE]


def test_the_previous_version_is_valid_after_the_current_one(reception: Reception) -> None:
    arn = reception.put_secret("hook", ONE)
    reception.rotate(arn, TWO)
    assert active(arn) == [TWO, ONE]

    secrets.cache_clear()
    reception.rotate(arn, THREE)
    assert active(arn) == [THREE, TWO]


@pytest.mark.parametrize("previous_seconds", [1, 3_600, PREVIOUS_SECONDS])
def test_the_version_before_counts_for_a_while_from_when_the_new_one_was_made(
    reception: Reception, previous_seconds: int
) -> None:
    arn = reception.put_secret("hook", ONE)
    reception.world.clock.ms += 7 * 86_400_000
    reception.rotate(arn, TWO)
    reception.world.clock.ms += previous_seconds * 1_000 - 1
    assert active(arn, previous_seconds=previous_seconds) == [TWO, ONE]

    reception.world.clock.ms += 1
    assert active(arn, previous_seconds=previous_seconds) == [TWO]
    secrets.cache_clear()
    assert active(arn, previous_seconds=previous_seconds) == [TWO]


def test_a_version_before_that_never_counts_can_be_declared(reception: Reception) -> None:
    arn = reception.put_secret("hook", ONE)
    reception.rotate(arn, TWO)

    assert active(arn, previous_seconds=0) == [TWO]


def test_an_earlier_version_without_a_key_is_ignored(reception: Reception) -> None:
    """An earlier mistake does not block the current value."""
    arn = reception.put_secret("hook", '{"key": "value"}')
    reception.rotate(arn, TWO)

    assert active(arn) == [TWO]


# How long they are kept


def test_a_secret_is_kept_for_five_minutes(reception: Reception) -> None:
    arn = reception.put_secret("hook", ONE)
    active(arn)
    reception.rotate(arn, TWO)
    reception.world.clock.ms += MAX_AGE_SECONDS * 1_000 - 1
    assert reception.world.calls_of(lambda: active(arn)) == []
    assert active(arn) == [ONE]

    reception.world.clock.ms += 1
    assert active(arn) == [TWO, ONE]


def test_one_look_reads_both_versions(reception: Reception) -> None:
    arn = reception.put_secret("hook", ONE)

    assert reception.world.calls_of(lambda: active(arn)) == ["GetSecretValue", "GetSecretValue"]


def test_a_forced_look_sees_the_rotation_at_once(reception: Reception) -> None:
    arn = reception.put_secret("hook", ONE)
    active(arn)
    reception.rotate(arn, TWO)

    assert active(arn, anew=True) == [TWO, ONE]
    assert reception.world.calls_of(lambda: active(arn)) == []
    assert active(arn) == [TWO, ONE]


@pytest.mark.parametrize("rotated_before", [False, True])
def test_former_version_counts_though_its_stage_has_not_moved_yet(reception: Reception, rotated_before: bool) -> None:
    """Secrets Manager is eventually consistent: the new version was read, and the stage before was not up to date."""
    arn = reception.put_secret("hook", THREE)
    if rotated_before:
        reception.world.clock.ms += 1_000
        reception.rotate(arn, ONE)
    former = active(arn)[0]
    reception.world.clock.ms += 1_000
    reception.rotate(arn, TWO)

    with reception.previous_stage_lags(arn):
        assert active(arn, anew=True) == [TWO, former]
    assert active(arn, anew=True) == [TWO, former]


def test_former_version_does_not_count_once_another_one_replaced_it(reception: Reception) -> None:
    arn = reception.put_secret("hook", ONE)
    active(arn)
    for text in (TWO, THREE):
        reception.world.clock.ms += 1_000
        reception.rotate(arn, text)

    assert active(arn, anew=True) == [THREE, TWO]


def test_rotation_that_is_taken_back_leaves_both_versions(reception: Reception) -> None:
    arn = reception.put_secret("hook", ONE)
    reception.world.clock.ms += 1_000
    reception.rotate(arn, TWO)
    active(arn)
    reception.restore(arn, ONE)

    assert active(arn, anew=True) == [ONE, TWO]


def test_forced_looks_are_rare(reception: Reception) -> None:
    def look() -> bool:
        return secrets().may_look_anew()

    assert [look(), look()] == [True, False]
    reception.world.clock.ms += FORCED_SECONDS * 1_000 - 1
    assert not look()
    reception.world.clock.ms += 1
    assert [look(), look()] == [True, False]


@pytest.mark.parametrize("action", [Action.THROTTLE, Action.DROP, Action.DENY])
def test_without_secrets_manager_nothing_is_checked(reception: Reception, action: Action) -> None:
    arn = reception.put_secret("hook", ONE)
    reception.world.wire.plan(Fault(operation="GetSecretValue", action=action, times=9))

    with pytest.raises(SecretsUnavailable, match=r"hook.* could not be read"):
        active(arn)


def test_a_lost_previous_version_is_not_taken_for_none(reception: Reception) -> None:
    arn = reception.put_secret("hook", ONE)
    reception.world.wire.plan(Fault(operation="GetSecretValue", action=Action.THROTTLE, on=2, times=9))

    with pytest.raises(SecretsUnavailable):
        active(arn)


def test_a_secret_that_is_not_there_is_no_empty_secret(reception: Reception) -> None:
    with pytest.raises(SecretsUnavailable, match="could not be read"):
        active("arn:nobody")

    ((name, told),) = reception.world.telemetry.events
    assert (name, told["code"]) == ("secret_not_read", "ResourceNotFoundException")


def test_no_error_and_no_event_holds_a_secret(reception: Reception) -> None:
    arn = reception.put_secret("hook", "sesame-opens-the-door")
    reception.world.wire.plan(Fault(operation="GetSecretValue", action=Action.DROP, on=2, times=9))

    with pytest.raises(SecretsUnavailable) as caught:
        active(arn)
    assert "sesame" not in repr((caught.value, caught.value.__cause__, reception.world.telemetry.events))


def test_a_kept_version_does_not_show_its_text(reception: Reception) -> None:
    active(reception.put_secret("hook", ONE))

    assert ONE not in repr(vars(secrets()))
