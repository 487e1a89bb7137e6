"""Reads dates by their form: what strptime knows, quarters, weeks, and names of months in many languages."""

from __future__ import annotations

import calendar
import functools
import math
import re
import unicodedata
from datetime import UTC, datetime, timedelta

from pe_cli.data.durations import seconds_of
from pe_cli.data.durations import written as as_duration

#: Names of the months and their short forms, an entry for each month; no name stands for two of them, whatever the language.
_MONTHS = (
    ("january jan januar januari jänner jän janvier janv enero ene janeiro gennaio gen styczeń stycznia sty leden ledna január ocak oca "
     "январь января янв січень січня tammikuu tammikuuta ianuarie ιανουάριος ιανουαρίου"),
    ("february feb februar februari feber février févr fév fevrier febrero fevereiro fev febbraio luty lutego lut únor února "
     "február şubat şub февраль февраля фев февр лютий лютого helmikuu helmikuuta februarie φεβρουάριος φεβρουαρίου φεβ"),
    ("march mar märz mär mrz maerz mars marzo março marco maart mrt marts marzec marca březen března március mart "
     "марта март мар березень березня maaliskuu maaliskuuta martie maret μάρτιος μαρτίου μαρ"),
    ("april apr avril avr abril abr aprile kwiecień kwietnia kwi duben dubna április apríl nisan nis "
     "апрель апреля апр квітень квітня huhtikuu huhtikuuta aprilie απρίλιος απριλίου απρ"),
    ("may mai mayo maio maggio mag mei maj maja květen května május máj may\u0131s "
     "май мая травень травня toukokuu toukokuuta μάιος μαΐου μαι"),
    ("june jun juni juin junio junho giugno giu czerwiec czerwca cze červen června június jún haziran haz "
     "июнь июня июн червень червня kesäkuu kesäkuuta iunie ιούνιος ιουνίου"),
    ("july jul juli juillet juil julio julho luglio lug lipiec lipca lip červenec července július júl temmuz tem "
     "июль июля июл липень липня heinäkuu heinäkuuta iulie ιούλιος ιουλίου"),
    ("august aug août aout aoû agosto ago augustus augusti sierpień sierpnia sie srpen srpna augusztus ağustos ağu "
     "август августа авг серпень серпня elokuu elokuuta agustus αύγουστος αυγούστου"),
    ("september sep sept septembre septiembre setiembre setembro set settembre wrzesień września wrz září szeptember eylül eyl "
     "сентябрь сентября сен сент вересень вересня syyskuu syyskuuta septembrie σεπτέμβριος σεπτεμβρίου σεπ"),
    ("october oct oktober okt octobre octubre outubro out ottobre ott październik października paź říjen října október ekim eki "
     "октябрь октября окт жовтень жовтня lokakuu lokakuuta octombrie οκτώβριος οκτωβρίου οκτ"),
    ("november nov novembre noviembre novembro listopad listopada lis listopadu kas\u0131m kas "
     "ноябрь ноября ноя нояб листопад листопада marraskuu marraskuuta noiembrie νοέμβριος νοεμβρίου νοε"),
    ("december dec dezember dez décembre déc decembre diciembre dic dezembro dicembre desember des grudzień grudnia gru "
     "prosinec prosince aral\u0131k ara декабрь декабря дек грудень грудня joulukuu joulukuuta decembrie δεκέμβριος δεκεμβρίου δεκ"),
)  # fmt: skip
_ENGLISH = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
#: Form of lengths of time, whose timestamp is their seconds.
DURATION = "duration"
#: Form of years with a fraction, and months that a fraction may be away from the first of one and mean it: .08 is that of February.
YEARS, NEAR = "year", 0.07
#: Forms that count from 1970 on, by the seconds of what they count.
SINCE = {"%s": 1.0, "%Q": 0.001}
_WORD = re.compile(r"[^\W\d_]+")
#: What may stand behind the number of a day: 1st, 1er, 1º.
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th|er|re|º|ª)\b", re.IGNORECASE)
_HALF_DAY = re.compile(r"\b([ap])\.\s?m\.", re.IGNORECASE)
_WEEKDAY = re.compile(r"^%[Aa][^\w%]*")


@functools.cache
def months() -> dict[str, int]:
    """Return the number of the month that each name stands for, in small letters."""
    return {_small(name): i for i, names in enumerate(_MONTHS) for name in names.split()}


