"""Put digits into words: dates, times, money, measures, ordinals, the rest. No torch.

English, read the American way. The rules run in a fixed order, the most particular first, since
"3:30" is also two numbers, and a year also one. Some readings are guesses: a four-digit number from
1100 to 2099 without a comma is read as a year, 4/5/2021 as April the fifth, and two digits of a
year, as in 7/4/76, as one from 1969 to 2068.
"""

import re
from collections.abc import Callable
from re import Match

from models.text.spoken_numbers import (
    cardinal,
    decade,
    digits,
    fraction,
    number_as_written,
    ordinal,
    year,
)

_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
# With a capital letter, or "5 may follow" would be a date.
_NAMES = "|".join(f"{name.title()}|{name[:3].title()}\\.?" for name in _MONTHS) + r"|Sept\.?"
_MONTH = f"(?-i:{_NAMES})"
# A bound, since rules that find no unit behind a number look again from each of its groups.
_NUMBER = r"\d{1,3}(?:,\d{3}){1,20}(?:\.\d+)?|\d+(?:\.\d+)?"
_SCALES = {"k": "thousand", "m": "million", "bn": "billion"}
# Singular, plural, and the hundredth part likewise.
_MONEY = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
    "€": ("euro", "euros", "cent", "cents"),
    "¥": ("yen", "yen", "sen", "sen"),
}
_COUNTRIES = {
    "US": "u s",
    "A": "australian",
    "C": "canadian",
    "HK": "hong kong",
    "NZ": "new zealand",
}
# In capital letters, or "a$5" would be Australian.
_COUNTRY = rf"(?<!\w)(?-i:{'|'.join(_COUNTRIES)})(?=\$)"
_CURRENCY = f"(?:{_COUNTRY})?[$£€¥]"
_UNITS = {
    "%": ("percent", "percent"),
    "°c": ("degree celsius", "degrees celsius"),
    "°f": ("degree fahrenheit", "degrees fahrenheit"),
    "°": ("degree", "degrees"),
    "¢": ("cent", "cents"),
    "km/h": ("kilometer per hour", "kilometers per hour"),
    "mph": ("mile per hour", "miles per hour"),
    "km2": ("square kilometer", "square kilometers"),
    "m2": ("square meter", "square meters"),
    "km": ("kilometer", "kilometers"),
    "cm": ("centimeter", "centimeters"),
    "mm": ("millimeter", "millimeters"),
    "m": ("meter", "meters"),
    "ft": ("foot", "feet"),
    "kg": ("kilogram", "kilograms"),
    "mg": ("milligram", "milligrams"),
    "g": ("gram", "grams"),
    "lbs": ("pound", "pounds"),
    "lb": ("pound", "pounds"),
    "oz": ("ounce", "ounces"),
    "ml": ("milliliter", "milliliters"),
    "ms": ("millisecond", "milliseconds"),
    "sec": ("second", "seconds"),
    "min": ("minute", "minutes"),
    "hrs": ("hour", "hours"),
    "hr": ("hour", "hours"),
    "khz": ("kilohertz", "kilohertz"),
    "mhz": ("megahertz", "megahertz"),
    "ghz": ("gigahertz", "gigahertz"),
    "hz": ("hertz", "hertz"),
    "kb": ("kilobyte", "kilobytes"),
    "mb": ("megabyte", "megabytes"),
    "gb": ("gigabyte", "gigabytes"),
    "tb": ("terabyte", "terabytes"),
    "kw": ("kilowatt", "kilowatts"),
    "w": ("watt", "watts"),
}
_UNIT = "|".join(re.escape(unit) for unit in sorted(_UNITS, key=len, reverse=True))


def say_amounts(text: str) -> str:
    """Return English text with every run of digits in words; needs num2words if there is one."""
    for pattern, say in _RULES:
        text = pattern.sub(say, text)
    return text


