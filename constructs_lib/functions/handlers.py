"""A handler in the folder of a step function: whether it exists, and what it is, found in its text.

Nothing is imported: the folder is another program, which may need what this one lacks. What is unknown from the
text (``from elsewhere import *``, a decorator of the user's own around ours) is not refused.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
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
_GIVEN: Final = {
    "compensation": ("call", "output"),
    "event_receiver": ("event",),
    "event_saga": ("event",),
    "external_compensation": ("call", "output"),
    "webhook": ("event",),
}
"""Arguments that a decorated function is called with, if they are not its call alone."""
_RUNTIME: Final = "saga_runtime"
_LEDGER: Final = (f"{_RUNTIME}.Ledger.from_env", f"{_RUNTIME}.ledger.store.Ledger.from_env")
_QUERIES: Final = ("verify", "verify_undo")
_YIELDS: Final = (ast.Yield, ast.YieldFrom)
_OUTBOX: Final = (f"{_RUNTIME}.Outbox.from_env", f"{_RUNTIME}.outbox.event.Outbox.from_env")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """Properties of a handler.

    Attributes:
        decorator: the function of ``saga_runtime`` that makes it, if that is in the text.
        needs_ledger: whether its module, or one that this imports from the folder, asks for the ledger of the
            environment when it is imported: without one the function cannot start.
        needs_outbox: likewise, for the outbox.
        made: folder, module and name of what the decorator makes: ``(…, "steps.charge")``; None if that is not certain.
        undoes: likewise, of the step that it compensates.
        plain: whether it is certainly a function that no decorator makes, and that calls no handler in turn.
        unread: where and why this Python cannot read its module, ``pay.py, line 3: invalid syntax``; empty if it can.
        without: arguments that its decorator certainly does not have: ``verify``, ``verify_undo``.
    """

    decorator: str | None = None
    needs_ledger: bool = False
    needs_outbox: bool = False
    made: tuple[Path, str] | None = None
    undoes: tuple[Path, str] | None = None
    plain: bool = False
    unread: str = ""
    without: frozenset[str] = frozenset()


def require_made_by(name: str, code: object, decorator: str) -> None:
    """Refuse a function whose handler is known to be made by another decorator, or by none.

    Args:
        name: of the argument, with what it is of: ``fn of step Charge``.
        code: the function; of one that is not a ``StepFunction`` nothing is known.
        decorator: what must make the handler.

    Raises:
        ValueError: naming argument, both decorators and the remedy.
    """
    if handler_of(code).plain:
        # It would write no row: its effect would happen again in every retry and recovery.
        raise ValueError(f"{name} must be decorated with {decorator}, got a plain function; decorate it so")
    made = getattr(code, "decorator", None)
    if made is not None and made != decorator:
        raise ValueError(
            f"{name} must be decorated with {decorator}, got {made}; decorate it so, or give it to {DECORATORS[made]}"
        )


def require_argument(name: str, code: object, argument: str, *, declared: bool) -> None:
    """Refuse a function that is known not to have what its step's provider declares.

    Args:
        name: of the function, with what it is of: ``fn of step Charge``.
        code: the function; of one that is not a ``StepFunction`` nothing is known.
        argument: of its decorator, and of ``Provider``.
        declared: whether the provider declares it.

    Raises:
        ValueError: naming function, argument and the remedy.
    """
    handler = handler_of(code)
    if declared and argument in handler.without:
        raise ValueError(
            f"{name} must have {argument}, as its provider does, got {handler.decorator} without it; write "
            f"{handler.decorator}({argument}=…), or declare the provider without {argument}"
        )


def require_undoes(name: str, compensate: object, handler: Handler) -> None:
    """Refuse a compensation that is known to be of another function than the step's.

    It would query the provider for the other function's outcome, and fence an applied step as not applied.

    Args:
        name: of the argument, with the step: ``compensate of step Charge``.
        compensate: the function of the compensation; of one that is not a ``StepFunction`` nothing is known.
        handler: the step's own.

    Raises:
        ValueError: naming argument, both functions and the remedy.
    """
    undoes = handler_of(compensate).undoes
    if handler.made is None or undoes is None or undoes[0] != handler.made[0] or undoes == handler.made:
        return
    raise ValueError(
        f"{name} must undo {handler.made[1]}, the step's function, got of={undoes[1]}; decorate it with "
        f"external_compensation(of={handler.made[1].rpartition('.')[2]})"
    )


def handler_of(code: object) -> Handler:
    """Return what is known of a function's handler."""
    found = getattr(code, "handled", None)
    return found if isinstance(found, Handler) else Handler()


