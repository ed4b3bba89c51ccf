"""The settings: the valid values of each, where its value came from, and which ones a home's runner uses."""

from .agreement import (
    AGREED as AGREED,
    DESTINATIONS as DESTINATIONS,
    agree as agree,
    agreed as agreed,
    agreeing as agreeing,
    apply_command as apply_command,
    change as change,
    check_agreed_root as check_agreed_root,
    check_options as check_options,
    conflicts as conflicts,
    follow as follow,
    obey as obey,
    taking_over as taking_over,
    warn_of_conflicts as warn_of_conflicts,
)
from .backends import (
    DETAIL_BACKLOG as DETAIL_BACKLOG,
    MARQUEZ as MARQUEZ,
    BackendSetting as BackendSetting,
    Detail as Detail,
    check_url as check_url,
    kafka_address as kafka_address,
    without_users as without_users,
)
from .found_files import find_doubt as find_doubt, settings_files as settings_files
from .settings import (
    API_KEY_VARIABLES as API_KEY_VARIABLES,
    HOME as HOME,
    OPTIONS as OPTIONS,
    SETTINGS as SETTINGS,
    Setting as Setting,
    Settings as Settings,
)
from .validators import DATED_FILE as DATED_FILE, TRIMMERS as TRIMMERS, days as days
