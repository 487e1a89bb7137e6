"""Files of object stores, through fsspec: `s3://` by s3fs, `gs://` by gcsfs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from pe_cli.data.remote.stores import Content, RemoteError

#: Bytes that are asked for at a time.
CHUNK = 1 << 22
#: Package that reads a scheme.
_PACKAGES = {"s3": "s3fs", "gs": "gcsfs"}
#: Words in the errors of stores whose next answer may be another.
_PASSING = ("slowdown", "503", "500", "502", "504", "429", "internalerror", "service unavailable", "timed out", "timeout", "connect")


class ObjectStore:
    """Files of a bucket; see `pe_cli.data.remote.stores.Store`. Credentials are those that the store's own tools find in the environment.

    Args:
        scheme: s3 or gs.

    Raises:
        RemoteError: the package that reads it is not installed.
    """

    def __init__(self, scheme: str) -> None:
        package = _PACKAGES[scheme]
        try:
            import fsspec

            with _told():
                self._files: Any = fsspec.filesystem(scheme, skip_instance_cache=True, use_listings_cache=False)
        except ImportError:
            remedy = "pip install 'pe-cli[remote]'" if scheme == "s3" else f"pip install 'pe-cli[remote]' {package}"
            raise RemoteError(f"needs {package} to be read", remedy) from None
        self._scheme = scheme

    def open(self, url: str, start: int = 0, tag: str = "", known: str = "") -> Content | None:
        """Ask for a file; see `Store.open`.

        Raises:
            RemoteError: the store gives no such file.
        """
        with _told():
            facts = self._files.info(url)
        if facts.get("type") == "directory" or not isinstance(facts.get("size"), int):
            raise RemoteError("is a folder, not a file", "name the files in it, such as PATH/*.csv")
        found, size = self._tag(facts), int(facts["size"])
        if known and known == found:
            return None
        first = start if tag and tag == found and start <= size else 0
        return Content(found, size, first, self._read(url, first, size, found))

    @staticmethod
    def _tag(facts: dict[str, Any]) -> str:
        # Stores name their version differently; any that changes with the content does.
        return str(next((facts[key] for key in ("ETag", "etag", "LastModified", "mtime", "updated", "created") if facts.get(key)), ""))

    def _read(self, url: str, start: int, size: int, tag: str) -> Iterator[bytes]:
        while start < size:
            with _told():
                data = self._files.cat_file(url, start=start, end=min(size, start + CHUNK))
            if not data:
                raise RemoteError(f"the store ends {size - start:,} bytes before the end", "try again later", again=True)
            start += len(data)
            yield data
        again = self.open(url)  # parts that were asked for one by one may be those of two files
        if again is None or again.tag != tag:
            raise RemoteError("was changed while it is read", "write files of data under new names, and start again")

    def match(self, pattern: str) -> list[str]:
        """Return the files that a pattern matches; see `Store.match`.

        Raises:
            RemoteError: the store does not list its files.
        """
        with _told():
            found = self._files.glob(pattern, detail=True)
        return sorted(f"{self._scheme}://{name}" for name, facts in found.items() if facts.get("type") != "directory")


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Say in our words what a store's library raises: each has errors of its own, with no base but Exception.

    Raises:
        RemoteError: the store fails.
        ImportError: its library is not installed.
    """
    try:
        yield
    # Packages of stores raise what they like, and a traceback of theirs tells a user nothing.
    except ImportError:
        raise
    except Exception as error:  # noqa: BLE001 - see above
        raise _failed(error) from None


def _failed(error: Exception) -> RemoteError:
    """Return an error of a store in our words."""
    said = " ".join(str(error).split())[:200] or type(error).__name__
    if isinstance(error, FileNotFoundError):
        return RemoteError("there is no such file", "check the bucket and the path")
    if isinstance(error, PermissionError) or "credentials" in said.lower():
        return RemoteError(f"may not be read: {said}", "check the credentials in the environment, such as AWS_PROFILE")
    again = isinstance(error, TimeoutError | ConnectionError) or any(word in f"{type(error).__name__} {said}".lower() for word in _PASSING)
    return RemoteError(f"cannot be read: {said}", "try again later" if again else "check the address and the environment", again=again)