def _iso_date(match: Match[str]) -> str:
    number, month, day = (int(part) for part in match.groups())
    return _date(month, day, number) or match[0]


def _slashed_date(match: Match[str]) -> str:
    first, second, number = (int(part) for part in match.groups())
    if len(match[3]) == 2:
        number += 1900 if number >= 69 else 2000
    month, day = (second, first) if first > 12 else (first, second)
    return _date(month, day, number) or match[0]


def _date(month: int, day: int, number: int) -> str:
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return ""
    return f"{_MONTHS[month - 1]} {ordinal(day)}, {_year(number)}"


def _month_day(match: Match[str]) -> str:
    return f"{_month(match[1])} {ordinal(int(match[2]))}"


def _day_month(match: Match[str]) -> str:
    return f"{ordinal(int(match[1]))} {match[2] or ''}{_month(match[3])}"


def _month(name: str) -> str:
    return next(month for month in _MONTHS if month[:3] == name[:3].lower())


def _year(number: int) -> str:
    return year(number) if 1100 <= number < 2100 else cardinal(number)


def _time(match: Match[str]) -> str:
    hour, minute, second, half = match.groups()
    said = [cardinal(int(hour))]
    if minute != "00":
        said.append(f"oh {cardinal(int(minute))}" if minute[0] == "0" else cardinal(int(minute)))
    elif not half and not second:
        said.append("o'clock")
    if second:
        said.append(f"and {_counted(str(int(second)), ('second', 'seconds'))}")
    return " ".join(said) + _half_of_day(half)


def _hour(match: Match[str]) -> str:
    return cardinal(int(match[1])) + _half_of_day(match[2])


def _half_of_day(half: str | None) -> str:
    return f" {half[0].lower()} m" if half else ""


def _scaled_money(match: Match[str]) -> str:
    currency, amount, scale = match.groups()
    word = _SCALES.get(scale.lower(), scale.lower())
    return f"{number_as_written(amount)} {word} {_country(currency)}{_MONEY[currency[-1]][1]}"


def _money(match: Match[str]) -> str:
    one, many, small_one, small_many = _MONEY[match[1][-1]]
    one, many = _country(match[1]) + one, _country(match[1]) + many
    whole, _, decimals = match[2].partition(".")
    if decimals and len(decimals) != 2:
        return f"{number_as_written(match[2])} {many}"
    parts = [_counted(whole, (one, many))] if whole.strip("0,") else []
    if int(decimals or "0"):
        parts.append(_counted(str(int(decimals)), (small_one, small_many)))
    return " and ".join(parts) or f"zero {many}"


def _country(currency: str) -> str:
    """Return "canadian " for C$, nothing for a sign without letters."""
    return f"{_COUNTRIES[currency[:-1]]} " if currency[:-1] else ""


def _measure(match: Match[str]) -> str:
    return _counted(match[1], _UNITS[match[2].lower()])


def _counted(number: str, names: tuple[str, str]) -> str:
    is_one = number.replace(",", "").lstrip("0") == "1"
    return f"{number_as_written(number)} {names[0] if is_one else names[1]}"


def _ordinal(match: Match[str]) -> str:
    return ordinal(int(match[1].replace(",", "")))


def _phone(match: Match[str]) -> str:
    return ", ".join(digits(group) for group in match[0].split("-"))


def _range(match: Match[str]) -> str:
    return f"{match[1]} to {match[2]}"


def _fraction(match: Match[str]) -> str:
    whole, numerator, denominator, unit = match.groups()
    said = fraction(int(numerator), int(denominator))
    if whole:
        said = f"{number_as_written(whole)} and {said}"
    return f"{said} {_UNITS[unit.lower()][1]}" if unit else said


def _rule(pattern: str, say: Callable[[Match[str]], str]) -> tuple[re.Pattern[str], "_Say"]:
    # ASCII: \d would also match digits of scripts that have no reading here.
    return re.compile(pattern, re.IGNORECASE | re.ASCII), say


