"""Random row patterns over random rows: what our engine says against what Flink SQL says, row for row.

    python -m benchmarks.patterns_against_flink --flink "run.sh peer.MatchRecognize" --cases 1000 --work /tmp/patterns

FLINK is a command that runs queries over rows in Flink SQL: `FLINK --in ROWS.jsonl --sql QUERY.sql … --out FOLDER`,
with a folder for its answers, a JSON array of texts a line. A case is a query over one of the sets of rows. Several
cases go to Flink as one UNION ALL, since starting a job takes it seconds. Prints each case that differs, and the count.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import subprocess
from collections import defaultdict
from datetime import datetime, timedelta
from pathlib import Path

from fraudlake.errors import FraudlakeError
from tests.match_recognize import flink

MEASURES = 3
NAMES = "ABCD"
KEYS = ("accountId", "merchantId", "merchantId, kind", "accountId, merchantId")
"""What rows are partitioned by: the account, another column, which may be null, or two columns."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flink", required=True, help="the command that runs Flink")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--together", type=int, default=10, help="cases in a query")
    parser.add_argument("--per-rows", type=int, default=100, help="cases over the same rows")
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    draw = random.Random(options.seed)
    checked = differing = refused = matches = 0
    for begin in range(0, options.cases, options.per_rows):
        lines = random_rows(draw)
        cases = [random_case(draw) for _ in range(min(options.per_rows, options.cases - begin))]
        outcome = compare(options, begin, lines, cases)
        for case, (ours, flinks) in zip(cases, outcome, strict=True):
            if flinks is None:
                refused += 1
                continue
            checked += 1
            matches += len(flinks)
            if ours != flinks:
                differing += 1
                print(f"DIFFERS, rows {options.work / f'rows-{begin}.jsonl'}: {case}")
                print(f"  only ours {[row for row in ours if row not in flinks][:3]}")
                print(f"  only Flink's {[row for row in flinks if row not in ours][:3]}", flush=True)
        print(f"{checked} cases, {matches} rows, {differing} differ, {refused} refused by Flink", flush=True)


def compare(
    options: argparse.Namespace, begin: int, lines: list[str], cases: list[str]
) -> list[tuple[list[str], list[str] | None]]:
    """Return what we and what Flink say of each case; None: Flink refused its query."""
    rows, out = options.work / f"rows-{begin}.jsonl", options.work / f"out-{begin}"
    rows.write_text("".join(f"{line}\n" for line in lines))
    groups = [cases[first : first + options.together] for first in range(0, len(cases), options.together)]
    queries = []
    for number, group in enumerate(groups):
        queries.append(options.work / f"group-{begin}-{number}.sql")
        tagged = [case.replace("SELECT ", f"SELECT '{index}' AS tag, ", 1) for index, case in enumerate(group)]
        queries[-1].write_text("\nUNION ALL\n".join(tagged))
    arguments = [argument for query in queries for argument in ("--sql", str(query))]
    command = [*shlex.split(options.flink), "--in", str(rows), *arguments, "--out", str(out), "--lateness", "60"]
    with (options.work / "flink.log").open("a") as log:
        subprocess.run(command, check=True, stdout=log, stderr=log)
    given = flink.table(lines)
    outcome: list[tuple[list[str], list[str] | None]] = []
    for query, group in zip(queries, groups, strict=True):
        answer = out / f"{query.stem}.jsonl"
        answers: dict[str, list[list[str | None]]] | None = defaultdict(list) if answer.exists() else None
        if answers is None:
            print(f"Flink refused {query}: {(out / f'{query.stem}.error').read_text()[:300]}")
        else:
            for tag, *row in flink.answer(answer):
                answers[str(tag)].append(row)
        for index, case in enumerate(group):
            try:
                ours = flink.unordered(flink.results(case, given))
            except FraudlakeError as error:
                ours = [str(error)]
            outcome.append((ours, None if answers is None else flink.unordered(answers[str(index)])))
    return outcome


