"""Logs without personal data and secrets: a formatter of Powertools' ``Logger`` that masks each line."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from aws_lambda_powertools import Logger
from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter

MASK: Final = "***"
_OWN: Final = frozenset({"level", "location", "timestamp", "service", "xray_trace_id"})
"""Keys of Powertools whose values it makes itself."""
_SECRETS: Final = frozenset(
    {
        "apikey",
        "authorization",
        "cookie",
        "credential",
        "credentials",
        "cvc",
        "cvv",
        "email",
        "mail",
        "mobile",
        "otp",
        "pan",
        "passwd",
        "password",
        "phone",
        "pin",
        "secret",
        "telephone",
        "token",
    }
)
"""Words of a key, ``card_token`` or ``cardToken``, whose value is masked whatever it is."""
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# Parts that may begin anywhere are bounded: a long text would take a time that grows with its square.
_EMAIL: Final = re.compile(r"[A-Za-z0-9._%+'-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")
_TOKEN: Final = re.compile(
    r"\beyJ[A-Za-z0-9_-]{8,1024}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?"  # a JSON web token
    r"|(?<=Bearer )[A-Za-z0-9._~+/=-]{8,}"
    r"|\b(?:sk|rk|pk|whsec)_[A-Za-z0-9_]{8,}"  # keys of Stripe, and of those who name theirs alike
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|[A-Za-z0-9+/]{100,}={0,2}"  # a task token of Step Functions
)
_PIN: Final = re.compile(r"(?i)(\b(?:pin|cvv|cvc|otp)\b\W{0,3}(?:is\W{1,2}|code\W{1,2})?)\d{3,8}\b")
_PHONE: Final = re.compile(
    r"(?<![\w.-])(?:"
    r"\+[0-9][0-9 ()./-]{6,18}[0-9]"  # international
    r"|\(0?[0-9]{2,5}\)[ ]?[0-9][0-9 -]{4,10}[0-9]"  # an area code in parentheses
    r"|0[0-9]{1,4}[ /-][0-9]{1,5}[ -]?[0-9]{2,5}(?:[ -]?[0-9]{1,5})?"  # groups after a leading zero
    r"|0[0-9]{9,10}"
    r")(?![\w-])"
)
_LARGER_THAN_CARDS: Final = 10**19
_CARD: Final = re.compile(r"(?<![\w.-])[2-6](?:[ -]?[0-9]){12,18}(?![\w-])")
"""Issuers' numbers begin with these digits, moments in milliseconds with another."""
_SECRET_KEYS: Final = frozenset({"access", "api", "private", "signing"})
"""Words before ``key`` in the name of a secret; other keys are names."""
_NAMES_A_SECRET: Final = re.compile(r"(?:^|_)(?:id|ids|arn)$|Id$|Arn$")
_NAMES_A_THING: Final = re.compile(r"(?:^|_)key$|" + _NAMES_A_SECRET.pattern)


class MaskingFormatter(LambdaPowertoolsFormatter):
    """Formatter that masks personal data and secrets in the fields and the message of each line.

    Masked in every text, the message, exceptions and stack traces included: e-mail addresses, telephone numbers,
    numbers of cards (by their check digit; integers too), JSON web tokens, bearer tokens, API keys, task tokens, and
    digits after "PIN". Masked by their key: values of ``password``, ``pin``, ``cardToken``, ``phone_number``,
    ``secret_key``, ``api_key`` and the like.

    Not masked: names, addresses, and numbers in values of identifiers (``job_id``), by which an operator finds things.
    Name further keys in ``fields``. The best protection is to log no personal data.

    Args:
        fields: further keys whose values are masked.
        options: of ``LambdaPowertoolsFormatter``.
    """

    def __init__(self, *, fields: Collection[str] = (), **options: Any) -> None:
        super().__init__(**options)
        self.fields = frozenset(fields)

    def serialize(self, log: Any) -> str:
        """Return one line of JSON."""
        fields = self.fields
        safe = {key: value if key in _OWN else _masked_field(key, value, fields) for key, value in log.items()}
        return super().serialize(log=safe)


def masked_logger(*, fields: Collection[str] = (), **options: Any) -> Logger:
    """Return a ``Logger`` whose lines are masked, those that the runtime logs in this function included.

    Powertools has one handler for all loggers of a service: that of the runtime, which is made first.
    So the keys of all of its masked loggers are masked in each line.

    Args:
        fields: further keys whose values are masked.
        options: of ``Logger``.
    """
    logger = Logger(**options)
    handler = logger.registered_handler
    before = handler.formatter
    kept = before.fields if isinstance(before, MaskingFormatter) else frozenset()
    formatter = MaskingFormatter(fields=kept | {*fields})
    formatter.append_keys(service=logger.service)
    handler.setFormatter(formatter)
    return logger


def masked(value: Any, fields: Collection[str] = ()) -> Any:
    """Return a value that may be logged: the same, with personal data and secrets masked."""
    if isinstance(value, Mapping):
        return {key: _masked_field(str(key), item, fields) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [masked(item, fields) for item in value]
    if value is None or isinstance(value, int | float):
        return _masked_number(value, numbers=True)
    # Exceptions too: the stack trace of Powertools holds them, and its serializer makes text of them.
    return _masked_text(str(value), numbers=True)


def _masked_field(key: str, value: Any, fields: Collection[str]) -> Any:
    if value is None or isinstance(value, bool):
        return value
    words = {word.lower() for word in _WORDS.findall(key)}
    secret = words & _SECRETS or ("key" in words and words & _SECRET_KEYS)
    if key in fields or (secret and not _NAMES_A_SECRET.search(key)):
        return MASK
    if isinstance(value, int | float):
        return _masked_number(value, numbers=not _NAMES_A_THING.search(key))
    if isinstance(value, str):
        return _masked_text(value, numbers=not _NAMES_A_THING.search(key))
    return masked(value, fields)


def _masked_number(value: object, *, numbers: bool) -> Any:
    text = str(value) if type(value) is int and numbers and 0 < value < _LARGER_THAN_CARDS else ""
    return MASK if _CARD.fullmatch(text) and _is_card(text) else value


def _masked_text(text: str, *, numbers: bool) -> str:
    text = _PIN.sub(rf"\g<1>{MASK}", _TOKEN.sub(MASK, _EMAIL.sub(MASK, text)))
    if not numbers:
        return text
    return _PHONE.sub(MASK, _CARD.sub(lambda match: MASK if _is_card(match[0]) else match[0], text))


def _is_card(text: str) -> bool:
    """Test the check digit (Luhn, ISO/IEC 7812-1), which one number in ten has by chance."""
    digits = [int(digit) for digit in text if digit.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return any(digits) and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