def find_handler(of: str, folder: Path, handler: str, *, argument: str = "handler") -> Handler:
    """Find a handler in a folder.

    Args:
        of: what the handler is of, for errors: ``StepFunction Pay``.
        folder: with the function's Python files.
        handler: ``module.function``.
        argument: its name, for errors.

    Raises:
        ValueError: if there is no such module, or no such name in it; or if a decorator of ``saga_runtime`` makes it of
            an ``async`` function, a generator, or a function of other arguments than it gives.
    """
    module, _, name = handler.rpartition(".")
    file = _file_of(folder, module)
    if file is None:
        known = sorted(_modules_in(folder))
        raise ValueError(
            f"{argument} of {of} must name a module in {folder}, got {handler!r}; {_choice(module, known)}"
        )
    try:
        tree = _parsed(file.read_bytes())
    except (SyntaxError, ValueError) as error:
        line, why = (error.lineno, error.msg) if isinstance(error, SyntaxError) else (None, str(error))
        return Handler(unread=f"{file.relative_to(folder)}{f', line {line}' if line else ''}: {why}")
    found = _bindings(tree)
    if name not in found and "*" not in found and "__getattr__" not in found:
        functions = [known for known, node in found.items() if isinstance(node, ast.FunctionDef)]
        raise ValueError(
            f"{argument} of {of} must name a function in {file.relative_to(folder)}, got {handler!r}; "
            f"{_choice(name, functions)}"
        )
    imports = _imports(tree)
    maker = _maker(found.get(name), imports)
    only, given = _only(tree, name), _arguments(maker) if maker is not None else {}
    undone = given.get("of")
    if (wrong := _not_callable(only, imports)) is not None:
        raise ValueError(
            f"{argument} of {of} must be a function that returns its result, got {wrong} in "
            f"{file.relative_to(folder)}, line {only.lineno if only else 0}; write "
            f"def {name}({', '.join(_given(maker, imports))}) with a return"
        )
    called = {path for each in _with_imported(folder, file, tree) for path in _called_at_import(each)}
    return Handler(
        decorator=_decorator(maker, imports),
        needs_ledger=not called.isdisjoint(_LEDGER),
        needs_outbox=not called.isdisjoint(_OUTBOX),
        made=_made(folder, file, tree, name),
        undoes=_named(folder, file, tree, undone) if undone is not None else None,
        plain=_is_plain(only),
        without=_without(only, maker, given),
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
        yield _module_of(folder, file)


def _module_of(folder: Path, file: Path) -> str:
    parts = file.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _tree(file: Path) -> ast.Module | None:
    """The module's syntax; None if this Python cannot read it, which may be older than the function's."""
    try:
        return _parsed(file.read_bytes())
    except (SyntaxError, ValueError):
        return None


@lru_cache(maxsize=256)
def _parsed(text: bytes) -> ast.Module:
    """Reads a text once: a module has many handlers."""
    return ast.parse(text)


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
    return dict(_bound(tree))


def _only(tree: ast.Module, name: str) -> ast.stmt | None:
    """The one statement that gives a module this name; None if another one does, or a later one may."""
    bound = [(known, node) for known, node in _bound(tree) if known in (name, "*")]
    last = bound[-1][1] if bound and bound[-1][0] == name else None
    return last if sum(known == name for known, _ in bound) == 1 else None


def _bound(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    for node in _statements(tree.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name.partition(".")[0], node) for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.For | ast.With):
            yield from ((each.id, node) for each in ast.walk(node) if isinstance(each, ast.Name) and _is_stored(each))


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


def _maker(node: ast.stmt | None, imports: Mapping[str, str]) -> ast.expr | None:
    """Find the decorator of ``saga_runtime``, or the call of it, that makes a handler."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        makers: list[ast.expr] = node.decorator_list
    elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
        makers = [node.value]
    else:
        return None
    return next((maker for maker in makers if _decorator(maker, imports) is not None), None)


def _decorator(maker: ast.expr | None, imports: Mapping[str, str]) -> str | None:
    package, _, name = (_path(maker, imports) if maker is not None else "").rpartition(".")
    return name if name in DECORATORS and package.split(".")[0] == _RUNTIME else None


def _arguments(maker: ast.expr) -> dict[str | None, ast.expr]:
    """Arguments by name of a decorator's calls; by None those that a mapping has."""
    found: dict[str | None, ast.expr] = {}
    while isinstance(maker, ast.Call):
        found |= {argument.arg: argument.value for argument in maker.keywords}
        maker = maker.func
    return found


def _without(only: ast.stmt | None, maker: ast.expr | None, given: Mapping[str | None, ast.expr]) -> frozenset[str]:
    """Arguments that queries are given by, and that a decorator certainly does not have."""
    if only is None or maker is None or None in given:
        return frozenset()
    none = {name for name, value in given.items() if isinstance(value, ast.Constant) and value.value is None}
    return frozenset(name for name in _QUERIES if name not in given or name in none)


def _not_callable(node: ast.stmt | None, imports: Mapping[str, str]) -> str | None:
    """Kind of a decorated function whose call does not run it; None: it does, or another decorator may make it so."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.decorator_list:
        return None
    maker = node.decorator_list[-1]
    if _decorator(maker, imports) is None:
        return None
    if isinstance(node, ast.AsyncFunctionDef):
        return f"async def {node.name}"
    if any(isinstance(each, _YIELDS) for each in _own(node.body)):
        return f"the generator {node.name}"
    return None if _takes(node.args, len(_given(maker, imports))) else f"{node.name}({ast.unparse(node.args)})"


def _given(maker: ast.expr | None, imports: Mapping[str, str]) -> tuple[str, ...]:
    return _GIVEN.get(_decorator(maker, imports) or "", ("call",))


def _takes(arguments: ast.arguments, number: int) -> bool:
    """True if a function can be called with so many arguments."""
    most = len(arguments.posonlyargs) + len(arguments.args)
    fits = most - len(arguments.defaults) <= number and (number <= most or arguments.vararg is not None)
    return fits and None not in arguments.kw_defaults


def _own(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Nodes of a function, without those of the functions and classes in it."""
    for node in body:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _own([*ast.iter_child_nodes(node)])


def _is_plain(node: ast.stmt | None) -> bool:
    """True of a function without decorators that gives its context, which every handler needs, to nothing."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.decorator_list:
        return False
    if node.args.vararg is not None or node.args.kwarg is not None:
        return False
    positional = [*node.args.posonlyargs, *node.args.args]
    context = positional[1].arg if len(positional) > 1 else None
    read = {id(each.value) for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    return not any(
        isinstance(each, ast.Name) and each.id == context and id(each) not in read for each in ast.walk(node)
    )


def _named(folder: Path, file: Path, tree: ast.Module, node: ast.expr) -> tuple[Path, str] | None:
    """Find the handler that an expression names, ``charge`` or ``payment.charge``; None if that is not certain."""
    if isinstance(node, ast.Name):
        return _made(folder, file, tree, node.id)
    module, _, name = _path(node, _imports(tree)).rpartition(".")
    return _made_in(folder, module, name) if isinstance(node, ast.Attribute) else None


def _made(folder: Path, file: Path, tree: ast.Module, name: str) -> tuple[Path, str] | None:
    """Find where the handler of this name is made, in the module or in the one that it is imported from."""
    node = _only(tree, name)
    if isinstance(node, ast.ImportFrom):
        module, _, original = _imports(tree).get(name, "").rpartition(".")
        return _made_in(folder, module, original)
    certain = _maker(node, _imports(tree)) is not None
    return (folder.resolve(), f"{_module_of(folder, file)}.{name}") if certain else None


def _made_in(folder: Path, module: str, name: str) -> tuple[Path, str] | None:
    """Likewise, of another module of the folder, which does not import it in turn."""
    file = _file_of(folder, module) if module else None
    tree = _tree(file) if file is not None else None
    if file is None or tree is None or isinstance(_only(tree, name), ast.ImportFrom):
        return None
    return _made(folder, file, tree, name)


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
