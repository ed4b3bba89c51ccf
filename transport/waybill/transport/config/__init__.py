"""The settings: what each may be, where its value came from, and which ones a home's runner works by."""

from waybill.transport.config.agreement import (
    agree as agree,
    agreed as agreed,
    agreeing as agreeing,
    change as change,
    conflicts as conflicts,
    follow as follow,
    obey as obey,
    warn_of_conflicts as warn_of_conflicts,
)
from waybill.transport.config.backends import (
    DETAIL_BACKLOG as DETAIL_BACKLOG,
    MARQUEZ as MARQUEZ,
    BackendSetting as BackendSetting,
    Detail as Detail,
    kafka_address as kafka_address,
    without_users as without_users,
)
from waybill.transport.config.settings import (
    API_KEY_VARIABLES as API_KEY_VARIABLES,
    SETTINGS as SETTINGS,
    Setting as Setting,
    Settings as Settings,
)
from waybill.transport.config.validators import days as days
