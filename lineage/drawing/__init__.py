"""Pictures of a journey: lines for a terminal, Mermaid, DOT, GraphML, SVG."""

from .graphs import dot as dot, graphml as graphml, mermaid as mermaid
from .lines import FOLDED_FROM as FOLDED_FROM, End as End, Fold as Fold, Line as Line, outline as outline
from .picture import svg as svg
from .wording import (
    duration_of as duration_of,
    last_begun_of as last_begun_of,
    said_of as said_of,
    state_of as state_of,
    words_of as words_of,
)
