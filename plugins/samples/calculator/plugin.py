"""A calculator: formulas, and functions of lists of numbers. It asks for nothing."""

import decimal
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Literal

import functions
import formula
from toolhold import Examples, InvalidParameters, Limits, tool


@dataclass
class Result:
    value: Annotated[str, "The number, with at most 60 digits."]
    exact: Annotated[bool, "Whether nothing was rounded."]


@tool(promises=["read-only", "idempotent", "closed-world", "cacheable"])
def evaluate(
    expression: Annotated[str, "The formula.", Limits(min=1, max=1000), Examples("(1.1 + 2.2) * 3")],
) -> Result:
    """Computes a formula with decimal numbers: 0.1 + 0.2 is 0.3. It knows + - * / // % ** (or ^), parentheses, the
    numbers pi and e, and the functions of `calculate`, such as sqrt(2) or max(1, 2, 3). It computes with 60 digits,
    and `exact` says whether the result was rounded. Fails if the formula isn't valid or the result is too large."""
    return _computed(lambda: formula.evaluate(expression))


@tool(promises=["read-only", "idempotent", "closed-world", "cacheable"])
def calculate(
    function: Annotated[Literal[*functions.NAMES], "What to compute."],
    values: Annotated[list[float], "The numbers, in their order.", Limits(min=1, max=1000)],
) -> Result:
    """Computes a function of numbers.

    Of all numbers: add (or sum), multiply, mean, median, mode (of several, the least), min, max, range, count,
    variance and stdev (of a sample), gcd, lcm. From left to right: subtract, divide. Of one number: abs, sqrt, ln, exp,
    factorial, floor, ceil. Of two: modulo, power (base, exponent), log (number, base; 10 if left out), round (number,
    digits; 0 if left out), percentage_change (old, new). percentile takes the percentage first, then the data. clamp
    takes the number, the least, and the most.

    Fails if a function has too few or too many numbers, or no result."""
    # A number of JSON is written as its author wrote it, not as the nearest binary fraction.
    return _computed(lambda: functions.call(function, [Decimal(repr(value)) for value in values]))


def _computed(work):
    """The result of some work, computed with bounded digits and exponents."""
    with decimal.localcontext(formula.context()) as context:
        try:
            value = work()
        except functions.Unusable as problem:
            raise InvalidParameters(str(problem), code="no-result") from None
        except decimal.DivisionByZero:
            raise InvalidParameters("a number is divided by 0", code="no-result") from None
        except (decimal.Overflow, decimal.Underflow):
            raise InvalidParameters("the result has an exponent beyond ±9,999", code="no-result") from None
        except decimal.InvalidOperation:
            raise InvalidParameters("the result is no real number, or has more than 60 digits", code="no-result") from None
        return Result(value=functions.shown(value), exact=not context.flags[decimal.Inexact])
