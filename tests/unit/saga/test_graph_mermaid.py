"""A saga as a Mermaid flowchart."""

from __future__ import annotations

import re

from hypothesis import given, settings

from constructs_lib.saga.description.description import SagaDescription
from constructs_lib.saga.graph.mermaid import to_mermaid
from tests.unit.support.drawn_sagas import ORDER, TRANSFER, saga, sagas, step

NODE = re.compile(r'^ +(\w+)(?:\["[^"]*"\]|\(\["[^"]*"\]\)|\{\{"[^"]*"\}\})$')
GROUP = re.compile(r'^ +subgraph g\d+\["[^"]*"\]$')
EDGE = re.compile(r"^ +(\w+) (?:-->(?:\|(?:yes|no)\|)?|-\.->) (\w+)$")
CLASS = re.compile(r"^ +class ([\w,]+) (\w+)$")
STYLE = re.compile(r"^ +classDef \w+ [\w:,\- ]+$")


def test_a_saga_of_two_routes_is_drawn_so() -> None:
    lines = [line.strip() for line in to_mermaid(TRANSFER).splitlines()]

    assert lines[:3] == [
        "flowchart TD",
        'start(["Request"])',
        'c1{{"$request.to_ledger = #34;partner#34;"}}',
    ]
    assert 's3["Credit<br/>atomic, in DynamoDB<br/>pivot: from here only forward"]' in lines
    assert {"c1 -->|yes| s2", "c1 -->|no| s1", "s3 --> s4", "s1 --> s4", "s4 --> completed"} <= set(lines)
    assert {"s3 -.-> u2", "s2 -.-> u2", "u2 -.-> failed", "s1 -.-> failed", "s4 -.-> parked"} <= set(lines)


def test_the_compensations_are_a_chain_from_the_last_step_to_the_first() -> None:
    names = dict(re.findall(r'(u\d+)\["Compensate (\w+)"\]', to_mermaid(ORDER)))
    chain = re.findall(r"(u\d+) -\.-> (\w+)", to_mermaid(ORDER))

    assert [(names[one], names.get(other, other)) for one, other in chain] == [
        ("Reserve", "failed"),
        ("Charge", "Reserve"),
        ("Pick", "Charge"),
        ("Label", "Pick"),
    ]


def test_a_group_is_a_subgraph_and_its_branches_begin_at_once() -> None:
    drawn = to_mermaid(ORDER)

    assert 'subgraph g2["Fulfil: parallel, 2 branches at once"]' in drawn
    assert {"s4 --> s5", "s4 --> s6"} <= {line.strip() for line in drawn.splitlines()}


@given(sagas())
@settings(max_examples=60)
def test_every_chart_is_well_formed(of: SagaDescription) -> None:
    first, *lines = to_mermaid(of).splitlines()
    nodes = {match[1] for line in lines if (match := NODE.match(line))}
    edges = [match.groups() for line in lines if (match := EDGE.match(line))]

    assert first == "flowchart TD"
    assert [line for line in lines if not any(kind.match(line) for kind in (NODE, GROUP, EDGE, CLASS, STYLE))] == [
        line for line in lines if line.strip() == "end"
    ]
    assert {node for edge in edges for node in edge} <= nodes
    assert set(",".join(match[1] for match in map(CLASS.match, lines) if match).split(",")) <= nodes
    assert sum(line.strip() == "end" for line in lines) == sum(bool(GROUP.match(line)) for line in lines)


def test_the_text_of_a_condition_is_never_taken_for_mermaid() -> None:
    drawn = to_mermaid(saga(step("A", side="pivot", when='"`<b>#35; & \\ %%{init: {}}%% ]]}} -->\n end')))

    (condition,) = (line for line in drawn.splitlines() if "c1{{" in line)
    inside = condition.partition('{{"')[2].rpartition('"}}')[0].replace("<br/>", "")
    assert not set('"`<>&%\\') & set(inside)
    assert not set("#;") & set(re.sub(r"#\d+;", "", inside))
