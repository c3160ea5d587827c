#!/usr/bin/env python3
"""Report words that the project's style bans from docstrings, comments, messages, test names and pages.

    python plain_english.py [PATH ...]            print each finding as file:line: 'text': hint; exit 1 if there are any
    python plain_english.py --counts [PATH ...]   print findings per folder and per hint, and per 10,000 words; exit 0
    python plain_english.py --check               compare each folder with plain_english.json; exit 1 if one has more
    python plain_english.py --record              lower the counts of plain_english.json to what there is

Skipped: code, `code in backticks`, fenced blocks other than mermaid diagrams, lines that start with "> ".
Exceptions: plain_english_allow.txt in this folder, one line per glob: `docs/adr/*.md: nobody, told` (`*`: any word).
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

RULES = {  # pattern, without word boundaries and in any case: what to write instead
    r"whom?ever|somebody|someone|nobody|no one|he|him|his|himself": "name the actor, or use the passive",
    r"told|tells?|telling": "notify, send, return, report",
    r"said|says?|saying": "state, report, contain, return; 'declare' of a prop; 'the status is'",
    r"became of|becomes? of": "outcome, result, status",
    r"look(?:s|ed|ing)? after": "monitor, reconcile, recover",
    r"look(?:s|ed|ing)? (?:at|into|again)|a look": "check, read, query, scan",
    r"mend(?:s|ed|ing)?|carr(?:y|ies|ied) out": "fix, repair; execute, apply",
    r"bur(?:y|ies|ied)": "fence, write a tombstone",
    r"stands?(?!-in)|stood|standing|nothing of it|none of ours": "exists, is in effect, is not compensated; not ours",
    r"go(?:es)? back|going back|went back|way back": "compensate, compensation",
    r"go(?:es)? on|going on|went on|(?:take[sn]?|taking|took) .{0,20}?\bup again": "continue, resume, recover",
    r"by (?:it|them)sel(?:f|ves)": "automatically, without operator action",
    r"in front of a person|a person (?:decides|is asked|has to|must)": "operator action is required",
    r"hand(?:s|ed|ing)? (?:\w+ )?over|hand-over": "dispatch, submit, pass",
    r"pass(?:es|ed|ing)? over": "skip; continue with a substitute output",
    r"given up|gave up|gives? (?:it|them|the \w+|a \w+) up": "fail after all retries, time out, abandon",
    r"count(?:s|ed|ing)? on|count(?:s|ed)? as": "rely on; is treated as",
    r"turn(?:s|ed)? late|(?:takes?|took) effect late": "late effect; was applied late",
    r"(?<!there )(?:is|are) no (?!longer|more|such)\w+|(?:is|are) none": "is not a ...; there is no ...",
    r"signs? of life|rather twice than never": "heartbeat; at least once",
    r"bad ends?|end(?:s|ed)? (?:otherwise than )?(?:badly|well)": "failed, timed out or was aborted; succeeded",
    r"front door|clinic|depot|caretaker|teller|manieth": "use the glossary's name",
    r"beside|anew|but for|dear(?:er)?|kinder|owe[sd]?": "next to, also; again; except for; use the literal word",
}
CLAUSE_FIRST = re.compile(r"\s*(?:What|Whom?|Whose|Whether|How|Where|Which|That|Of)\b")
CLAUSE_HINT = "start a docstring with a noun or an imperative verb"
SKIPPED = {"node_modules", "build", "dist", "cdk.out", ".git", "__pycache__", "__snapshots__", "golden"}
COMPILED = {re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE): hint for pattern, hint in RULES.items()}
CODE = re.compile(r"``?[^`]+``?|<!--.*?-->|https?://\S+|\]\([^)]*\)")
ALLOWED = Path(__file__).with_name("plain_english_allow.txt")
RECORDED = Path(__file__).with_name("plain_english.json")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def python_texts(source: str) -> Iterator[tuple[int, str, bool]]:
    """Line, text and whether it opens a docstring, for each docstring, prose string, comment and test name."""
    tree = ast.parse(source)
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, DOCUMENTED) and node.body]
    docstrings = {id(body[0].value) for body in bodies if isinstance(body[0], ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for offset, line in enumerate(node.value.splitlines()):
                yield node.lineno + offset, line, id(node) in docstrings and offset == 0
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.lineno, node.name.replace("_", " "), False
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string, False


def page_texts(source: str) -> Iterator[tuple[int, str, bool]]:
    """Lines of a Markdown page, without fenced code and quotations."""
    fence = ""
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fence = "" if fence else line.strip()
        elif (not fence or fence.startswith("```mermaid")) and not line.startswith(">"):
            yield number, line, False


@dataclass(slots=True)
class Findings:
    """Counts of words and findings by folder, and of findings by hint.

    Attributes:
        lines: each finding, as it is printed.
    """

    words: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    hints: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)

    def read(self, file: Path, name: str, exempt: set[str]) -> None:
        """Add the findings of one file."""
        folder = "/".join(Path(name).parts[:-1][:3]) or "."
        for line, text, opens in (python_texts if file.suffix == ".py" else page_texts)(file.read_text("utf-8")):
            prose = CODE.sub(" ", text)
            self.words[folder] += len(re.findall(r"[A-Za-z']+", prose))
            hits = [(match.group(), hint) for rule, hint in COMPILED.items() for match in rule.finditer(prose)]
            if opens and CLAUSE_FIRST.match(prose):
                hits.append((prose.strip()[:30], CLAUSE_HINT))
            for phrase, hint in hits:
                if not {"*", phrase.lower()} & exempt:
                    self.found[folder] += 1
                    self.hints[hint] += 1
                    self.lines.append(f"{file}:{line}: {phrase!r}: {hint}")

    def counts(self) -> Iterator[str]:
        """Counts per folder and per hint, and per 10,000 words."""
        for folder, size in [*sorted(self.words.items()), ("total", self.words.total())]:
            found = self.found.total() if folder == "total" else self.found[folder]
            yield f"{folder:44}{found:7,} in {size:8,} words, {found / max(size, 1) * 10_000:6.1f} per 10,000"
        yield from (f"{count:7,}  {hint}" for hint, count in self.hints.most_common())


def findings_of(roots: Sequence[Path]) -> Findings:
    """Findings of every Python file and page below some folders."""
    entries = [line.split(":", 1) for line in ALLOWED.read_text("utf-8").splitlines() if ":" in line]
    findings = Findings()
    for root in roots:
        for file in sorted(f for f in ([root] if root.is_file() else root.rglob("*")) if f.suffix in {".py", ".md"}):
            name = (file.relative_to(root) if root.is_dir() else file).as_posix()
            skipped = any(part in SKIPPED or part.startswith(".venv") for part in file.parts)  # `VENV=.venv-3.13`
            if not skipped and file.resolve() != Path(__file__).resolve():
                exempt = {w.strip().lower() for glob, ws in entries if fnmatch(name, glob) for w in ws.split(",")}
                findings.read(file, name, exempt)
    return findings


def check(findings: Findings) -> int:
    """Print the folders that have more findings than recorded: 1 if there are any."""
    recorded = json.loads(RECORDED.read_text("utf-8"))
    more = {folder: count for folder, count in findings.found.items() if count > recorded.get(folder, 0)}
    for folder, count in sorted(more.items()):
        print(f"{folder}: {count} findings of tools/plain_english.py, at most {recorded.get(folder, 0)} are recorded")
    return int(bool(more))


def main() -> int:
    """Print findings or counts, or compare them with the recorded ones."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, default=[Path()])
    parser.add_argument("--counts", action="store_true", help="print counts per folder, per hint and per 10,000 words")
    parser.add_argument("--check", action="store_true", help="fail if a folder has more findings than recorded")
    parser.add_argument("--record", action="store_true", help="record the number of findings of each folder")
    options = parser.parse_args()
    findings = findings_of(options.paths)
    if options.check:
        return check(findings)
    if options.record:
        RECORDED.write_text(json.dumps(dict(sorted(findings.found.items())), indent=2) + "\n", "utf-8")
        return 0
    print(*(findings.counts() if options.counts else findings.lines), sep="\n")
    return int(not options.counts and bool(findings.lines))


if __name__ == "__main__":
    sys.exit(main())
