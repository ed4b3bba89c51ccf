"""Pictures of a journey and of the graph: lines for a terminal, Mermaid, DOT, GraphML, SVG."""

from .dependencies import boxes_of_folded, boxes_of_graph, columns_said, graphml_of_graph, network_of
from .folding import OPENED_AT_ONCE, Folded, Group, fold, said_of_group
from .journeys import box_of, boxes_of_journey, graphml_of_journey, places_of_lines
from .lines import FOLDED_FROM, Fold, Line, branches, outline
from .openlineage import openlineage_of
from .svg import draw, write_svg
from .wording import duration_of, last_begun_of, said_of, state_of, words_of
from .writing import Arrow, Box, Link, Look, TooLargeForMermaidError, plain, write_dot, write_mermaid
