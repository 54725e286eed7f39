"""Run the command line: ``duallgd`` or ``python -m duallgd_cli``."""

import errno
import os
import sys

from duallgd_cli.errors import DuallgdError, InterruptedRunError, UsageError, printable, quote
from duallgd_cli.runtime import loading, prepare_environment, stoppable


def main() -> None:
    """Run one command; the one place where anticipated errors become exit codes.

    A closed pipe (1) and wrong options (2) are dealt with by Typer on the way here, and a Ctrl-C
    that the command has no words for becomes its exit code, as does a name that no file can have,
    wherever it is first looked at. Any other exception is a bug and keeps
    its traceback.
    """
    prepare_environment()
    with loading():
        import typer

        from duallgd_cli.cli import app
    try:
        app(prog_name="duallgd")
    except DuallgdError as error:
        typer.secho(f"error: {printable(str(error))}", err=True, fg=typer.colors.RED)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        said = f"error: the name {quote(str(error.filename))} is too long for a file; shorten it"
        typer.secho(said, err=True, fg=typer.colors.RED)
        sys.exit(UsageError.exit_code)
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
            os._exit(InterruptedRunError.exit_code)
        raise


if __name__ == "__main__":
    run()
