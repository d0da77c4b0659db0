"""The page docs/reference/messages.md, made of the errors that the code raises: ``make reference`` writes it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import fraudlake

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "messages.md"
SOURCE = Path(fraudlake.__file__).parents[1]
_HEAD = """# Messages

Every line with which a command refuses or fails (`fraudlake: …` on standard error, exit code 1 or 2), and every line
that `status` marks with ✗. `make reference` writes this page from the code. Capitals stand for what the line names.
Most lines end with what to do; for the others there is the *look at* of the table. [The
runbook](../how-to/runbook.md) begins from symptoms.
"""
AREAS = {
    "Machine and environment": (
        (
            "fraudlake_cli/main.py",
            "fraudlake_cli/commands/doctor.py",
            "fraudlake/process/extras.py",
            "fraudlake/process/host.py",
            "fraudlake/process/python_path.py",
            "fraudlake/lake/jars.py",
            "fraudlake/lake/java.py",
            "fraudlake/lake/session.py",
            "fraudlake/lake/opening.py",
        ),
        "`fraudlake doctor`; [machines and containers](../how-to/machines.md)",
    ),
    "Flags and calls": (
        (
            "fraudlake_cli",
            "fraudlake/api.py",
            "fraudlake/operations/backfill.py",
            "fraudlake/operations/lineage.py",
            "fraudlake/streams/score.py",
            "fraudlake/text/table_file.py",
        ),
        "`fraudlake COMMAND --help`; [commands](commands.md)",
    ),
    "Settings": (
        (
            "fraudlake/settings",
            "fraudlake/values.py",
            "fraudlake/times/durations.py",
            "fraudlake/text/toml_file.py",
            "fraudlake/text/text_file.py",
        ),
        "`fraudlake define`; [settings](settings.md)",
    ),
    "The lake": (
        ("fraudlake/lake", "fraudlake/tables.py", "fraudlake/operations/standstill.py", "fraudlake/gold"),
        "`fraudlake status`; [a lake's definition](../how-to/operations.md), [copies](../how-to/restore-and-move.md)",
    ),
    "Streams": (
        ("fraudlake/streams",),
        "`fraudlake status`, `lake/logs/spark.log`; [run steps, and stop them](../how-to/run-and-stop.md)",
    ),
    "Landed files": (("fraudlake/sources", "fraudlake/bronze"), "`fraudlake status`; [files](../how-to/ingestion.md)"),
    "Kafka": (
        ("fraudlake/kafka", "fraudlake/sources/kafka.py", "fraudlake/sources/kafka_source.py"),
        "`fraudlake doctor --source kafka --bootstrap-servers HOST:PORT`; [Kafka](../how-to/kafka.md)",
    ),
    "Quarantine": (
        ("fraudlake/quarantine", "fraudlake/silver"),
        "`fraudlake quarantine`; [data quality](../how-to/quality.md)",
    ),
    "Rates of exchange": (
        ("fraudlake/rates",),
        "`fraudlake rates list`; [several currencies](../how-to/currencies.md)",
    ),
    "Rules and row patterns": (
        ("fraudlake/rules", "fraudlake/detection", "fraudlake_patterns"),
        "`fraudlake rules check`, `fraudlake rules list`; [rules](../how-to/rules.md), "
        "[MATCH_RECOGNIZE](match-recognize.md)",
    ),
    "The model": (("fraudlake/model",), "`fraudlake model list`; [the model](../how-to/model.md)"),
    "Delivery": (("fraudlake/delivery",), "`fraudlake status`; [delivery](../how-to/delivery.md)"),
    "The desk": (("fraudlake_desk", "fraudlake/review"), "`fraudlake desk --help`"),
    "Approvals": (
        ("fraudlake/approvals", "fraudlake_cli/commands/approvals.py"),
        "`fraudlake approvals list`, `approvals show`; [two keys](../how-to/approvals.md)",
    ),
    "The fast lane": (("fraudlake_lane",), "`fraudlake realtime --help`; [the fast lane](../how-to/realtime.md)"),
    "Status": (
        ("fraudlake/operations/status",),
        "`fraudlake status`, which exits with 1; [data quality](../how-to/quality.md#does-it-add-up)",
    ),
    "Operations": (
        ("fraudlake/operations", "fraudlake/forget", "fraudlake_tools"),
        "`fraudlake status`; [operations](../how-to/operations.md)",
    ),
    "The probe": (
        ("fraudlake_tools/probe/assumptions.py", "fraudlake_tools/probe/worker.py", "fraudlake_tools/probe/scratch.py"),
        "`fraudlake workspace probe`, whose line below each ✗ says what to do; "
        "[a lake in a workspace](../how-to/workspace.md#workspace-probe)",
    ),
    "A workspace": (
        ("fraudlake_workspace",),
        "`fraudlake workspace check`, `workspace probe`; [a lake in a workspace](../how-to/workspace.md)",
    ),
}
"""Parts of the code, with what to look at; the longest path that fits a module decides."""
_VALUES = (
    "fraudlake/settings",
    "fraudlake/rules",
    "fraudlake/delivery",
    "fraudlake/values.py",
    "fraudlake/times/durations.py",
    "fraudlake/model",
)
"""Where a ``ValueError`` is the reason for which a setting or an entry of a file is refused."""
_NAMED = ("column", "feature", "first", "lake", "last", "person", "rule", "table", "view")
"""Variables whose name says more than that they have a name or a version."""


@dataclass(frozen=True)
class Message:
    """A line that a module may print; capitals stand for what is filled in."""

    module: str
    text: str


def messages() -> Iterator[Message]:
    """Every message of the errors that the code raises, and of the findings of ``status``."""
    modules = trees()
    errors = error_classes(modules.values())
    for module, tree in modules.items():
        constants = _constants(tree)
        names = errors | ({"ValueError"} if module.startswith(_VALUES) else set())
        for node in ast.walk(tree):
            error = node.exc if isinstance(node, ast.Raise) else None
            if isinstance(error, ast.Call) and error.args and _name(error.func) in names:
                yield Message(module, _text(error.args[0], constants))
        for text in _found(module, tree, constants):
            yield Message(module, text)


def trees() -> dict[str, ast.Module]:
    """The package's modules, by path."""
    return {path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}


