"""The functions, over decimal numbers."""

import decimal
from decimal import Decimal

# What 1 to this number multiply to has 2,568 digits.
MAX_FACTORIAL = 1000


class Unusable(Exception):
    """A function or a formula that has no result, and why."""


def call(name, values):
    """The result of a function. What it doesn't take is `Unusable`."""
    least, most, function = _FUNCTIONS[name]
    if not least <= len(values) <= (most or len(values)):
        wanted = f"{least}" if least == most else f"{least} to {most}" if most else f"{least} or more"
        raise Unusable(f"{name} takes {wanted} numbers, not {len(values)}")
    return +function(*values) if most else +function(values)


def shown(value):
    """A number without an exponent, unless it would be long."""
    if value == 0:
        return "0"
    value = value.normalize()
    return format(value, "f") if -30 <= value.adjusted() <= 60 else str(value)


def whole(what, value):
    """A number as an int. `what` names it."""
    if value != value.to_integral_value():
        raise Unusable(f"{what} is {shown(value)}; it has to be a whole number")
    if abs(value) > Decimal(10) ** 60:
        raise Unusable(f"{what} is {shown(value)}; the limit is 60 digits")
    return int(value)


def add(values):
    return sum(values, Decimal(0))


def subtract(values):
    return values[0] - add(values[1:])


def multiply(values):
    result = Decimal(1)
    for value in values:
        result *= value
    return result


def divide(values):
    result = values[0]
    for value in values[1:]:
        if value == 0:
            raise decimal.DivisionByZero
        result /= value
    return result


def modulo(value, by):
    """With the sign of `by`, as in mathematics."""
    if by == 0:
        raise decimal.DivisionByZero
    rest = value % by
    return rest + by if rest and (rest < 0) != (by < 0) else rest


def floor_divided(value, by):
    if by == 0:
        raise decimal.DivisionByZero
    # Towards zero, and without rounding.
    quotient = value // by
    return quotient - 1 if value % by and (value < 0) != (by < 0) else quotient


def power(base, exponent):
    if base == 0 and exponent < 0:
        raise decimal.DivisionByZero
    if base == 0 and exponent == 0:
        return Decimal(1)
    return base**exponent


def log(value, base=Decimal(10)):
    if value <= 0:
        raise Unusable(f"log of {shown(value)}: only numbers above 0 have one")
    if base <= 0 or base == 1:
        raise Unusable(f"the base is {shown(base)}; it has to be above 0, and not 1")
    return value.log10() if base == 10 else value.ln() / base.ln()


def ln(value):
    if value <= 0:
        raise Unusable(f"ln of {shown(value)}: only numbers above 0 have one")
    return value.ln()


def sqrt(value):
    if value < 0:
        raise Unusable(f"sqrt of {shown(value)}: negative numbers have none")
    return value.sqrt()


def factorial(value):
    count = whole("the number", value)
    if not 0 <= count <= MAX_FACTORIAL:
        raise Unusable(f"factorial of {count}: it takes 0 to {MAX_FACTORIAL}")
    result = 1
    for factor in range(2, count + 1):
        result *= factor
    return Decimal(result)


def floor(value):
    return value.to_integral_value(decimal.ROUND_FLOOR)


def ceil(value):
    return value.to_integral_value(decimal.ROUND_CEILING)


def rounded(value, digits=Decimal(0)):
    """Halves go away from zero, as people round."""
    count = whole("digits", digits)
    if not -60 <= count <= 60:
        raise Unusable(f"digits is {count}; it has to be -60 to 60")
    return value.quantize(Decimal(1).scaleb(-count), decimal.ROUND_HALF_UP)


def mean(values):
    return add(values) / len(values)


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def mode(values):
    return max(sorted(set(values)), key=values.count)


def variance(values):
    if len(values) < 2:
        raise Unusable("variance and stdev take 2 or more numbers, not 1")
    middle = mean(values)
    return add([(value - middle) ** 2 for value in values]) / (len(values) - 1)


def percentile(values):
    """Between the two nearest numbers, in proportion."""
    percentage, *data = values
    if not data:
        raise Unusable("percentile takes the percentage and at least one number")
    if not 0 <= percentage <= 100:
        raise Unusable(f"the percentage is {shown(percentage)}; it has to be 0 to 100")
    ordered = sorted(data)
    place = (len(ordered) - 1) * percentage / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def percentage_change(old, new):
    if old == 0:
        raise decimal.DivisionByZero
    return (new - old) / abs(old) * 100


def clamp(value, least, most):
    if least > most:
        raise Unusable(f"the least, {shown(least)}, is above the most, {shown(most)}")
    return min(max(value, least), most)


def gcd(values):
    result = 0
    for value in values:
        value = whole("a number", value)
        while value:
            result, value = value, result % value
    return Decimal(abs(result))


def lcm(values):
    result = Decimal(1)
    for value in values:
        if value == 0:
            return Decimal(0)
        result = abs(result * value) / gcd([result, value])
    return result


# The least and the most numbers, and the function. No most: it takes them as a list.
_FUNCTIONS = {
    "add": (1, None, add),
    "subtract": (2, None, subtract),
    "multiply": (1, None, multiply),
    "divide": (2, None, divide),
    "modulo": (2, 2, modulo),
    "power": (2, 2, power),
    "sqrt": (1, 1, sqrt),
    "abs": (1, 1, abs),
    "round": (1, 2, rounded),
    "floor": (1, 1, floor),
    "ceil": (1, 1, ceil),
    "log": (1, 2, log),
    "ln": (1, 1, ln),
    "exp": (1, 1, Decimal.exp),
    "factorial": (1, 1, factorial),
    "sum": (1, None, add),
    "mean": (1, None, mean),
    "median": (1, None, median),
    "mode": (1, None, mode),
    "min": (1, None, min),
    "max": (1, None, max),
    "range": (1, None, lambda values: max(values) - min(values)),
    "count": (1, None, lambda values: Decimal(len(values))),
    "variance": (2, None, variance),
    "stdev": (2, None, lambda values: variance(values).sqrt()),
    "percentile": (2, None, percentile),
    "percentage_change": (2, 2, percentage_change),
    "clamp": (3, 3, clamp),
    "gcd": (1, None, gcd),
    "lcm": (1, None, lcm),
}

NAMES = tuple(_FUNCTIONS)
