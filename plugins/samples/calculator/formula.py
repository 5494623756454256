"""Formulas: read by a parser of their own, since Python's would run what it reads."""

import decimal
import re
from decimal import Decimal

import functions
from functions import Unusable

# How deep parentheses, signs and exponents may stand within each other.
MAX_DEPTH = 40

_DIGITS = 60
_TOKEN = re.compile(r"\s*(?:(\d+(?:\.\d*)?(?:[eE][+-]?\d{1,5})?|\.\d+)|([a-z_]+)|(\*\*|//|[-+*/%^(),]))")
_CONSTANTS = {
    "pi": Decimal("3.14159265358979323846264338327950288419716939937510582097494459"),
    "e": Decimal("2.71828182845904523536028747135266249775724709369995957496696763"),
}


def context():
    """Bounds digits and exponents, so that no formula computes for long."""
    traps = [decimal.DivisionByZero, decimal.InvalidOperation, decimal.Overflow, decimal.Underflow]
    return decimal.Context(prec=_DIGITS, Emax=9999, Emin=-9999, rounding=decimal.ROUND_HALF_EVEN, traps=traps, flags=[])


def evaluate(text):
    """The value of a formula. One that isn't valid is `Unusable`."""
    parser = _Parser(text)
    value = parser.read_sum()
    if parser.token:
        raise Unusable(f"`{parser.token}` at character {parser.start + 1} doesn't fit there")
    return +value


class _Parser:
    def __init__(self, text):
        self.text = text
        self.end = 0
        self.depth = 0
        self.next()

    def next(self):
        """Goes to the next token. At the end, it is empty."""
        rest = self.text[self.end :]
        if not rest.strip():
            self.kind, self.token, self.start = "end", "", len(self.text)
            return
        found = _TOKEN.match(self.text, self.end)
        if not found:
            place = self.end + len(rest) - len(rest.lstrip())
            raise Unusable(f"`{self.text[place]}` at character {place + 1} has no meaning in a formula")
        self.kind = ("number", "name", "sign")[found.lastindex - 1]
        self.token, self.start, self.end = found[found.lastindex], found.start(found.lastindex), found.end()

    def takes(self, *signs):
        """The sign, if the next token is one of these."""
        if self.kind == "sign" and self.token in signs:
            sign = self.token
            self.next()
            return sign
        return None

    def needs(self, sign):
        if not self.takes(sign):
            where = f"before `{self.token}`" if self.token else "at the end"
            raise Unusable(f"`{sign}` is missing {where} (character {self.start + 1})")

    def within(self, part):
        """Reads a part that can hold itself."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unusable(f"the formula has more than {MAX_DEPTH} levels")
        value = part()
        self.depth -= 1
        return value

    def read_sum(self):
        value = self.product()
        while sign := self.takes("+", "-"):
            right = self.product()
            value = value + right if sign == "+" else value - right
        return value

    def product(self):
        value = self.signed()
        while sign := self.takes("*", "/", "//", "%"):
            right = self.signed()
            if sign == "*":
                value = value * right
            elif sign == "/":
                value = functions.divide([value, right])
            elif sign == "//":
                value = functions.floor_divided(value, right)
            else:
                value = functions.modulo(value, right)
        return value

    def signed(self):
        """A sign stands outside of a power: -2**2 is -4."""
        sign = self.takes("+", "-")
        if not sign:
            return self.power()
        value = self.within(self.signed)
        return -value if sign == "-" else value

    def power(self):
        """From right to left: 2**3**2 is 2**9."""
        base = self.atom()
        return functions.power(base, self.within(self.signed)) if self.takes("**", "^") else base

    def atom(self):
        kind, token, start = self.kind, self.token, self.start
        if self.takes("("):
            value = self.within(self.read_sum)
            self.needs(")")
            return value
        if kind == "number":
            self.next()
            return Decimal(token)
        if kind == "name":
            self.next()
            return self.within(lambda: self.named(token))
        found = f"`{token}`" if token else "the end"
        raise Unusable(f"a number is missing before {found} (character {start + 1})")

    def named(self, name):
        if name in _CONSTANTS:
            # With more digits than are computed with, so that it counts as rounded.
            return +_CONSTANTS[name]
        if name not in functions.NAMES:
            raise Unusable(f"{name} isn't known; there are: pi, e, {', '.join(functions.NAMES)}")
        self.needs("(")
        values = [self.read_sum()]
        while self.takes(","):
            values.append(self.read_sum())
        self.needs(")")
        return functions.call(name, values)
