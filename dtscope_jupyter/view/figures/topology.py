# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Devices, switches, CPUs and network cards, and what joins them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from dtscope_jupyter.view.figures.style import literal, rank_height

if TYPE_CHECKING:
    import networkx as nx

    from dtscope_jupyter.view.figures.source import Source
    from dtscope_jupyter.view.figures.style import Style

_LABEL, _MIDDLE = 14, 0.5
_LAYERS = ("net", "nic", "cpu", "pci", "gpu", "switch")
_COLORS = {"gpu": "overlapped", "switch": "good", "cpu": "quiet", "nic": "accent", "net": "accent", "pci": "rule"}
_LINKS = {"nvlink": ("good", 3.0), "pci": ("quiet", 1.2), "net": ("accent", 1.8)}


def draw(source: Source, style: Style) -> go.Figure:
    """The graph of `run.topology`, in layers: network on top, then CPUs, devices, switches."""
    graph = source.topology
    if graph is None or not len(graph):
        return style.nothing("Topology", "None was recorded: open what NCCL_TOPO_DUMP_FILE, NCCL_GRAPH_DUMP_FILE or NCCL_DEBUG=INFO wrote.")
    places = _places(graph)
    traces = [*_links(graph, places, style), *_nodes(graph, places, style)]
    hidden = {"visible": False, "showgrid": False}
    caption = f"{source.name}. Numbers at links: GB/s in each direction, as NCCL takes them to be."
    made = style.figure(
        traces,
        "Topology",
        f"{len(graph)} parts, {graph.number_of_edges()} links",
        caption,
        height=rank_height(8, each=38),
        xaxis=hidden,
        yaxis=hidden,
        showlegend=True,
    )
    for a, b, link in graph.edges(data=True):
        if link.get("bandwidth") and graph.number_of_edges() <= 64:  # noqa: PLR2004
            (x0, y0), (x1, y1) = places[a], places[b]
            made.add_annotation(
                x=0.65 * x0 + 0.35 * x1,
                y=0.65 * y0 + 0.35 * y1,
                text=f"{link['bandwidth']:g}",
                showarrow=False,
                font={"size": 11, "color": style.colors["quiet"]},
                bgcolor=style.colors["paper"],
                borderpad=1,
            )
    return made


def _places(graph: nx.Graph[Any]) -> dict[Any, tuple[float, float]]:
    layers: dict[int, list[Any]] = {}
    for node, known in graph.nodes(data=True):
        kind = known.get("kind", "pci")
        layers.setdefault(_LAYERS.index(kind) if kind in _LAYERS else _LAYERS.index("pci"), []).append(node)
    used = {layer: i for i, layer in enumerate(sorted(layers))}
    return {
        node: ((i + 0.5) / len(nodes), -float(used[layer]))
        for layer, nodes in layers.items()
        for i, node in enumerate(sorted(nodes, key=lambda n: (graph.nodes[n].get("rank") or 0, str(n))))
    }


def _links(graph: nx.Graph[Any], places: dict[Any, tuple[float, float]], style: Style) -> list[go.Scatter]:
    traces = []
    for kind in sorted({link.get("kind", "link") for _, _, link in graph.edges(data=True)}):
        color, width = _LINKS.get(kind, ("quiet", 1.2))
        ends = [(places[a], places[b]) for a, b, link in graph.edges(data=True) if link.get("kind", "link") == kind]
        traces.append(
            go.Scatter(
                x=[x for (x0, _), (x1, _) in ends for x in (x0, x1, None)],
                y=[y for (_, y0), (_, y1) in ends for y in (y0, y1, None)],
                mode="lines",
                line={"color": style.colors[color], "width": width},
                name=literal(kind),
                hoverinfo="skip",
            )
        )
    return traces


def _nodes(graph: nx.Graph[Any], places: dict[Any, tuple[float, float]], style: Style) -> list[go.Scatter]:
    nodes = list(graph.nodes(data=True))
    labels = [_label(node, known) for node, known in nodes]
    return [
        go.Scatter(
            x=[places[node][0] for node, _ in nodes],
            y=[places[node][1] for node, _ in nodes],
            mode="markers+text",
            text=labels,
            showlegend=False,
            textposition=[_side(known, places[node][0]) for node, known in nodes],
            marker={
                "size": 20,
                "color": [style.colors[_COLORS.get(known.get("kind", ""), "quiet")] for _, known in nodes],
                "line": {"color": style.colors["paper"], "width": 2},
            },
            cliponaxis=False,
            hovertext=[_about(known) for _, known in nodes],
            hoverinfo="text",
        )
    ]


def _side(known: dict[str, Any], x: float) -> str:
    if known.get("kind") == "switch":
        return "bottom center"
    return "middle left" if known.get("kind") == "gpu" and x < _MIDDLE else "middle right"


def _label(node: Any, known: dict[str, Any]) -> str:
    rank, label = known.get("rank"), str(known.get("label", node))
    short = label if len(label) <= _LABEL else str(known.get("kind", "part")).upper()
    return f"  {literal(short)}  " + ("" if rank is None else f"<br>  rank {rank}  ")


def _about(known: dict[str, Any]) -> str:
    return "<br>".join(literal(f"{key}: {value}") for key, value in known.items())
