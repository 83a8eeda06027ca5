"""Colours and type of pages and pictures, light and dark."""

from __future__ import annotations

from typing import Any

LIGHT = {
    "paper": "#ffffff",
    "panel": "#f5f7f9",
    "ink": "#20262c",
    "muted": "#5b6670",
    "rule": "#dde3e8",
    "faint": "#9aa4ad",
    "warn": "#8a4b00",
    "warn-paper": "#fff4e0",
    "c0": "#1f6fb4",
    "c1": "#c4501b",
    "c2": "#2a7d46",
    "c3": "#8a4fa3",
    "c4": "#8a6d00",
    "c5": "#b3325c",
    "c6": "#0f7f86",
    "c7": "#6b5346",
    "c8": "#c23fa0",
    "c9": "#5c8500",
}
"""Name of a variable of the style sheet -> colour; no colour twice, so that a drawing can be recoloured."""

DARK = {
    "paper": "#14181c",
    "panel": "#1d2329",
    "ink": "#e6eaee",
    "muted": "#a3afba",
    "rule": "#333c45",
    "faint": "#77828c",
    "warn": "#ffcb80",
    "warn-paper": "#33270f",
    "c0": "#6db3ee",
    "c1": "#f0905f",
    "c2": "#71c48c",
    "c3": "#c79ade",
    "c4": "#d9bb4c",
    "c5": "#f083a6",
    "c6": "#53c5cc",
    "c7": "#c0a596",
    "c8": "#f08ad6",
    "c9": "#a6cb45",
}

TONES = 10
"""Colours ``c0`` to ``c9`` of lines."""

MATPLOTLIB: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # which matplotlib brings: the same picture on every machine
    "font.size": 11,
    "text.color": LIGHT["ink"],
    "axes.labelcolor": LIGHT["ink"],
    "xtick.color": LIGHT["muted"],
    "ytick.color": LIGHT["muted"],
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.major.pad": 6,
    "ytick.major.pad": 6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.spines.bottom": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": LIGHT["rule"],
    "legend.frameon": False,
    "path.simplify_threshold": 1.0,  # pixels: a small file; peaks stay
    "svg.hashsalt": "",  # the same names in every drawing
    "svg.fonttype": "none",  # text stays text
    "text.parse_math": False,  # a run may be named $x$
}
