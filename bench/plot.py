"""The figures as bars in one SVG, a panel a measure."""

from __future__ import annotations

from html import escape

from bench.figures import MEASURES, Figures

WIDTH, PANEL_W, LABEL_W, BAR_H, TITLE_H, COLUMNS = 960, 300, 80, 18, 26, 3
COLOURS = {
    "direct": "#9aa5b1",
    "nginx": "#5b8c5a",
    "edge": "#2f6fb3",
    "compiled": "#1f4a7a",
    "litellm": "#b5654a",
    "sglang": "#8c6bb1",
    "sglang-cache": "#a98bc9",
}


def svg(figures: Figures) -> str:
    names = list(figures)
    shown = [m for m in MEASURES if any(m.name in figures[n] for n in names)]
    panel_h = TITLE_H + BAR_H * len(names) + 14
    height = panel_h * -(-len(shown) // COLUMNS) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-size="12" '
        'font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for i, measure in enumerate(shown):
        x, y = 10 + (i % COLUMNS) * (PANEL_W + 20), 10 + (i // COLUMNS) * panel_h
        parts.append(f'<text x="{x}" y="{y + 12}" font-weight="bold">{escape(measure.title)}</text>')
        most = max((figures[n][measure.name].median for n in names if measure.name in figures[n]), default=0) or 1
        for k, name in enumerate(names):
            figure = figures[name].get(measure.name)
            top = y + TITLE_H + k * BAR_H
            parts.append(f'<text x="{x}" y="{top + 12}">{escape(name)}</text>')
            if figure is None:
                continue
            width = max(1.0, (PANEL_W - LABEL_W - 70) * max(0.0, figure.median) / most)
            colour = COLOURS.get(name, "#888888")
            parts.append(f'<rect x="{x + LABEL_W}" y="{top + 2}" width="{width:.0f}" height="13" fill="{colour}"/>')
            value = f"{figure.median:,.{measure.digits}f}"
            parts.append(f'<text x="{x + LABEL_W + width + 4:.0f}" y="{top + 12}">{value}</text>')
    return "\n".join([*parts, "</svg>", ""])
