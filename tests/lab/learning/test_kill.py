"""kill -9 at the worst moments, then resume: the same model, bit for bit."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sparsesecagg.lab.learning import FederatedRun

from .support import blobs, small_task
from .test_federated import finish

# Each one ends the process that trains with SIGKILL in round 3.
MOMENTS = {
    "while users upload": """
from sparsesecagg.protocol import Client
upload = Client.upload
def die(self, *given, **named):
    answer = upload(self, *given, **named)
    if self.round_number == 3 and self.user > 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer
Client.upload = die
""",
    "between the metrics and the checkpoint": """
from sparsesecagg.lab.learning.run_folder import RunFolder
save = RunFolder.save_checkpoint
def save_checkpoint(self, checkpoint):
    if checkpoint.round_number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    save(self, checkpoint)
RunFolder.save_checkpoint = save_checkpoint
""",
    "while the checkpoint is written": """
fsync, calls = os.fsync, []
def half_written(file):
    fsync(file)
    if "checkpoint" in os.readlink(f"/proc/self/fd/{file}"):
        calls.append(file)
        if len(calls) == 3:
            os.ftruncate(file, 100)
            os.kill(os.getpid(), signal.SIGKILL)
os.fsync = half_written
""",
}

SCRIPT = """
import os, signal, sys
from pathlib import Path
from lab.learning.support import small_task
from lab.learning.test_federated import finish
from sparsesecagg.lab.learning import FederatedRun
config, task = small_task(rounds=5)
run = FederatedRun.create(config, task, Path(sys.argv[1]))
{moment}
finish(run)
"""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory):
    """The model of a run that nobody killed."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    config, task = small_task(rounds=5)
    finish(FederatedRun.create(config, task, folder))
    return (folder / "model.npz").read_bytes()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_run_resumes_bit_for_bit(tmp_path: Path, undisturbed, moment) -> None:
    """It loses the round in progress, and nothing else."""
    folder = tmp_path / "run"
    script = SCRIPT.format(moment=MOMENTS[moment])
    killed = subprocess.run(  # noqa: S603 (our own interpreter)
        [sys.executable, "-c", script, str(folder)], cwd=Path(__file__).parents[2], check=False, timeout=120
    )
    assert killed.returncode == -signal.SIGKILL
    assert not (folder / "model.npz").exists()
    resumed = FederatedRun.resume(folder, dataset=blobs())
    assert resumed.round_number == 2
    assert [line["round"] for line in finish(resumed)] == [3, 4, 5]
    assert (folder / "model.npz").read_bytes() == undisturbed
    rounds = [line["round"] for line in resumed.folder.metrics()]
    assert rounds == [1, 2, 3, 4, 5]
