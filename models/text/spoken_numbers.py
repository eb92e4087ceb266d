"""Say numbers in English words, the American way: no "and" inside a number. No torch.

The words are num2words' (extras ``speak`` and ``speech``), imported when the first number comes.
"""

_LONGEST_NUMBER = 15
"""Digits of the longest number read as one; a longer one is a code, read digit by digit."""


class MissingNum2wordsError(ValueError):
    """Raised when a text has a number to say and num2words is not installed."""


def cardinal(number: int) -> str:
    """Return 199 as "one hundred ninety-nine"."""
    return _words(number, "cardinal")


def ordinal(number: int) -> str:
    """Return 22 as "twenty-second"."""
    return _words(number, "ordinal")


def year(number: int) -> str:
    """Return 1455 as "fourteen fifty-five", 1803 as "eighteen oh three"."""
    return _words(number, "year").replace("oh-", "oh ")


def digits(text: str) -> str:
    """Return "007" as "zero zero seven"; other characters are passed over."""
    return " ".join(cardinal(int(digit)) for digit in text if digit in "0123456789")


def number_as_written(text: str) -> str:
    """Return a number as it stands in English text, such as "1,250", "3.14" or "007".

    A leading zero or more than 15 digits make it a code, read digit by digit.
    """
    whole, _, decimals = text.replace(",", "").partition(".")
    is_code = len(whole) > _LONGEST_NUMBER or (len(whole) > 1 and whole.startswith("0"))
    said = digits(whole) if is_code else cardinal(int(whole))
    return f"{said} point {digits(decimals)}" if decimals else said


def decade(number: int) -> str:
    """Return 1990 as "nineteen nineties", 1900 as "nineteen hundreds", 90 as "nineties"."""
    said = year(number) if number >= 100 else cardinal(number)
    return said[:-1] + "ies" if said.endswith("y") else said + "s"


def fraction(numerator: int, denominator: int) -> str:
    """Return 3, 4 as "three quarters"; what is no proper fraction is read "over"."""
    if not 0 < numerator < denominator <= 100:
        return f"{cardinal(numerator)} over {cardinal(denominator)}"
    part = {2: "half", 4: "quarter"}.get(denominator) or ordinal(denominator)
    if numerator > 1:
        part = "halves" if part == "half" else part + "s"
    return f"{cardinal(numerator)} {part}"


def _words(number: int, form: str) -> str:
    try:
        from num2words import num2words
    except ModuleNotFoundError:
        raise MissingNum2wordsError(
            "num2words is missing; install sotto[speak], or sotto[speech] to train"
        ) from None

    # num2words writes "six thousand, four hundred and one".
    return str(num2words(number, to=form)).replace(" and ", " ")
