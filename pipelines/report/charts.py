"""Charts as SVG that takes colours and font from the page around it, the same bytes for the same figures.

A series differs from the others by its dashes as well as by its colour. Needs matplotlib, which is imported when a
chart is drawn.
"""

import io
import re
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_SERIES = 6
DASHES: tuple[tuple[float, ...], ...] = ((), (4, 1.5), (1, 1), (6, 1.5, 1, 1.5), (2, 1), (8, 2))
"""On and off of each series, in widths of the line."""

_WIDTH, _HEIGHT = 5.2, 3.1  # inches
_LINE_WIDTH = 2

# Stands in the drawing for what the page decides.
_INK, _GRID = "#010101", "#020202"
_SERIES = tuple(f"#0300{number:02x}" for number in range(MOST_SERIES))
_OF_PAGE = {_INK: "currentColor", _GRID: "var(--line)"} | {
    colour: f"var(--series-{number})" for number, colour in enumerate(_SERIES)
}


class Line(NamedTuple):
    """A series of a line chart: its points, in rising order of `x`."""

    x: Sequence[float]
    y: Sequence[float]


class Axis(NamedTuple):
    """How an axis is marked; `ticks` are chosen where none are given."""

    label: str
    log: bool = False
    percent: bool = False
    ticks: Sequence[float] = ()


def line_chart(
    name: str, lines: Sequence[Line], x: Axis, y: Axis, *, steps: bool = False, marked_x: float | None = None
) -> str:
    """Returns lines as SVG; `name` is unlike that of any other chart of the page.

    Args:
        steps: a value holds until the next point.
        marked_x: where an upright line is drawn.
    """

    def draw(axes: "Axes") -> None:
        for line, colour, dashes in zip(lines, _SERIES, DASHES, strict=False):
            axes.plot(
                line.x,
                line.y,
                color=colour,
                linewidth=_LINE_WIDTH,
                linestyle=(0, dashes) if dashes else "solid",
                drawstyle="steps-post" if steps else "default",
                marker="o" if len(line.x) < 30 and not steps else "",
                markersize=4,
            )
        if marked_x is not None:
            axes.axvline(marked_x, color=_INK, linewidth=1, linestyle=(0, (2, 2)))
        _mark(axes, x, y)

    return _svg(name, _HEIGHT, draw)


def bar_chart(name: str, labels: Sequence[str], parts: Sequence[Sequence[float]], notes: Sequence[str], x: Axis) -> str:
    """Returns bars that lie, from above, as SVG: each of `parts` follows the one before it, `notes` stand behind."""

    def draw(axes: "Axes") -> None:
        places = range(len(labels))
        ends = [0.0] * len(labels)
        for part, colour, hatch in zip(parts, _SERIES, ("", "////"), strict=False):
            axes.barh(places, part, left=ends, color="none" if hatch else colour, edgecolor=colour, hatch=hatch)
            ends = [end + value for end, value in zip(ends, part, strict=True)]
        for place, end, note in zip(places, ends, notes, strict=True):
            axes.annotate(note, (end, place), (4, 0), textcoords="offset points", va="center", color=_INK)
        axes.set_yticks(places, labels)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_xlim(0, max(ends, default=0) * 1.3 or 1)
        _mark(axes, x, Axis(""))
        axes.grid(visible=False, axis="y")

    return _svg(name, 0.75 + 0.28 * max(2, len(labels)), draw)


def short_number(value: float) -> str:
    """Returns a number for an axis.

    >>> short_number(1200), short_number(64000), short_number(2e9), short_number(0.25)
    ('1.2k', '64k', '2G', '0.25')
    """
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.3g}{letter}"
    return f"{value:.3g}"


def _mark(axes: "Axes", x: Axis, y: Axis) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

    # Setting a scale, also the one that is there, takes away the ticks that were set.
    if x.log:
        axes.set_xscale("log")
    if y.log:
        axes.set_yscale("log")
    for axis, given in ((axes.xaxis, x), (axes.yaxis, y)):
        if given.ticks:
            axis.set_ticks(list(given.ticks))
            axis.set_minor_locator(NullLocator())
        if given.label:
            shown = (lambda v, _: f"{v:.0%}") if given.percent else (lambda v, _: short_number(v))
            axis.set_major_formatter(FuncFormatter(shown))
        axis.set_minor_formatter(NullFormatter())
        axis.set_label_text(given.label)
    axes.grid(color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", length=0)
    for side in axes.spines.values():
        side.set_visible(False)


def _svg(name: str, height: float, draw: Callable[["Axes"], None]) -> str:
    from matplotlib import style
    from matplotlib.figure import Figure

    settings = {
        "svg.hashsalt": name,  # Names inside the drawing follow from it.
        "svg.fonttype": "none",  # Letters stay letters, of the page's font.
        "text.parse_math": False,
        "font.size": 11,
        "hatch.linewidth": 1.5,
        **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
    }
    with style.context(["default", settings]), warnings.catch_warnings():
        # The page's fonts may well have what matplotlib's own lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing")
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        draw(figure.add_subplot())
        file = io.BytesIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _of_page(name, file.getvalue().decode())


def _of_page(name: str, drawing: str) -> str:
    """Returns a drawing without what belongs to a file of its own, and with the page's colours and font."""
    svg = drawing[drawing.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'^(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'^(<svg[^>]*?) height="[^"]*"', r"\1", svg))
    svg = re.sub(r"font-family: [^;\"]*; ?", "", svg)
    for colour, of_page in _OF_PAGE.items():
        svg = svg.replace(colour, of_page)
    used = set(re.findall(r'(?:href="|url\()#([\w-]+)', svg))

    def named(found: "re.Match[str]") -> str:
        return f' id="{name}-{found[1]}"' if found[1] in used else ""

    svg = re.sub(r' id="([^"]*)"', named, svg)
    return re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", svg).strip()
