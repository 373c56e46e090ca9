"""The drawn tree of errors.py is the tree of its classes, each with a stable code of its own."""

import inspect
import re

from threadlog import errors

NODE = re.compile(r"^(?P<indent>[ |]*)(?:\+-- )?(?P<name>[A-Z]\w+Error)\b")


def classes() -> dict[str, type[errors.ThreadlogError]]:
    return {
        name: value
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.ThreadlogError)
    }


def drawn() -> dict[str, str | None]:
    """Class name -> name of its parent, as the docstring draws them."""
    tree: dict[str, str | None] = {}
    path: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        found = NODE.match(line)
        if found is None:
            continue
        column = found.start("name")
        while path and path[-1][0] >= column:
            path.pop()
        tree[found["name"]] = path[-1][1] if path else None
        path.append((column, found["name"]))
    return tree


def test_the_drawing_is_the_tree() -> None:
    parents = {
        name: None if value is errors.ThreadlogError else value.__mro__[1].__name__
        for name, value in classes().items()
    }
    assert drawn() == parents


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [value.code for value in classes().values()]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[a-z][a-z_]*", code) for code in codes)
    assert all("code" in vars(value) for value in classes().values())


def test_every_error_is_documented_and_named_as_one() -> None:
    for name, value in classes().items():
        assert name.endswith("Error")
        assert value.__doc__
