"""`evolve`: `dataclasses.replace` for frozen slotted values, at half its cost.

The fold makes a few new values for every event, and `dataclasses.replace` was most of its time
(3.2 us for 15 fields, this 1.8). It copies slots and runs no `__init__`, so it is for values that
have no `__post_init__`. To a type checker it is `dataclasses.replace` itself: names and types of
the changes are checked.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import replace as evolve
else:
    _set = object.__setattr__

    def evolve(value, **changes):
        """The value with these members changed."""
        cls = type(value)
        new = object.__new__(cls)
        for name in cls.__slots__:
            _set(new, name, changes[name] if name in changes else getattr(value, name))
        return new


__all__ = ["evolve"]
