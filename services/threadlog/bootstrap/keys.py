"""The API keys of an installation: what `threadlog keys` changes and a gateway asks."""

from threadlog.adapters.keys.file import KeysFile
from threadlog.clock import Clock, SystemClock
from threadlog.settings import Settings

KeyStore = KeysFile


def open_keys(settings: Settings, clock: Clock | None = None) -> KeyStore:
    """The keys of the file that the settings name. Nothing is read or made yet."""
    return KeysFile(settings.keys_file(), clock or SystemClock())
