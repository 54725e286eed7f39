"""Run the command line: ``duallgd`` or ``python -m duallgd_cli``."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from duallgd_cli.errors import DuallgdError, InterruptedRunError, UsageError, clip, printable
from duallgd_cli.runtime import prepare_environment, shows_tracebacks
from duallgd_cli.stopping import end_at_once, loading, stoppable

# What is the matter with a file that was named, wherever it shows.
_OF_A_FILE: Final = frozenset(
    {errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC}
)

_BUG: Final = 70  # the exit code of errors that nobody expected
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def main() -> None:
    """Run one command; a closed pipe (1) and wrong options (2) are dealt with by Typer."""
    prepare_environment()
    with loading():
        from duallgd_cli.cli import app
    with exit_codes():
        app(prog_name="duallgd")


@contextmanager
def exit_codes() -> Iterator[None]:
    """Where anticipated errors become exit codes, those of plug-ins' commands too.

    A Ctrl-C that the command has no words for becomes its exit code; a file that may not be used or
    has too long a name, and standard output that takes no more, a sentence. Any other exception is
    a bug, whose traceback is shown to who asks for it.
    """
    import typer

    try:
        try:
            yield
        except OSError as error:
            if error.errno in _FULL and error.filename is None:
                # What is left in the buffer would fail once more when Python ends.
                with suppress(OSError, ValueError):  # of no file
                    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise UsageError(f"cannot write to standard output: {error.strerror}") from None
            if error.errno not in _OF_A_FILE or error.filename is None:
                raise
            named = clip(str(error.filename))
            raise UsageError(f"{named} cannot be used: {error.strerror}; name another") from None
    except DuallgdError as error:
        typer.secho(f"error: {printable(str(error))}", err=True, fg=typer.colors.RED)
        sys.exit(error.exit_code)
    except Exception as error:
        if shows_tracebacks():
            raise
        said = (
            f"error: unexpected {type(error).__name__}: {clip(str(error))}; please report it, with "
            "what the same command prints where the environment has DUALLGD_TRACEBACK=1"
        )
        typer.secho(said, err=True, fg=typer.colors.RED)
        sys.exit(_BUG)
    except (KeyboardInterrupt, SystemExit) as stopped:
        code = InterruptedRunError.exit_code
        if isinstance(stopped, SystemExit) and stopped.code != code:
            raise
        typer.secho("error: stopped", err=True, fg=typer.colors.RED)
        sys.exit(code)


def run() -> None:
    """The command as a process of its own.

    After Ctrl-C it ends at once: threads that still compute are not waited for, and libraries do
    not take themselves down beneath them.
    """
    try:
        with stoppable():
            main()
    except SystemExit as stopped:
        if stopped.code == InterruptedRunError.exit_code:
            sys.stderr.flush()
            end_at_once()
        raise
    except KeyboardInterrupt:  # before the places that have more to say
        os.write(2, b"error: stopped\n")
        end_at_once()


if __name__ == "__main__":
    run()
