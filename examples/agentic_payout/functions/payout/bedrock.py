"""A model in Amazon Bedrock, by the Converse API."""

from __future__ import annotations

from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.shared import aws

from .errors import ModelUnavailable
from .model import Answer
from .prompt import Prompt
from .recommendation import ANSWER_SCHEMA

TOOL: Final = "recommend"
READ_TIMEOUT_SECONDS: Final = 20
"""Shorter than the function's timeout: the function still runs when the model has not answered."""
MAX_TOKENS: Final = 600
_CONFIG: Final = Config(
    connect_timeout=2, read_timeout=READ_TIMEOUT_SECONDS, retries={"mode": "standard", "total_max_attempts": 1}
)
_PASSING: Final = frozenset(
    {"ModelErrorException", "ModelNotReadyException", "ModelTimeoutException", "ServiceUnavailableException"}
)


class BedrockModel:
    """A model, or an inference profile, of Bedrock.

    The answer is asked for as the input of a tool that the model must use, so that it comes as JSON. The model has to
    support tool choice.

    Args:
        model: id or ARN of the model or of the inference profile.
        client: a ``bedrock-runtime`` client of your own. Its retries must be off: each is a call that costs money.
    """

    def __init__(self, model: str, client: Any = None) -> None:
        self._model = model
        self._client: Any = client or boto3.client("bedrock-runtime", config=_CONFIG)

    def ask(self, prompt: Prompt) -> Answer:
        """Ask once.

        Raises:
            ModelUnavailable: if Bedrock is busy or does not answer.
            botocore.exceptions.ClientError: if it refuses: the model is not enabled, or not granted. That does not
                refuse the payout: the step is in doubt and retried, then the saga fails and an operator is notified.
        """
        try:
            answer = self._client.converse(
                modelId=self._model,
                system=[{"text": prompt.system}],
                messages=[{"role": "user", "content": [{"text": prompt.question}]}],
                inferenceConfig={"maxTokens": MAX_TOKENS},
                toolConfig={
                    "tools": [{"toolSpec": {"name": TOOL, "inputSchema": {"json": ANSWER_SCHEMA}}}],
                    "toolChoice": {"tool": {"name": TOOL}},
                },
            )
        except (BotoCoreError, ClientError) as error:
            if aws.is_transient(error) or aws.error_code(error) in _PASSING:
                raise ModelUnavailable("the model did not answer") from error
            raise
        blocks = answer["output"]["message"]["content"]
        return Answer(
            content=_content(blocks), version=self._model, call_id=str(answer["ResponseMetadata"].get("RequestId", ""))
        )


def _content(blocks: list[dict[str, Any]]) -> Any:
    """The tool's input if it was used exactly once; else the text, which no check will take for a recommendation."""
    used = [block["toolUse"]["input"] for block in blocks if block.get("toolUse", {}).get("name") == TOOL]
    return used[0] if len(used) == 1 else "".join(block.get("text", "") for block in blocks)
