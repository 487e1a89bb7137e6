"""The base class of all sections of a run file."""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, PrivateAttr

from pe_cli.core.errors import Span


class Section(BaseModel):
    """A mapping of a run file, which knows where it and its values are written.

    Class attributes:
        UNAVAILABLE: keys of fluid's that this version cannot act on, so that they are refused and not ignored.
        UNAVAILABLE_VALUES: key -> such values.
    """

    # Unknown keys are mistakes, not options; schemas are built when a section is first checked, so importing it costs little.
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=False, arbitrary_types_allowed=True, defer_build=True)
    UNAVAILABLE: ClassVar[tuple[str, ...]] = ()
    UNAVAILABLE_VALUES: ClassVar[dict[str, tuple[Any, ...]]] = {}
    _at: Span | None = PrivateAttr(default=None)
    _places: dict[str, Span] = PrivateAttr(default_factory=dict)

    @property
    def at(self) -> Span | None:
        """Place of the section, None where the file has none."""
        return self._at

    def at_of(self, key: str) -> Span | None:
        """Return the place of a key's value, or of the section where the key is not written."""
        return self._places.get(key, self._at)

    @property
    def places(self) -> dict[str, Span]:
        """Where the values of keys are written."""
        return dict(self._places)

    def locate(self, at: Span, places: dict[str, Span]) -> None:
        """Set the places; called once, by `check`."""
        self._at, self._places = at, places