def parse(text: str, form: str | None) -> datetime:
    """Return a moment; one without a time zone is taken for UTC.

    Args:
        text: of the cell.
        form: as of strptime, and `%q` for a quarter, 1 to 4, which is its first day; a week without a weekday (`%V` with `%G`) is its
            Monday. `%s` alone are seconds since 1970, `%Q` thousandths of them; `duration` a length of time; `year` a year
            with a fraction, a month for each twelfth: 1995.25 is the first of April.
            `%B` and `%b` take names of months of many languages. None for ISO 8601.

    Raises:
        ValueError: the text is no date of that form.

    >>> [parse(*one).date().isoformat() for one in (("2021-Q3", "%Y-Q%q"), ("KW 7/2021", "KW %V/%G"), ("3. März 2021", "%d. %B %Y"))]
    ['2021-07-01', '2021-02-15', '2021-03-03']
    """
    try:
        moment = datetime.fromisoformat(text) if form is None else _of_form(text, form)
    except re.error:
        raise ValueError(f"a form that says a part of a date twice: {form}") from None
    # Dates without a zone are taken as UTC, so that no result depends on where it runs.
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def written(moment: datetime, form: str) -> str:
    """Return a moment as `parse` reads it by a form, with English names.

    >>> written(datetime(2021, 8, 1), "Q%q %Y")
    'Q3 2021'
    """
    if form == DURATION:
        return as_duration(moment.timestamp())
    if form in SINCE:
        return str(round(moment.timestamp() / SINCE[form]))
    if form == YEARS:
        passed = (moment - moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)).total_seconds() / 86400
        return f"{moment.year + (moment.month - 1 + passed / calendar.monthrange(moment.year, moment.month)[1]) / 12:.9g}"
    return moment.strftime(form.replace("%q", str((moment.month + 2) // 3)))


def _of_form(text: str, form: str) -> datetime:  # noqa: PLR0911 (a line for each form)
    if form == DURATION:
        return _after(seconds_of(text))
    if form in SINCE:
        return _after(float(text) * SINCE[form])
    if form == YEARS:
        return _in_year(text)
    if "%q" in form:
        return _in_quarter(text, form)
    if "%V" in form and not re.search("%[uwaA]", form):
        return datetime.strptime(f"{text} 1", f"{form} %u")
    try:
        return datetime.strptime(text, form)
    except ValueError:
        if not re.search("%[ABbap]", form):
            raise
        return _with_words(text, form)


def _after(seconds: float) -> datetime:
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    except OverflowError:
        raise ValueError(f"no calendar has a moment of {seconds:g} seconds after 1970") from None


def _in_year(text: str) -> datetime:
    number = float(text)
    if not 1 <= number < 9999:
        raise ValueError(f"'{text}' is no year from 1 to 9998")
    months = number * 12
    whole = round(months) if abs(months - round(months)) < NEAR else math.floor(months)
    first = datetime(whole // 12, whole % 12 + 1, 1)
    return first + timedelta(days=max(0.0, months - whole) * calendar.monthrange(first.year, first.month)[1] * (months - whole >= NEAR))


def _in_quarter(text: str, form: str) -> datetime:
    for quarter in range(1, 5):
        try:
            # the number of a quarter is a sign like any other to strptime
            found = datetime.strptime(text, form.replace("%q", str(quarter)))
        except ValueError:
            continue
        return found.replace(month=3 * quarter - 2)
    raise ValueError(f"'{text}' is no quarter of the form {form}")


def _with_words(text: str, form: str) -> datetime:
    """Return a date with words that strptime does not know: names of other languages, 1st, p.m.

    Raises:
        ValueError: it is none.
    """
    if _WEEKDAY.match(form):
        # The name of the day adds nothing to its date.
        form, text = _WEEKDAY.sub("", form), re.sub(r"^[^\W\d_]+\W*", "", text)
    known, form = months(), form.replace("%b", "%B")
    text = _HALF_DAY.sub(r"\1m", _ORDINAL.sub("", text))
    named = _WORD.sub(lambda word: _ENGLISH[known[_small(word[0])]] if _small(word[0]) in known else word[0], text)
    try:
        return datetime.strptime(named, form)
    except ValueError:
        # A name that is cut short may have a full stop of its own.
        return datetime.strptime(re.sub(r"(?<=[^\W\d_])\.", "", named), form)


def _small(word: str) -> str:
    return unicodedata.normalize("NFC", word).lower().replace("\u0307", "")
