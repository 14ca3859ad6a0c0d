"""Draws charts as SVG. The same data gives the same bytes.

Colours and font come from the page that holds the chart. Series differ in their dashes as well as in colour. Needs
matplotlib, which is imported when a chart is drawn.
"""

import io
import re
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_SERIES = 6
DASHES: tuple[tuple[float, ...], ...] = ((), (4, 1.5), (1, 1), (6, 1.5, 1, 1.5), (2, 1), (8, 2))
"""Dashes of each series: lengths drawn and left out in turn, in line widths."""

_WIDTH, _HEIGHT = 5.2, 3.1  # inches
_LINE_WIDTH_POINTS = 2

# Placeholder colours in the drawing; `_adapt_to_page` replaces each by a colour of the page.
_INK, _GRID = "#010101", "#020202"
_SERIES_COLOURS = tuple(f"#0300{number:02x}" for number in range(MAX_SERIES))
_PAGE_COLOURS = {_INK: "currentColor", _GRID: "var(--line)"} | {
    colour: f"var(--series-{number})" for number, colour in enumerate(_SERIES_COLOURS)
}


class Line(NamedTuple):
    """One series of a line chart: its points, with `x` rising."""

    x: Sequence[float]
    y: Sequence[float]


class Axis(NamedTuple):
    """How an axis is labelled; without `ticks`, matplotlib chooses them."""

    label: str
    log: bool = False
    percent: bool = False
    ticks: Sequence[float] = ()


def draw_line_chart(
    name: str, lines: Sequence[Line], x: Axis, y: Axis, *, steps: bool = False, marked_x: float | None = None
) -> str:
    """Returns a line chart as SVG.

    Args:
        name: A name that no other chart of the page has; it makes the ids in the SVG unique.
        lines: The series, at most `MAX_SERIES`.
        x: The horizontal axis.
        y: The vertical axis.
        steps: Whether a value holds until the next point, as in a staircase.
        marked_x: Where to draw a vertical line, if anywhere.
    """

    def draw(axes: "Axes") -> None:
        for line, colour, dashes in zip(lines, _SERIES_COLOURS, DASHES, strict=False):
            axes.plot(
                line.x,
                line.y,
                color=colour,
                linewidth=_LINE_WIDTH_POINTS,
                linestyle=(0, dashes) if dashes else "solid",
                drawstyle="steps-post" if steps else "default",
                marker="o" if len(line.x) < 30 and not steps else "",
                markersize=4,
            )
        if marked_x is not None:
            axes.axvline(marked_x, color=_INK, linewidth=1, linestyle=(0, (2, 2)))
        _style_axes(axes, x, y)

    return _render_svg(name, _HEIGHT, draw)


def draw_bar_chart(
    name: str, labels: Sequence[str], parts: Sequence[Sequence[float]], notes: Sequence[str], x: Axis
) -> str:
    """Returns a chart of horizontal stacked bars as SVG.

    Args:
        name: A name that no other chart of the page has; it makes the ids in the SVG unique.
        labels: The label of each bar, from the top.
        parts: The parts that each bar is stacked from, at most two; one value per bar.
        notes: The text behind each bar.
        x: The horizontal axis.
    """

    def draw(axes: "Axes") -> None:
        places = range(len(labels))
        ends = [0.0] * len(labels)
        for part, colour, hatch in zip(parts, _SERIES_COLOURS, ("", "////"), strict=False):
            axes.barh(places, part, left=ends, color="none" if hatch else colour, edgecolor=colour, hatch=hatch)
            ends = [end + value for end, value in zip(ends, part, strict=True)]
        for place, end, note in zip(places, ends, notes, strict=True):
            axes.annotate(note, (end, place), (4, 0), textcoords="offset points", va="center", color=_INK)
        axes.set_yticks(places, labels)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_xlim(0, max(ends, default=0) * 1.3 or 1)
        _style_axes(axes, x, Axis(""))
        axes.grid(visible=False, axis="y")

    return _render_svg(name, 0.75 + 0.28 * max(2, len(labels)), draw)


def shorten_number(value: float) -> str:
    """Returns a number as an axis shows it, with three digits and a unit.

    >>> shorten_number(1200), shorten_number(64000), shorten_number(2e9), shorten_number(0.25)
    ('1.2k', '64k', '2G', '0.25')
    """
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.3g}{letter}"
    return f"{value:.3g}"


def _style_axes(axes: "Axes", x: Axis, y: Axis) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

    # Setting a scale deletes ticks that were set before, even if the scale stays the same.
    if x.log:
        axes.set_xscale("log")
    if y.log:
        axes.set_yscale("log")
    for axis, given in ((axes.xaxis, x), (axes.yaxis, y)):
        if given.ticks:
            axis.set_ticks(list(given.ticks))
            axis.set_minor_locator(NullLocator())
        if given.label:
            shown = (lambda v, _: f"{v:.0%}") if given.percent else (lambda v, _: shorten_number(v))
            axis.set_major_formatter(FuncFormatter(shown))
        axis.set_minor_formatter(NullFormatter())
        axis.set_label_text(given.label)
    axes.grid(color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", length=0)
    for side in axes.spines.values():
        side.set_visible(False)


def _render_svg(name: str, height: float, draw: Callable[["Axes"], None]) -> str:
    from matplotlib import style
    from matplotlib.figure import Figure

    settings = {
        "svg.hashsalt": name,  # Ids in the SVG are derived from it.
        "svg.fonttype": "none",  # Text stays text, in the page's font.
        "text.parse_math": False,
        "font.size": 11,
        "hatch.linewidth": 1.5,
        **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
    }
    with style.context(["default", settings]), warnings.catch_warnings():
        # The page's fonts may have glyphs that matplotlib's own font lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing")
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        draw(figure.add_subplot())
        file = io.BytesIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _adapt_to_page(name, file.getvalue().decode())


def _adapt_to_page(name: str, drawing: str) -> str:
    """Returns an SVG drawing for use inside the page.

    Removes its header, fixed size, style and font, and gives it the page's colours and ids that are unique in the page.
    """
    svg = drawing[drawing.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'^(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'^(<svg[^>]*?) height="[^"]*"', r"\1", svg))
    svg = re.sub(r"font-family: [^;\"]*; ?", "", svg)
    for colour, page_colour in _PAGE_COLOURS.items():
        svg = svg.replace(colour, page_colour)
    used = set(re.findall(r'(?:href="|url\()#([\w-]+)', svg))

    def rename_id(found: "re.Match[str]") -> str:
        return f' id="{name}-{found[1]}"' if found[1] in used else ""

    svg = re.sub(r' id="([^"]*)"', rename_id, svg)
    return re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", svg).strip()
