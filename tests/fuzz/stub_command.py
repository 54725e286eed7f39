"""`duallgd` with a stand-in for the model: ``python -m tests.fuzz.stub_command DELAY_S ARGUMENTS``.

A process of its own, so that it can be killed; DELAY_S is what every spectrum takes. Merging shares
its work among processes however little it is.
"""

import sys
from dataclasses import replace
from functools import partial

from duallgd_cli import __main__
from duallgd_cli.runtime import loading

command = __main__.main


def main():
    """In place of the command's own: libraries load inside, as they do there."""
    with loading():
        from duallgd_cli.predict import api
        from duallgd_cli.predict import run as output
        from tests.stub_model import stub_model

    again = partial(stub_model, float(sys.argv.pop(1)))  # for processes that predict
    api.load = lambda *_, **__: replace(again(), again=again)
    output._LARGE_BYTES, output._AT_ONCE = 0, 2
    command()


if __name__ == "__main__":
    __main__.main = main
    __main__.run()
