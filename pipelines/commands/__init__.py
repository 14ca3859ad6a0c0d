"""The commands: each module adds the arguments of one or more commands to a parser, and runs them."""
