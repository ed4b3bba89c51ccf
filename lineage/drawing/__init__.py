"""Pictures of a journey and of the graph: lines for a terminal, Mermaid, DOT, GraphML, SVG."""

from .dependencies import (
    boxes_of_folded as boxes_of_folded,
    boxes_of_graph as boxes_of_graph,
    columns_said as columns_said,
    graphml_of_graph as graphml_of_graph,
    network_of as network_of,
)
from .folding import (
    OPENED_AT_ONCE as OPENED_AT_ONCE,
    Folded as Folded,
    Group as Group,
    fold as fold,
    said_of_group as said_of_group,
)
from .journeys import (
    box_of as box_of,
    boxes_of_journey as boxes_of_journey,
    graphml_of_journey as graphml_of_journey,
    places_of_lines as places_of_lines,
)
from .lines import (
    FOLDED_FROM as FOLDED_FROM,
    Fold as Fold,
    Line as Line,
    branches as branches,
    outline as outline,
)
from .openlineage import openlineage_of as openlineage_of
from .svg import draw as draw, write_svg as write_svg
from .wording import (
    duration_of as duration_of,
    last_begun_of as last_begun_of,
    said_of as said_of,
    state_of as state_of,
    words_of as words_of,
)
from .writing import (
    Arrow as Arrow,
    Box as Box,
    Link as Link,
    Look as Look,
    TooLargeForMermaidError as TooLargeForMermaidError,
    plain as plain,
    write_dot as write_dot,
    write_mermaid as write_mermaid,
)
