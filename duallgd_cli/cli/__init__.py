"""The command line: one module a command, which parses, resolves, calls and shows."""
