"""Ask the model. The saga records the first answer that was written down, and every later run gets that one."""

from __future__ import annotations

from saga_runtime import StepCall, read_only_step

from .intent import Intent
from .model import model_from_env
from .prompt import prompt_of
from .recommendation import Recommendation


@read_only_step
def handler(call: StepCall) -> dict[str, str]:
    """Return a recommendation, checked, with the model's version and the prompt's fingerprint."""
    prompt = prompt_of(call.request, call.outputs["Analyze"])
    answer = model_from_env().ask(prompt)
    recommended = Recommendation.of_answer(answer.content, asked=Intent.of_request(call.request).amount)
    return {
        "decision": recommended.decision,
        "amount": str(recommended.amount.minor_units),
        "reason": recommended.reason,
        "model": answer.version,
        "model_call": answer.call_id,
        "prompt": prompt.fingerprint,
    }