def random_rows(draw: random.Random) -> list[str]:
    """Draw rows in order of time: with ties, NULLs, accounts of one row, and gaps that are whole seconds."""
    accounts = [str(number) for number in range(draw.choice([1, 3, 8, 20]))]
    amounts = draw.choice([[1, 2, 3], [0.5, 1, 2, 5, 10, 100, 600, -3.25], [1, 2, 3, 4, 5, 6, 7, 8, 9]])
    gaps = draw.choice([[0, 1, 1, 2, 5], [0, 0.5, 1, 10, 30, 60], [1, 60, 61, 3600]])
    time, rows = datetime(2026, 1, 1), []
    for number in range(draw.choice([60, 200, 400])):
        time += timedelta(seconds=draw.choice(gaps))
        row = {
            "transaction_id": str(number),
            "accountId": f"only{number}" if draw.random() < 0.03 else draw.choice(accounts),
            "amount": None if draw.random() < 0.05 else draw.choice(amounts),
            "dt": time.strftime("%Y-%m-%d %H:%M:%S.") + f"{time.microsecond // 1000:03d}",
            "alert": draw.choice([True, False, None]),
            "merchantId": draw.choice(["m1", "m2", "Shop_A", None]),
            "kind": draw.choice(["pos", "web", "", None]),
        }
        rows.append(json.dumps(row))
    return rows


def random_case(draw: random.Random) -> str:
    """Draw a query: a pattern of one to four variables, with all that Flink takes with it."""
    names = NAMES[: draw.choice([1, 2, 2, 3, 3, 3, 4])]
    quantifiers = [draw.choice(["", "", "?", "*", "+", "*?", "+?", *_bounded(draw)]) for _ in names]
    optional = ("?", "*", "*?")
    if all(quantifier in optional or quantifier.startswith("{0") for quantifier in quantifiers):
        quantifiers[draw.randrange(len(names))] = draw.choice(["", "+?", "{2}"])
    last = quantifiers[-1]
    if last in ("*", "+") or (last.startswith("{") and "," in last and not last.endswith("?")):
        quantifiers[-1] = f"{last}?"
    for number, quantifier in enumerate(quantifiers[:-1]):
        is_greedy_loop = quantifier in ("*", "+") or (
            quantifier.startswith("{") and "," in quantifier and quantifier[-1] == "}"
        )
        if is_greedy_loop and quantifiers[number + 1] in ("?", "*", "*?"):
            quantifiers[number + 1] = draw.choice(["", "+?", "{0,2}?"])
    present = [name for name, quantifier in zip(names, quantifiers, strict=True) if not _may_be_absent(quantifier)]
    skips = ["PAST LAST ROW", "TO NEXT ROW"] * 2
    skips += [
        f"TO {end} {name}" for end in ("FIRST", "LAST") for name in present if name != names[0] and names[0] in present
    ]
    endless = any(sign in quantifier for quantifier in quantifiers for sign in ("*", "+", ",}"))
    within = (
        draw.choice(["'2' SECOND", "'10' SECOND", "'60' SECOND", "'1:01' MINUTE TO SECOND", "'1' HOUR", "'2' DAY"])
        if endless or draw.random() < 0.5
        else None
    )
    pattern = " ".join(f"{name}{quantifier}" for name, quantifier in zip(names, quantifiers, strict=True))
    definitions = [f"{name} AS {_condition(draw, names, name)}" for name in names if draw.random() < 0.85]
    measures = [f"{_measure(draw, names)} AS m{number}" for number in range(MEASURES)]
    selected = ", ".join(f"CAST(T.m{number} AS STRING) AS m{number}" for number in range(MEASURES))
    key = draw.choice(KEYS)
    clauses = [
        f"PARTITION BY {key} ORDER BY dt",
        f"MEASURES FIRST(transaction_id) AS f, LAST(transaction_id) AS l, {', '.join(measures)}",
        f"ONE ROW PER MATCH AFTER MATCH SKIP {draw.choice(skips)} PATTERN ({pattern})",
        f"WITHIN INTERVAL {within}" if within else "",
        f"DEFINE {', '.join(definitions or [f'{names[0]} AS TRUE'])}",
    ]
    columns = f"T.{key.split(', ')[0]} AS k, T.f, T.l, {selected}"
    return f"SELECT {columns} FROM transactions MATCH_RECOGNIZE ({' '.join(clauses)}) AS T"


def _bounded(draw: random.Random) -> list[str]:
    low = draw.choice([1, 2, 3])
    high = low + draw.choice([1, 2])
    reluctant = draw.choice(["", "?"])
    return [f"{{{low}}}", f"{{{low},{high}}}{reluctant}", f"{{{low},}}{reluctant}", f"{{0,{high}}}{reluctant}"]


def _may_be_absent(quantifier: str) -> bool:
    return quantifier.startswith(("?", "*", "{0"))


