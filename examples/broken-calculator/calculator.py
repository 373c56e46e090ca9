"""A calculator: `evaluate("2 + 3 * (4 - 1)")` is 11.0.

Grammar, loosest binding first:

    sum     = product { ("+" | "-") product }
    product = factor { ("*" | "/") factor }
    factor  = number | "-" factor | "(" sum ")"
"""

import re
import sys

TOKEN = re.compile(r"\s*(\d+\.?\d*|[-+*/()])")


def tokens(text):
    """The numbers and signs in `text`, in order."""
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"cannot read {text[at:]!r}")
        found.append(match[1])
        at = match.end()
    return found


def evaluate(text):
    """The value of the expression `text`."""
    rest = tokens(text)
    value = _sum(rest)
    if rest:
        raise ValueError(f"unexpected {rest[0]!r}")
    return value


def _sum(rest):
    value = _product(rest)
    while rest and rest[0] in "+-":
        sign = rest.pop(0)
        right = _sum(rest)
        value = value + right if sign == "+" else value - right
    return value


def _product(rest):
    value = _factor(rest)
    while rest and rest[0] in "*/":
        sign = rest.pop(0)
        right = _factor(rest)
        value = value * right if sign == "*" else value / right
    return value


def _factor(rest):
    if not rest:
        raise ValueError("the expression ends too early")
    token = rest.pop(0)
    if token == "-":
        return -_factor(rest)
    if token == "(":
        value = _sum(rest)
        if not rest or rest.pop(0) != ")":
            raise ValueError("a parenthesis is not closed")
        return value
    return float(token)


if __name__ == "__main__":
    print(evaluate(" ".join(sys.argv[1:])))
