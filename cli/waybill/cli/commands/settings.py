"""`waybill settings`: each value and where it came from."""

from __future__ import annotations

from waybill.cli import console
from waybill.cli.arguments import JsonObject
from waybill.cli.options import EVERY, with_settings
from waybill.transport import Settings
from waybill.transport.config import SETTINGS, without_users


@with_settings(*EVERY)
def settings(found: Settings, *, as_json: JsonObject = False) -> None:
    """Show each setting, its value, and where the value came from.

    Nearest wins: an option, WAYBILL_<NAME> in the environment, waybill.yaml in the working folder,
    ~/.config/waybill/config.yaml, the default. Secrets are masked.

    Examples:

    \b
      waybill settings
      WAYBILL_DURABILITY=process waybill settings --json
    """
    if as_json:
        console.json(
            {
                name: {
                    "value": found.shown(name) if setting.secret else without_users(found.plain(name)),
                    "origin": found.origins[name],
                }
                for name, setting in SETTINGS.items()
            }
        )
        return
    rows = ((name, found.shown(name), found.origins[name]) for name in SETTINGS)
    console.table(("setting", "value", "from"), rows)