def _condition(draw: random.Random, names: str, own: str, depth: int = 0) -> str:
    if depth < 2 and draw.random() < 0.4:
        left, right = (_condition(draw, names, own, depth + 1) for _ in range(2))
        return draw.choice([f"({left} AND {right})", f"({left} OR {right})", f"NOT ({left})"])
    earlier = names[: names.index(own)]
    other = draw.choice(earlier) if earlier and draw.random() < 0.7 else own
    some = draw.choice([own, other])
    number, limit = draw.choice([0, 1, 2, 3, 5, 5.5, 50, 100]), draw.choice([2, 5, 10, 100, 500])
    column = draw.choice([f"{own}.amount", "amount", f"{own}.amount"])
    return draw.choice(
        [
            f"{column} {draw.choice(['<', '<=', '>', '>=', '=', '<>'])} {number}",
            f"{column} {draw.choice(['<', '>', '>=', '<>'])} {other}.amount",
            f"{column} > LAST({other}.amount, {draw.choice([0, 1, 2])})",
            f"(LAST({own}.amount, 1) IS NULL OR {column} >= LAST({own}.amount, 1))",
            f"{column} <= FIRST({draw.choice([f'{other}.amount', 'amount'])}, {draw.choice([0, 1])})",
            f"LAST(amount, {draw.choice([1, 2])}) {draw.choice(['<', '>'])} {column}",
            f"{draw.choice(['SUM', 'AVG', 'MAX', 'MIN'])}({some}.amount) {draw.choice('<>')} {limit}",
            f"{draw.choice(['SUM', 'AVG', 'MAX'])}(amount) < {limit}",
            f"COUNT({some}.amount) <= {draw.choice([1, 2, 3])}",
            f"COUNT({other}.merchantId) < 3",
            f"{own}.merchantId {draw.choice(['=', '<>', '<'])} {other}.merchantId",
            f"{own}.merchantId {draw.choice(['', 'NOT '])}IN ('m1', 'Shop_A')",
            f"{own}.merchantId {draw.choice(['', 'NOT '])}LIKE '{draw.choice(['m%', '%1', '_2', '%op%', '%'])}'",
            f"{own}.kind IS {draw.choice(['', 'NOT '])}NULL",
            f"COALESCE({own}.kind, 'web') = 'web'",
            f"UPPER({own}.kind) = 'POS'",
            f"{own}.alert",
            f"{own}.alert IS NOT TRUE",
            f"{column} {draw.choice(['', 'NOT '])}BETWEEN {number} AND {limit}",
            f"ABS({column} - {other}.amount) < {limit}",
            f"{column} * 2 + 1 > {other}.amount / 2",
            f"CASE WHEN {own}.kind = 'pos' THEN {column} > 2 ELSE {own}.alert END",
            f"TIMESTAMPDIFF(SECOND, {other}.dt, {own}.dt) {draw.choice(['<', '<=', '>'])} {draw.choice([1, 5, 60])}",
            f"{own}.dt < {other}.dt + INTERVAL '{draw.choice([1, 10, 60])}' SECOND",
            f"CHAR_LENGTH({own}.merchantId) > 2",
            f"{own}.merchantId IS NOT DISTINCT FROM {other}.merchantId",
        ]
    )


def _measure(draw: random.Random, names: str) -> str:
    name, other = draw.choice(names), draw.choice(names)
    offset = draw.choice([0, 1, 2])
    return draw.choice(
        [
            f"{name}.transaction_id",
            f"FIRST({name}.transaction_id, {offset})",
            f"LAST({name}.transaction_id, {offset})",
            f"LAST({name}.amount, {offset}) - FIRST({other}.amount)",
            f"COUNT({name}.amount)",
            "COUNT(*)",
            f"SUM({draw.choice([f'{name}.amount', 'amount'])})",
            f"AVG({draw.choice([f'{name}.amount', 'amount'])})",
            f"MIN({name}.merchantId)",
            f"MAX({name}.dt)",
            f"{name}.amount * 1.5 + COUNT({other}.amount)",
            f"TIMESTAMPDIFF(SECOND, FIRST({name}.dt), LAST(dt))",
            f"COALESCE({name}.merchantId, {other}.kind, 'none')",
            f"CASE WHEN {name}.amount > {other}.amount THEN 'more' WHEN {name}.amount IS NULL THEN 'no' ELSE 'x' END",
            f"{name}.alert",
            f"CAST(SUM({name}.amount) AS DECIMAL(12, 2))",
        ]
    )


if __name__ == "__main__":
    main()
