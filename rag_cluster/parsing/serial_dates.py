"""Excel's serial numbers of days as ISO dates and times, and as spans of time."""

from __future__ import annotations

import datetime as dt

DAY = 86_400
"""Seconds."""


def iso_moment(value: float, *, date: bool, time: bool, date1904: bool) -> str | None:
    """Days since the system's first one as "2024-03-15 08:30:00" or a part of it; None where there is no such day."""
    if not date:
        return _clock(round(value % 1 * DAY))
    if value < 0:
        return None
    # Moments are stored as binary fractions of a day: half a second of slack puts them back on the second.
    days, seconds = divmod(round(value * DAY), DAY)
    day = _day(days, date1904)
    if day is None or not time or (days == 0 and not date1904 and not seconds):
        return day
    return f"{day} {_clock(seconds)}"


def elapsed(value: float, unit: str, *, seconds: bool) -> str:
    """Days as hours ("36:00"), minutes or seconds that are not cut at a whole day; unit is h, m or s."""
    total = round(abs(value) * DAY)
    sign = "-" if value < 0 else ""
    if unit == "s":
        return f"{sign}{total}"
    if unit == "m":
        return f"{sign}{total // 60}:{total % 60:02d}"
    hours = f"{sign}{total // 3600}:{total // 60 % 60:02d}"
    return f"{hours}:{total % 60:02d}" if seconds else hours


def _day(days: int, date1904: bool) -> str | None:
    if not date1904 and days in (0, 60):
        # Excel's 1900 system has two days that never were.
        return "1900-02-29" if days else "1900-01-00"
    first = dt.date(1904, 1, 1) if date1904 else dt.date(1899, 12, 30) if days > 60 else dt.date(1899, 12, 31)
    try:
        return (first + dt.timedelta(days=days)).isoformat()
    except OverflowError:
        return None


def _clock(seconds: int) -> str:
    seconds %= DAY
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
