import subprocess
import sys
from importlib.metadata import version

import pytest

import bcol


def test_version_is_the_installed_one():
    assert bcol.__version__ == version("bcol")


def test_every_public_name_can_be_had():
    for package in (bcol, bcol.tabular):
        for name in package.__all__:
            assert getattr(package, name) is not None
            assert name in dir(package)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        bcol.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_a_function_is_not_hidden_by_the_module_of_the_same_name():
    import bcol.tabular.estimate

    assert callable(bcol.tabular.estimate)


@pytest.mark.parametrize("module", ["bcol", "bcol.budget", "bcol.cli"])
def test_importing_does_not_load_jax(module):
    code = f"import sys, {module}; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
