"""The commands that encode and decode: `encode`, `decode` and `inspect`."""

import argparse
import os
import re
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from bpe_core.measuring.token_display import show_on_one_line
from bpe_core.tokenizer import Tokenizer
from pipelines.commands.arguments import add_tokenizer_arguments, read_named_tokenizer

_COLOURS = ("black on bright_cyan", "black on bright_yellow", "black on bright_green", "black on bright_magenta")


def add_text_arguments(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of `encode`, `decode` and `inspect`."""
    add_tokenizer_arguments(command)
    command.add_argument("text", nargs="*", help="the input; standard input if left out")


def _read_lines(args: argparse.Namespace) -> Iterator[str]:
    """Yields the text on the command line, or the lines of standard input, read as UTF-8 in every locale."""
    if args.text:
        yield os.fsencode(" ".join(args.text)).decode(errors="surrogateescape")
        return
    if sys.stdin is None:
        raise ValueError("no text was given and standard input is closed; give the text as an argument, or pipe it in")
    for line in sys.stdin.buffer:
        yield line.decode(errors="surrogateescape").removesuffix("\n")


def run_encode(args: argparse.Namespace) -> None:
    """Prints a line of ids for each line of text."""
    tokenizer = read_named_tokenizer(args)
    for line in _read_lines(args):
        print(*tokenizer.encode(line))


def run_decode(args: argparse.Namespace) -> None:
    """Prints a line of text for each line of ids, byte for byte.

    Raises:
        ValueError: a word is not an id.
    """
    tokenizer = read_named_tokenizer(args)
    for line in _read_lines(args):
        words = re.findall(r"[^ \t\r]+", line)
        wrong = [word for word in words if not re.fullmatch("-?[0-9]{1,18}", word)]
        if wrong:
            raise ValueError(
                f"{wrong[0][:60]!r} in {line[:60]!r} is not an id; write whole numbers separated by spaces"
            )
        ids = [int(word) for word in words]
        sys.stdout.buffer.write(tokenizer.decode_bytes(ids) + b"\n")
        sys.stdout.buffer.flush()


def run_inspect(args: argparse.Namespace) -> None:
    """Prints each text split into tokens (in colours, or with `|` after each token), its ids, and its counts."""
    tokenizer = read_named_tokenizer(args)
    console = Console(highlight=False, soft_wrap=True)
    for line in _read_lines(args):
        _show_split(console, tokenizer, line)


def _show_split(console: Console, tokenizer: Tokenizer, text: str) -> None:
    words = tokenizer.splitter.split(text) if tokenizer.kind != "library" else None
    tokens = tokenizer.tokenize(text)
    ids = tokenizer.encode(text)
    shown = Text()
    for number, token in enumerate(tokens):
        shown.append(show_on_one_line(token), _COLOURS[number % len(_COLOURS)])
        if not console.is_terminal:
            shown.append("|")
    console.print(shown)
    console.print(" ".join(map(str, ids)), style="dim")
    num_spaces = sum(character.isspace() for character in text)
    counts = {"characters": f"{len(text)} ({len(text) - num_spaces} without spaces)"}
    if words is not None:  # The library does not return words.
        counts["words"] = f"{len(words)} ({len(set(words))} different)"
    counts["tokens"] = f"{len(ids)} ({len(set(ids))} different)"
    console.print("   ".join(f"{name} {count}" for name, count in counts.items()))