@cache
def rows() -> dict[str, list[str]]:
    """The messages by part of the code, each once, without those that only pass on a text."""
    found: dict[str, dict[str, None]] = {area: {} for area in AREAS}
    for message in messages():
        if re.search(r"[a-z]{2}", message.text):
            found[area_of(message.module)][message.text] = None
    return {area: [*texts] for area, texts in found.items()}


def area_of(module: str) -> str:
    """The part of the code that a module belongs to."""
    fitting = [
        (len(path), area)
        for area, (paths, _) in AREAS.items()
        for path in paths
        if module == path or module.startswith(f"{path}/")
    ]
    assert fitting, f"{module} prints messages, and belongs to no part: name it in AREAS"
    return max(fitting)[1]


def page() -> str:
    """Return the page as Markdown."""
    return "\n".join([_HEAD, *(_section(area, texts) for area, texts in rows().items() if texts)])


def _section(area: str, texts: list[str]) -> str:
    lines = [_row(text) for text in sorted(texts, key=str.lower)]
    table = ["| what happened | what to do |", "|---|---|", *lines]
    return "\n".join([f"## {area}", "", f"Look at: {AREAS[area][1]}.", "", *table, ""])


def _row(text: str) -> str:
    happened, _, remedy = text.rpartition(": ")
    if remedy == "REASON" or not re.search(r"[a-z]{2}.* ", happened):  # the colon follows only a name
        happened, remedy = text, ""
    return f"| {_cell(happened)} | {_cell(remedy) if remedy else ''} |"


def _cell(text: str) -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")
    return re.sub(r"([*_`\[\]\\{}])", r"\\\1", escaped)


def error_classes(modules: Iterable[ast.Module]) -> set[str]:
    """The names of the classes of errors whose text is a line for the user."""
    names = {"FraudlakeError"}
    classes = [one for tree in modules for one in ast.walk(tree) if isinstance(one, ast.ClassDef)]
    while more := {one.name for one in classes if {_name(base) for base in one.bases} & names} - names:
        names |= more
    return names


def _found(module: str, tree: ast.Module, constants: dict[str, str]) -> Iterator[str]:
    """Messages that no error brings: what ``status`` marks, and the problems of Kafka's client."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) == "Problem":
            yield ": ".join(_text(argument, constants) for argument in node.args)
        if (
            module == "fraudlake/kafka/client.py"
            and isinstance(node, ast.Assign)
            and _name(node.targets[0]) == "_PROBLEMS"
        ):
            yield from (f"Kafka at SERVERS {problem[1]}" for problem in ast.literal_eval(node.value))
        if module == "fraudlake/kafka/client.py" and isinstance(node, ast.FunctionDef) and node.name == "explain":
            yield from (
                _text(one.value, constants) for one in ast.walk(node) if isinstance(one, ast.Return) and one.value
            )
        if module == "fraudlake_cli/main.py" and isinstance(node, ast.Call) and _name(node.func) == "_fail":
            yield _text(node.args[0], constants)


def _constants(tree: ast.Module) -> dict[str, str]:
    named = [node for node in tree.body if isinstance(node, ast.Assign)]
    return {_name(one.targets[0]): _text(one.value, {}) for one in named if isinstance(one.value, ast.Constant)}


def _name(node: ast.expr) -> str:
    return str(getattr(node, "id", getattr(node, "attr", "")))


def _text(node: ast.expr, constants: dict[str, str]) -> str:
    """The text of an expression, with the names of what is filled in as capitals."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):  # what directly follows a word is an addition to it
            return re.sub(r"(?<=[a-z])[A-Z]{2,}", "…", "".join(_text(part, constants) for part in parts))
        case ast.FormattedValue(value=value):
            return _text(value, constants)
        case ast.BinOp(left=ast.Name() as left):  # a number or a day
            return _text(left, constants)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left, constants) + _text(right, constants)
        case ast.IfExp(body=body):
            return _text(body, constants)
        case ast.Attribute(value=ast.Name(id=owner), attr="name" | "version") if owner in _NAMED:
            return owner.upper()
        case ast.Name() | ast.Attribute():
            return constants.get(_name(node)) or _name(node).strip("_").upper()
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str()), attr="join")):
            return "NAMES"
        case ast.Call(args=[argument]) if _name(node.func) in ("escape", "str", "repr", "sorted", "len", "min"):
            return _text(argument, constants)
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            return key.upper()
        case ast.Call(func=ast.Name(id="counted"), args=[_, ast.Constant(value=str(noun))]):
            return f"NUMBER {noun}s"
        case ast.Subscript(value=value) if not isinstance(value, ast.Call):
            return _text(value, constants)
        case ast.Call() if "error" in {_name(one) for one in ast.walk(node) if isinstance(one, ast.Name)}:
            return "REASON"
        case ast.Call(func=ast.Name(id=name)):
            return name.strip("_").upper()
    return "…"


if __name__ == "__main__":
    PAGE.write_text(page())
