"""Public holidays of countries and their regions, by the package holidays."""

from __future__ import annotations

import functools
from collections.abc import Container
from datetime import date

from pe_cli.core.errors import ExitCode, PeError, did_you_mean


@functools.lru_cache(32)
def calendar_of(code: str) -> Container[date]:
    """Return the public holidays of a country, such as DE, or of a region of it, such as DE-BY; years are computed when they are asked for.

    Raises:
        PeError: USAGE; the package is not installed, or knows no such country or region.
    """
    try:
        import holidays
    except ImportError:
        text = f"the public holidays of {code} are told by the package holidays, which is not installed"
        raise PeError(text, hint="pip install 'pe-cli[holidays]'", code=ExitCode.USAGE) from None
    country, _, region = code.partition("-")
    known = holidays.list_supported_countries()
    if country not in known:
        hint = did_you_mean(country, known) or "countries have the two letters of ISO 3166, such as DE, FR and US"
        raise PeError(f"no holidays are known of the country '{country}'", hint=hint, code=ExitCode.USAGE)
    if region and region not in known[country]:
        listed = ", ".join(known[country]) or "none"
        raise PeError(f"no holidays are known of the region '{region}' of {country}", hint=f"regions: {listed}", code=ExitCode.USAGE)
    found: Container[date] = holidays.country_holidays(country, subdiv=region or None)
    return found
