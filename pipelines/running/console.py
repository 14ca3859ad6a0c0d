"""The console that jobs report to: standard error, so that standard output holds only what a command returns."""

from rich.console import Console

console = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)