_Say = Callable[[Match[str]], str]
_HALF = r"([ap])\s?m\b"
# A day may end at 24:00, but 24:30 is no time.
_HOUR = r"[01]?\d|2[0-3]|24(?=:00(?::00)?(?![\d:]))"
_RULES = (
    # Versions and addresses: 3.11.7 is no decimal, nor are those of v2.0.1 and 1.0.0rc1.
    _rule(r"(?<!\d)\d++(?:\.\d++){2,}+", lambda match: match[0].replace(".", " point ")),
    _rule(r"\b(\d{4})-(\d\d)-(\d\d)\b", _iso_date),
    _rule(r"\b(\d{1,2})/(\d{1,2})/(\d{4})\b", _slashed_date),
    _rule(r"(?<![\w/.,])(\d{1,2})/(\d{1,2})/(\d\d)(?![\w/]|[.,]\d)", _slashed_date),
    _rule(rf"\b({_MONTH})\s+(0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?\b(?![:.,]\d)", _month_day),
    _rule(rf"\b(0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?\s+(of\s+)?({_MONTH})(?![a-z])", _day_month),
    # Where am or pm follows, a point parts hours and minutes as a colon does.
    _rule(
        rf"(?<![\w.,$£€¥])(1[0-2]|0?[1-9])\.([0-5]\d)(?=(?:-\d\d?[:.]\d\d)?\s*{_HALF})",
        lambda match: f"{match[1]}:{match[2]}",
    ),
    # From one time to another, or the words of both would be one: "three thirty-four thirty".
    _rule(
        rf"(?<![\w.,:$£€¥-])(\d\d?(?::\d\d)?(?:\s*{_HALF})?)-(?=\d\d?(?::[0-5]\d|\s*{_HALF}))",
        lambda match: f"{match[1]} to ",
    ),
    _rule(rf"\b({_HOUR}):([0-5]\d)(?::([0-5]\d))?(?:\s*{_HALF}|\b)", _time),
    _rule(rf"\b(1[0-2]|0?[1-9])\s*{_HALF}", _hour),
    _rule(r"(?<![\w-])(?:\d{3}-)?\d{3}-\d{4}(?![\w-])", _phone),
    _rule(rf"(?<![\w.-])({_NUMBER})-({_NUMBER})(?![\w-])", _range),
    _rule(rf"(?<![\w)-])-(?=(?:{_CURRENCY})?\d)", lambda match: "minus "),
    _rule(rf"(?!{_COUNTRY})(?<!\w)\w++(?=[$£€¥]\s?\d)", lambda match: f"{match[0]} "),
    _rule(
        rf"({_CURRENCY})\s?({_NUMBER})\s?(k|m|bn|thousand|million|billion|trillion)\b",
        _scaled_money,
    ),
    _rule(rf"({_CURRENCY})\s?({_NUMBER})", _money),
    _rule(
        rf"(?<![\w/.,])(?:(\d+)\s+)?(\d{{1,15}})/([1-9]\d{{0,14}})(?:\s?({_UNIT}))?(?![\w/])",
        _fraction,
    ),
    _rule(rf"(?<![\w./])({_NUMBER})\s?({_UNIT})(?![\w/])", _measure),
    _rule(r"\b(\d{1,3}(?:,\d{3}){1,4}|\d{1,15})(?:st|nd|rd|th)\b", _ordinal),
    _rule(r"(?:\b|')(\d{1,3}0)'?s\b", lambda match: decade(int(match[1]))),
    _rule(r"#\s?(?=\d)", lambda match: "number "),
    _rule(r"(?<![\w.,])(1[1-9]\d\d|20\d\d)(?![\w]|[.,]\d)", lambda match: year(int(match[1]))),
    _rule(_NUMBER, lambda match: f" {number_as_written(match[0])} "),
)
