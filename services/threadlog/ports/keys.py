"""The keys port: whose request this is. Asked for every request, on the event loop."""

from typing import Protocol

from threadlog.api.keys import Credential


class Keys(Protocol):
    """The keys that are valid now. Neither call waits, and neither raises."""

    def verify(self, token: str) -> Credential | None:
        """What the bearer of `token` may do; None when it is no key that is valid now.

        Shapes:  any text. None says nothing more: a text that is no key, an unknown one, one that
                 was revoked or has ended, and a key store that cannot be read are alike.
        Effects: The time counts as the key's last use. Secrets are compared in constant time.
        """
        ...

    def is_valid(self, credential: Credential) -> bool:
        """Whether the key that gave this credential still gives the same.

        A live stream asks again and again: it ends with the key. A key whose tenant, scopes or end
        were changed no longer gives the same.
        """
        ...
