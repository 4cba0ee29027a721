"""Prints what CMake needs to know of this interpreter's torch, separated by semicolons."""

import os
import sysconfig

import torch

print(
    torch.__version__,
    os.path.dirname(torch.__file__),
    int(torch.compiled_with_cxx11_abi()),
    sysconfig.get_paths()["include"],
    sysconfig.get_config_var("EXT_SUFFIX"),
    sep=";",
)
