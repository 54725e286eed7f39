"""`duallgd` with a stand-in for the model: ``python -m tests.fuzz.stub_command DELAY_S ARGUMENTS``.

A process of its own, so that it can be killed; DELAY_S is what every spectrum takes.
"""

import sys
from dataclasses import replace
from functools import partial

from duallgd_cli import __main__
from duallgd_cli.predict import api
from tests.stub_model import stub_model


def main():
    delay_s = float(sys.argv.pop(1))
    again = partial(stub_model, delay_s)  # for processes that predict
    api.load = lambda *_, **__: replace(again(), again=again)
    __main__.run()


if __name__ == "__main__":
    main()
