"""Style that a program can check: sizes, names, homes of dangerous things, reasons of exceptions.

What ruff, mypy and import-linter check is not repeated here.
"""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.arch.tree import PACKAGE, ROOT, files, modules, name_of, texts

MODULE_LINES_MAX = 400
TEST_MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
PUBLIC_NAMES_MAX = 12

BANNED_WORDS = frozenset(
    [
        *("session", "chat", "conversation", "iteration", "superstep", "action", "activity"),
        *("lease", "incarnation", "emit", "reduce", "checkpoint", "org", "account", "customer"),
    ]
)
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

# The environment is read in one place; the tests start programs and may pass theirs on.
ENVIRONMENT_HOMES = {
    "services/threadlog/settings.py",
    "services/threadlog/bootstrap/doctor/environment.py",  # sets aside what is wrong
    "services/threadlog/adapters/sandbox/helper_probes.py",  # looks for secrets, from inside
}
# One file draws the whole tree, so that a worker's author sees it at once.
MANY_NAMES_ALLOWED = {"services/threadlog/errors.py"}
# Data in, data out: the core and the ports say exactly what they take.
NO_ANY = ("services/threadlog/events/", "services/threadlog/thread/", "services/threadlog/ports/")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def both() -> Iterator[tuple[str, ast.Module]]:
    yield from modules("services")
    yield from modules("tests")


def functions(tree: ast.Module) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def defined_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, name) of everything that this module names itself, not what it calls elsewhere."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
            case ast.alias(asname=str(name)):
                yield node.lineno, name
            case _:
                pass


def words(identifier: str) -> set[str]:
    """The whole words of an identifier, in singular: `releasedLeases` has released and lease."""
    found = {word.lower() for word in WORD.findall(identifier)}
    return found | {word.removesuffix("s") for word in found}


def test_no_module_is_too_long() -> None:
    long = {}
    for path in files():
        if path.suffix == ".py":
            is_test = name_of(path).startswith("tests/")
            lines = len(path.read_text().splitlines())
            if lines > (TEST_MODULE_LINES_MAX if is_test else MODULE_LINES_MAX):
                long[name_of(path)] = lines
    assert not long


def test_no_function_is_too_long() -> None:
    long = []
    for name, tree in both():
        for node in functions(tree):
            # An option of a command is a parameter with its help text: declaration, not logic.
            is_command = name.startswith("services/threadlog/cli/")
            first = node.body[0].lineno if is_command else node.lineno
            lines = (node.end_lineno or first) - first + 1
            if lines > FUNCTION_LINES_MAX:
                long.append(f"{name}:{node.lineno} {node.name}: {lines} lines")
    assert not long


def test_no_module_has_too_many_public_names() -> None:
    crowded = {}
    for name, tree in modules("services"):
        public = [
            node.name
            for node in tree.body
            if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_")
        ]
        if len(public) > PUBLIC_NAMES_MAX and name not in MANY_NAMES_ALLOWED:
            crowded[name] = public
    assert not crowded


def test_banned_words_are_not_names_of_ours() -> None:
    found = [
        f"{name}:{line} {identifier}"
        for name, tree in both()
        for line, identifier in defined_names(tree)
        if words(identifier) & BANNED_WORDS
    ]
    found += [name_of(p) for p in files() if p.suffix == ".py" and words(p.stem) & BANNED_WORDS]
    assert not found


def test_banned_words_are_not_event_types() -> None:
    types = {
        node.value
        for _, tree in modules("services/threadlog/events")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.fullmatch(r"[a-z]+\.[a-z_]+", node.value)
    }
    assert "turn.started" in types, "the scan no longer sees the vocabulary"
    assert not [name for name in types if words(name) & BANNED_WORDS]


@pytest.mark.parametrize(
    ("identifier", "expected"),
    [
        ("lease", {"lease"}),
        ("released", set()),
        ("HTTPSession", {"session"}),
        ("open_sessions", {"session"}),
        ("reorganise", set()),
    ],
)
def test_words_are_whole_words(identifier: str, expected: set[str]) -> None:
    assert words(identifier) & BANNED_WORDS == expected


def test_package_inits_are_a_docstring_and_nothing_else() -> None:
    busy = []
    for name, tree in modules("services"):
        if name.endswith("/__init__.py") and (len(tree.body) != 1 or not ast.get_docstring(tree)):
            busy.append(name)
    assert not busy
    assert not [name for name, _ in modules("tests") if name.endswith("/__init__.py")]


def test_the_environment_is_read_in_one_place() -> None:
    readers = []
    for name, tree in modules("services"):
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(value=ast.Name(id="os"), attr="environ" | "getenv" | "environb"):
                    readers.append(f"{name}:{node.lineno}")
                case ast.ImportFrom(module="os") if {"environ", "getenv"} & {
                    alias.name for alias in node.names
                }:
                    readers.append(f"{name}:{node.lineno}")
                case _:
                    pass
    assert not [where for where in readers if where.partition(":")[0] not in ENVIRONMENT_HOMES]


def test_core_and_ports_never_say_any() -> None:
    vague = [
        f"{name}:{node.lineno}"
        for name, tree in modules("services")
        if name.startswith(NO_ANY)
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id == "Any"
    ]
    assert not vague


def test_every_ignore_names_its_rule_and_its_reason() -> None:
    # A reason is a few words behind the rule and another hash.
    rule = r"#\s*(?:type:\s*ignore|noqa|pragma: no)(?P<rule>[^#]*)"
    ignore = re.compile(rule + r"(?:#\s*(?P<why>.*))?$")
    bare = []
    for name, text in texts():
        if name.endswith(".py") and not name.startswith("tests/arch/"):
            for number, line in enumerate(text.splitlines(), 1):
                found = ignore.search(line)
                if found and not (found["rule"].strip() and len(found["why"] or "") >= 4):
                    bare.append(f"{name}:{number} {line.strip()}")
    assert not bare


# Written in pieces, so that this file does not name what it forbids.
FOREIGN = re.compile(
    "|".join(
        [
            r"(?<![\w.])/work/",
            r"/home/[a-z]\w*/",
            r"/" + r"Users/\w",
            r"/root/\.py" + "env",
            r"/opt/" + "wheels",
            r"\.\./" + "shared",
            r"py" + r"pi\.org",
            r"python" + r"hosted\.org",
            r"npm" + r"js\.(?:org|com)",
            r"crates" + r"\.io",
            r"deb" + r"ian\.org",
            r"proxy\.golang" + r"\.org",
            r"repo1?\.maven" + r"\.",
            r"(?:docker|ghcr|quay)" + r"\.io",
        ]
    )
)


def test_no_file_names_a_machine_or_a_registry() -> None:
    allowed = {"tests/arch/test_tidy.py"}
    found = [
        f"{name}:{number} {match[0]}"
        for name, text in texts()
        if name not in allowed
        for number, line in enumerate(text.splitlines(), 1)
        for match in [FOREIGN.search(line)]
        if match
    ]
    assert not found


def test_nothing_big_or_generated_is_committed() -> None:
    large = [name_of(p) for p in files() if p.stat().st_size > 1024 * 1024]
    assert not large
    assert not [name_of(p) for p in files() if p.suffix in {".db", ".pyc", ".whl"}]


def test_the_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()
    assert (ROOT / "LICENSE").read_text().lstrip().startswith("Apache License")
