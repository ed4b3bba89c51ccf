"""The settings: the valid values of each, where its value came from, and which ones a home's runner uses."""

from .agreement import (
    AGREED,
    DESTINATIONS,
    agree,
    agreed,
    agreeing,
    apply_command,
    change,
    check_agreed_root,
    check_options,
    conflicts,
    follow,
    obey,
    taking_over,
    warn_of_conflicts,
)
from .backends import DETAIL_BACKLOG, MARQUEZ, BackendSetting, Detail, check_url, kafka_address, without_users
from .found_files import find_doubt, settings_files
from .settings import API_KEY_VARIABLES, HOME, OPTIONS, SETTINGS, Setting, Settings
from .validators import DATED_FILE, TRIMMERS, days
