"""Draw the README's picture of the pipeline: ``python docs/images/pipeline.py`` writes a light and a dark SVG."""

from pathlib import Path
from typing import Any

WIDTH, HEIGHT = 1120, 372
COLUMN = (10, 250, 490, 750, 960)  # left edges
ROW = (14, 118, 206, 294)  # top edges
BOX = (150, 60)

# Fill and border of each kind of box, text, and arrows.
THEMES: dict[str, dict[str, Any]] = {
    "light": {
        "outside": ("#ffffff", "#57606a"),
        "bronze": ("#f7e6d6", "#9a5b2b"),
        "silver": ("#e9edf2", "#5b6b7c"),
        "gold": ("#fbf0c4", "#8f6f00"),
        "text": "#1f2328",
        "arrow": "#57606a",
    },
    "dark": {
        "outside": ("#161b22", "#8b949e"),
        "bronze": ("#3d2614", "#d08b56"),
        "silver": ("#262f3a", "#9fb0c3"),
        "gold": ("#3a3006", "#d9b32c"),
        "text": "#e6edf3",
        "arrow": "#9aa4af",
    },
}
# Column, row, kind, name, what it holds.
BOXES = (
    (0, 0, "outside", "Kafka topic", "JSON messages"),
    (0, 2, "outside", "Flink's files", "parquet"),
    (1, 2, "bronze", "Bronze", "rows as landed"),
    (2, 2, "silver", "Silver", "valid transactions"),
    (2, 3, "silver", "Quarantine", "rejected rows"),
    (3, 1, "silver", "Alerts", "with explanations"),
    (3, 2, "gold", "Aggregates", "days, windows, ..."),
    (3, 3, "gold", "Predictions", "of the model"),
    (4, 0, "outside", "Kafka topic", "alerts in ~10 ms"),
    (4, 1, "outside", "Receivers", "webhook, Kafka, ..."),
    (4, 2, "outside", "Analysts", "SQL, dashboard"),
)
# Points of each arrow, the command that moves the data, and where its name is centred.
ARROWS = (
    ("160,44 960,44", "realtime (the fast lane)", 560, 36),
    ("85,74 85,140 325,140 325,206", "ingest", 205, 132),
    ("160,236 250,236", "ingest", 205, 228),
    ("400,236 490,236", "refine", 445, 228),
    ("445,236 445,324 490,324", "", 0, 0),
    ("640,236 750,236", "aggregate", 703, 228),
    ("660,236 660,148 750,148", "detect", 703, 140),
    ("660,236 660,324 750,324", "score", 703, 316),
    ("900,148 960,148", "deliver", 928, 140),
    ("900,236 960,236", "", 0, 0),
    ("900,324 1035,324 1035,266", "", 0, 0),
)


def svg(theme: str) -> str:
    """Return the picture in the colours of ``theme``."""
    colours = THEMES[theme]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-size="14"',
            ' font-family="-apple-system, Segoe UI, Helvetica, Arial, DejaVu Sans, sans-serif">',
            "<title>From Kafka or Flink's files to alerts, aggregates and predictions</title>",
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5"',
            ' markerWidth="8" markerHeight="8" orient="auto">',
            f'<path d="M0,0 L10,5 L0,10 z" fill="{colours["arrow"]}"/></marker></defs>',
            *(_arrow(points, colours["arrow"]) for points, *_ in ARROWS),
            *(_text(x, y, command, colours["text"], 'font-style="italic"') for _, command, x, y in ARROWS if command),
            *(line for box in BOXES for line in _box(*box, colours)),
            "</svg>\n",
        ]
    )


def _arrow(points: str, colour: str) -> str:
    stroke = f'stroke="{colour}" stroke-width="1.6"'
    return f'<polyline points="{points}" fill="none" {stroke} marker-end="url(#head)"/>'


def _text(x: float, y: int, text: str, colour: str, style: str = "") -> str:
    return f'<text x="{x:g}" y="{y}" fill="{colour}" text-anchor="middle" {style}>{text}</text>'


def _box(column: int, row: int, kind: str, name: str, content: str, colours: dict[str, Any]) -> list[str]:
    fill, border = colours[kind]
    x, y, (width, height) = COLUMN[column], ROW[row], BOX
    style = f'rx="8" fill="{fill}" stroke="{border}" stroke-width="1.6"'
    return [
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" {style}/>',
        _text(x + width / 2, y + 26, name, colours["text"], 'font-size="17" font-weight="600"'),
        _text(x + width / 2, y + 46, content, colours["text"]),
    ]


if __name__ == "__main__":
    for theme in THEMES:
        Path(__file__).with_name(f"pipeline-{theme}.svg").write_text(svg(theme), encoding="utf-8")
