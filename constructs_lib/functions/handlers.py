"""A handler in the folder of a step function: whether it exists, and what it is, found in its text.

Nothing is imported: the folder is another program, which may need what this one lacks. What is unknown from the
text (``from elsewhere import *``, a decorator of the user's own around ours) is not refused.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

DECORATORS: Final = {
    "atomic_step": "Step.atomic(fn=…)",
    "callback_step": "CallbackIntegration(fn=…)",
    "compensation": "Step.atomic(compensate=…)",
    "direct_operation": "DirectFunction(handler=…)",
    "event_operation": "EventIntake(fn=…)",
    "event_saga": "EventIntake(fn=…, saga=…)",
    "event_receiver": "add_event_rule(fn=…)",
    "external_compensation": "Step.external(compensate=…) or Step.callback(compensate=…)",
    "external_step": "Step.external(fn=…)",
    "read_only_step": "Step.read_only(fn=…)",
    "webhook": "add_webhook(fn=…)",
}
"""Functions of ``saga_runtime`` that make a handler, and what takes one."""
_RUNTIME: Final = "saga_runtime"
_LEDGER: Final = (f"{_RUNTIME}.Ledger.from_env", f"{_RUNTIME}.ledger.store.Ledger.from_env")
_OUTBOX: Final = (f"{_RUNTIME}.Outbox.from_env", f"{_RUNTIME}.outbox.event.Outbox.from_env")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """Properties of a handler.

    Attributes:
        decorator: the function of ``saga_runtime`` that makes it, if that is in the text.
        needs_ledger: whether its module, or one that this imports from the folder, asks for the ledger of the
            environment when it is imported: without one the function cannot start.
        needs_outbox: likewise, for the outbox.
    """

    decorator: str | None = None
    needs_ledger: bool = False
    needs_outbox: bool = False


def require_made_by(name: str, code: object, decorator: str) -> None:
    """Refuse a function whose handler is known to be made by another decorator.

    Args:
        name: of the argument, with what it is of: ``fn of step Charge``.
        code: the function; of one that is not a ``StepFunction`` nothing is known.
        decorator: what must make the handler.

    Raises:
        ValueError: naming argument, both decorators and the remedy.
    """
    made = getattr(code, "decorator", None)
    if made is not None and made != decorator:
        raise ValueError(
            f"{name} must be decorated with {decorator}, got {made}; decorate it so, or give it to {DECORATORS[made]}"
        )


def find_handler(of: str, folder: Path, handler: str, *, argument: str = "handler") -> Handler:
    """Find a handler in a folder.

    Args:
        of: what the handler is of, for errors: ``StepFunction Pay``.
        folder: with the function's Python files.
        handler: ``module.function``.
        argument: its name, for errors.

    Raises:
        ValueError: if there is no such module, or no such name in it.
    """
    module, _, name = handler.rpartition(".")
    file = _file_of(folder, module)
    if file is None:
        known = sorted(_modules_in(folder))
        raise ValueError(
            f"{argument} of {of} must name a module in {folder}, got {handler!r}; {_choice(module, known)}"
        )
    tree = _tree(file)
    if tree is None:
        return Handler()
    found = _bindings(tree)
    if name not in found and "*" not in found and "__getattr__" not in found:
        functions = [known for known, node in found.items() if isinstance(node, ast.FunctionDef)]
        raise ValueError(
            f"{argument} of {of} must name a function in {file.relative_to(folder)}, got {handler!r}; "
            f"{_choice(name, functions)}"
        )
    called = {path for each in _with_imported(folder, file, tree) for path in _called_at_import(each)}
    return Handler(
        decorator=_decorator(found.get(name), _imports(tree)),
        needs_ledger=not called.isdisjoint(_LEDGER),
        needs_outbox=not called.isdisjoint(_OUTBOX),
    )


def _choice(wrong: str, known: Sequence[str]) -> str:
    meant = get_close_matches(wrong, known, 1)
    return f"write {meant[0]}" if meant else f"there is {', '.join(known) or 'none'}"


def _file_of(folder: Path, module: str) -> Path | None:
    path = folder.joinpath(*module.split("."))
    for file in (path / "__init__.py", path.with_name(f"{path.name}.py")):
        if file.is_file():
            return file
    return None


def _modules_in(folder: Path) -> Iterator[str]:
    for file in folder.rglob("*.py"):
        parts = file.relative_to(folder).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _tree(file: Path) -> ast.Module | None:
    """The module's syntax; None if this Python cannot read it, which may be older than the function's."""
    try:
        return ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return None


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run when a module is imported, those in ``if``, ``try``, ``with`` and loops included."""
    for node in body:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for part in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, part, ()))
            for handler in getattr(node, "handlers", ()):
                yield from _statements(handler.body)


def _bindings(tree: ast.Module) -> dict[str, ast.stmt]:
    """Names that a module has, and what gives them to it, the last one."""
    found: dict[str, ast.stmt] = {}
    for node in _statements(tree.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name.partition(".")[0]): node for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.For | ast.With):
            found |= {each.id: node for each in ast.walk(node) if isinstance(each, ast.Name) and _is_stored(each)}
    return found


def _is_stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _imports(tree: ast.Module) -> Mapping[str, str]:
    """Targets of imported names: ``{"step": "saga_runtime.steps.atomic"}``."""
    known: dict[str, str] = {}
    for node in _statements(tree.body):
        if isinstance(node, ast.ImportFrom) and not node.level:
            known |= {(alias.asname or alias.name): f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                known[name] = alias.name if alias.asname else name
    return known


def _path(node: ast.expr, imports: Mapping[str, str]) -> str:
    """The dotted name of what is called or named: ``@saga_runtime.external_step(verify=find)``."""
    while isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return f"{_path(node.value, imports)}.{node.attr}"
    return imports.get(node.id, node.id) if isinstance(node, ast.Name) else ""


def _decorator(node: ast.stmt | None, imports: Mapping[str, str]) -> str | None:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        makers: list[ast.expr] = node.decorator_list
    elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
        makers = [node.value]
    else:
        return None
    for maker in makers:
        package, _, name = _path(maker, imports).rpartition(".")
        if name in DECORATORS and package.split(".")[0] == _RUNTIME:
            return name
    return None


def _with_imported(folder: Path, file: Path, tree: ast.Module) -> Iterator[ast.Module]:
    """A module, and all that its import imports from the folder."""
    seen, ahead = {file}, [(file, tree)]
    while ahead:
        here, syntax = ahead.pop()
        yield syntax
        for module in _imported(folder, here, syntax):
            found = _file_of(folder, module)
            if found is not None and found not in seen and (other := _tree(found)) is not None:
                seen.add(found)
                ahead.append((found, other))


def _imported(folder: Path, file: Path, tree: ast.Module) -> Iterator[str]:
    package = file.relative_to(folder).parts[:-1]
    for node in _statements(tree.body):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}".lstrip(".") for alias in node.names)


def _called_at_import(tree: ast.Module) -> Iterator[str]:
    """Dotted names of what a module calls when it is imported, in assignments and statements of its own."""
    imports = _imports(tree)
    for node in _statements(tree.body):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.Expr) and node.value is not None:
            yield from (_path(each, imports) for each in ast.walk(node.value) if isinstance(each, ast.Call))
