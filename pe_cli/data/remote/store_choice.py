"""Chooses the store for an address, by its scheme."""

from __future__ import annotations

from pe_cli.data.remote.stores import Store, scheme_of


def store_of(url: str) -> Store:
    """Return the store of an address.

    Raises:
        RemoteError: there is none for it, or a package is missing.
    """
    scheme = scheme_of(url)
    if scheme in ("http", "https"):
        from pe_cli.data.remote.http_store import HttpStore

        return HttpStore()
    from pe_cli.data.remote.object_store import ObjectStore

    return ObjectStore(scheme)
