"""Queries and plans as networkx graphs, for questions about connections and inputs.

Only the control plane imports this module: networkx costs every process that loads it 20 MB, and neither tasks nor the
search inside the optimizer need it (docs/decisions/0013-networkx.md has the numbers).
"""

from __future__ import annotations

from collections.abc import Iterable

import networkx as nx

from optimizer.model.plan import JoinNode, Node
from optimizer.model.query import EquiPredicate


def join_graph(aliases: Iterable[str], equalities: Iterable[EquiPredicate]) -> nx.Graph[str]:
    """The sources of a query, in their order; an edge where at least one equality compares two of them."""
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(aliases)
    graph.add_edges_from((p.left.alias, p.right.alias) for p in equalities)
    return graph


def plan_graph(nodes: Iterable[Node]) -> nx.DiGraph[Node]:
    """Sources and joins of a plan; an edge leads from an input to the join that reads it."""
    graph: nx.DiGraph[Node] = nx.DiGraph()
    for node in nodes:
        graph.add_node(node)
        if isinstance(node, JoinNode):
            graph.add_edges_from(((node.left, node), (node.right, node)))
    return graph
