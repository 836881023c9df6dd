"""Where the package is, and the adapter around every test.

REPRISE_BUILD names the build folder (default: build/release, where the C extension and the libraries are). Tests that take `adapter` run on the
reference engine and on the native one (declared ranges, no preload); in each, with and without the extension's plans where that differs."""

import gc
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Not in the environment of the jobs that tests start, to which it would be a setting of ours that nobody knows; pytest's own workers (-n)
# find it by another name.
BUILD = pathlib.Path(os.environ.pop("REPRISE_BUILD", None) or os.environ.get("PYTEST_REPRISE_BUILD") or ROOT / "build" / "release").resolve()
os.environ["PYTEST_REPRISE_BUILD"] = str(BUILD)
PACKAGE = BUILD / "python" if (BUILD / "python" / "reprise").is_dir() else ROOT / "python"
sys.path[:0] = [str(PACKAGE), str(pathlib.Path(__file__).parent)]

import torch  # noqa: E402
import torch.utils.checkpoint  # noqa: E402

from reference_engine import ReferenceEngine  # noqa: E402
from reprise import engine as engines  # noqa: E402
from reprise import messages  # noqa: E402
from reprise.pytorch import patch  # noqa: E402
from reprise.settings import settings  # noqa: E402

torch.set_num_threads(1)


def pytest_configure(config):
    config.reprise_build, config.reprise_package = BUILD, PACKAGE


@pytest.fixture(scope="session")
def build():
    if not (BUILD / "libreprise.so").is_file():
        pytest.fail("no libreprise.so in %s; build first, or name the build folder in REPRISE_BUILD" % BUILD)
    return BUILD


class Harness:
    """The adapter of one test: its engine, what was said, how many instances are alive."""

    def __init__(self, engine):
        self.engine = engine

    @property
    def adapter(self):
        return patch.active().adapter

    def outstanding(self):
        gc.collect()
        return self.adapter.outstanding() if self.adapter is not None else 0

    def stats(self):
        return self.engine.stats()


def _use(engine):
    messages.forget()
    patch.uninstall()
    engines.use(engine)
    assert patch.install()
    return Harness(engine)


@pytest.fixture
def clean():
    """Leaves the process as it found it."""
    saved = dict(vars(settings))
    yield
    patch.uninstall()
    engines.use(None)
    vars(settings).update(saved)
    messages.forget()


@pytest.fixture
def reference(clean):
    """The adapter on the reference engine."""
    return _use(ReferenceEngine())


@pytest.fixture
def warning(clean):
    """The same under the policy to warn."""
    return _use(ReferenceEngine(policy="warn"))


@pytest.fixture
def audit(clean):
    return _use(ReferenceEngine(audit=True))


@pytest.fixture(params=["reentrant", "nonreentrant", "converted"])
def form(request, clean):
    """The checkpoint function in one of its three forms."""
    settings.convert = request.param == "converted"

    def checkpoint(function, *args, **kwargs):
        return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=request.param != "nonreentrant", **kwargs)

    checkpoint.name = request.param
    checkpoint.reentrant = request.param == "reentrant"
    return checkpoint


@pytest.fixture(params=["reentrant", "nonreentrant"])
def checkpoint(request):
    """The checkpoint function in one of its two forms."""

    def call(function, *args, **kwargs):
        return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=request.param == "reentrant", **kwargs)

    call.reentrant = request.param == "reentrant"
    return call
