"""The graph of datasets, jobs and columns: what depends on what."""

from .asking import (
    COLUMNS as COLUMNS,
    FLOW as FLOW,
    GRAPH_VIEWS as GRAPH_VIEWS,
    Dependencies as Dependencies,
    LastRun as LastRun,
    Reach as Reach,
    ReachedNode as ReachedNode,
    find_dependencies as find_dependencies,
    find_nodes as find_nodes,
    follow as follow,
    last_run as last_run,
    shown as shown,
)
from .elements import Edge as Edge, EdgeKind as EdgeKind, Node as Node, NodeKind as NodeKind
from .storing import GRAPH_SCHEMA as GRAPH_SCHEMA, GRAPH_TABLES as GRAPH_TABLES, GraphTables as GraphTables
