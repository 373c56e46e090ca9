"""The commands on API keys: options and examples."""

from typing import Annotated

import typer

from threadlog.cli.options import Entry, JsonFlag


def _create(
    name: Annotated[
        str,
        typer.Option(
            "--name",
            metavar="NAME",
            help="What the key is for; two keys may be valid under one name.",
        ),
    ],
    tenant: Annotated[
        str, typer.Option("--tenant", metavar="TENANT", help="Whose threads it is for.")
    ] = "local",
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="SCOPE",
            help="What it may do: threads:read, threads:write, content:read (these three without "
            "the option), approvals:answer, replay:run, ops:read, ops:write or admin. May be "
            "given several times.",
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires",
            metavar="DAYS|DATE",
            help="When it ends: in so many days, or as this date (UTC) begins. Without: never.",
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a key that a program shows to the gateway.

    The key is the line on stdout, shown this once: only its hash is stored. To rotate one, add a
    second under the same name, give it to the programs, and revoke the first.
    """
    from threadlog.cli.keys import create, parse_expiry
    from threadlog.cli.terminal import Screen
    from threadlog.clock import SystemClock
    from threadlog.settings import load_settings

    create(
        load_settings(),
        Screen(),
        tenant=tenant,
        name=name,
        scopes=scope or (),
        expires_at_ms=parse_expiry(expires, SystemClock().now_ms()),
        is_json=as_json,
    )


def _ls(
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="TENANT", help="Only of this tenant.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """List keys, oldest first, without their secrets, which nobody has."""
    from threadlog.cli.keys import show
    from threadlog.cli.terminal import Screen
    from threadlog.clock import SystemClock
    from threadlog.settings import load_settings

    show(load_settings(), Screen(), SystemClock(), tenant=tenant, is_json=as_json)


def _revoke(
    key_id: Annotated[
        str, typer.Argument(metavar="ID", show_default=False, help="The 12 characters of its id.")
    ],
    is_sure: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Revoke a key: every gateway refuses it within a second, and its live streams end.

    It cannot be made valid again. A key that was revoked earlier stays so.
    """
    from threadlog.cli.keys import revoke
    from threadlog.cli.terminal import Screen
    from threadlog.clock import SystemClock
    from threadlog.settings import load_settings

    revoke(load_settings(), Screen(), SystemClock(), key_id, is_sure=is_sure, is_json=as_json)


KEYS = (
    Entry(
        "create",
        _create,
        (
            "threadlog keys create --tenant acme --name ci --expires 90",
            "threadlog keys create --name laptop > key && chmod 600 key",
            "threadlog keys create --name board --scope threads:read",
        ),
    ),
    Entry("ls", _ls, ("threadlog keys ls", "threadlog keys ls --tenant acme --json")),
    Entry("revoke", _revoke, ("threadlog keys revoke 4f9q0c7m2xkd",)),
)
