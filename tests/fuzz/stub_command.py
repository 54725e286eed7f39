"""`duallgd` with a stand-in for the model: ``python -m tests.fuzz.stub_command DELAY_S ARGUMENTS``.

A process of its own, so that it can be killed; DELAY_S is what every spectrum takes, in the process
itself a second at most. One that is stopped says what it keeps however long that takes.
"""

import sys
from dataclasses import replace
from functools import partial

from duallgd_cli import __main__, stopping

command = __main__.main


def main():
    """In place of the command's own: libraries load inside, as they do there."""
    with stopping.loading():
        from duallgd_cli.predict import api
        from tests.stub_model import stub_model

    stopping._ENDING_S = 3600
    delay_s = float(sys.argv.pop(1))
    again = partial(stub_model, delay_s)  # for processes that predict
    api.load = lambda *_, **__: replace(stub_model(min(delay_s, 1)), again=again)
    command()


if __name__ == "__main__":
    __main__.main = main
    __main__.run()
