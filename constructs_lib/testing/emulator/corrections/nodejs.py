"""Lambda functions in Node.js: what a failed invocation reports, what it logged, and which process runs it.

A function in Node.js keeps real time, whatever the emulator's speed: its timers, its ``Date`` and
``getRemainingTimeInMillis`` agree with each other, and with the moment at which it is ended.
"""

from __future__ import annotations

from typing import Final

from ministack.core import lambda_runtime as runtime
from ministack.services import lambda_svc

from constructs_lib.testing.emulator.corrections import Correction, Emulator, replace, replace_text
from constructs_lib.testing.emulator.corrections.lambda_ import END_OF_LOG, FAILURE_KEY, reported_failures

_REJECTED: Final = """          _realStdoutWrite(JSON.stringify({
            status: "error", error: String(err.message || err), trace: err.stack || ""
          }) + "\\n");"""
_THROWN: Final = """      _realStdoutWrite(JSON.stringify({
        status: "error", error: e.message, trace: e.stack
      }) + "\\n");"""
_TO_STDOUT: Final = "const _realStdoutWrite = process.stdout.write.bind(process.stdout);"
# What Lambda's own Node.js runtime answers: the error's name, or the type of what was thrown instead of one.
_FAILED: Final = f"""function _failed(err) {{
  const known = err instanceof Error;
  const failure = {{
    errorType: known ? err.name : typeof err, errorMessage: known ? err.message : String(err),
    trace: known ? String(err.stack).split("\\n") : [],
  }};
  _stderrWrite("ERROR\\tInvoke Error\\t" + JSON.stringify(failure) + "\\n");
  _realStdoutWrite(JSON.stringify({{ status: "ok", result: {{ {FAILURE_KEY}: failure }} }}) + "\\n");
}}
"""


def nodejs_errors(_emulator: Emulator) -> None:
    """An error that a Node.js handler throws or rejects with keeps its name, and its sandbox is kept.

    The emulator reports ``Runtime.HandlerError`` for everything, and ends the process.
    """
    script = replace_text(runtime._NODEJS_WORKER_SCRIPT, _REJECTED, "          _failed(err);")
    script = replace_text(script, _THROWN, "      _failed(e);")
    runtime._NODEJS_WORKER_SCRIPT = _FAILED + script
    replace(lambda_svc, "_execute_function_warm", reported_failures)


def nodejs_logs(_emulator: Emulator) -> None:
    """An invocation's log ends with a mark, as a Python function's does: the end is waited for where it is missing.

    Without it a call of a function in Node.js takes two seconds longer than it needs.
    """
    runtime._NODEJS_WORKER_SCRIPT = replace_text(
        runtime._NODEJS_WORKER_SCRIPT,
        _TO_STDOUT,
        "const _writeAnswer = process.stdout.write.bind(process.stdout);\n"
        # The first line that is read starts the function; every later one is an invocation.
        f'function _realStdoutWrite(text) {{ if (lineNum > 1) _stderrWrite("{END_OF_LOG}\\n"); _writeAnswer(text); }}',
    )


def nodejs_ends_with_emulator(_emulator: Emulator) -> None:
    """A worker in Node.js ends when the emulator is gone, even while a call waits for something.

    The emulator's workers notice only between calls; one that waits would outlive it.
    """
    watch = (
        "const _parent = process.ppid;\n"
        "setInterval(() => { if (process.ppid !== _parent) process.exit(1); }, 500).unref();\n"
    )
    runtime._NODEJS_WORKER_SCRIPT = watch + runtime._NODEJS_WORKER_SCRIPT


CORRECTIONS: Final[tuple[Correction, ...]] = (
    nodejs_logs,
    nodejs_errors,
    nodejs_ends_with_emulator,
)
