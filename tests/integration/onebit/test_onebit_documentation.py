"""The 1-bit optimizers behave as docs/deepspeed.md describes."""

import re

import pytest
from documented import commands, run


@pytest.mark.parametrize("command", commands(onebit=True))
def test_command_trains(command):
    first, last = re.search(r"loss ([\d.]+) at first, ([\d.]+) after", run(command)).groups()
    assert float(last) < float(first)
