"""What the commands of Slurm say of a job."""

from __future__ import annotations

import shutil
import subprocess

from pe_cli.core.errors import PeError

#: Seconds that Slurm may take to answer.
ANSWER = 30.0


def check_job(job: str) -> None:
    """Refuse to start tasks of a job that is over.

    Raises:
        PeError: USAGE; it has ended, or there is no srun.
    """
    if shutil.which("srun") is None:
        hint = "unset SLURM_JOB_ID, or put Slurm's commands on the PATH"
        raise PeError(f"SLURM_JOB_ID says job {job}, and srun is not on the PATH", hint=hint)
    try:
        said = subprocess.run(
            ["squeue", "--noheader", f"--jobs={job}", "--states=all", "--format=%T"],
            capture_output=True, text=True, check=False, timeout=ANSWER,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        # Only what Slurm surely says is told: without an answer srun is tried.
        return  # srun says what is wrong
    state = said.stdout.strip().splitlines()[:1]
    if state == ["RUNNING"] or (not state and "Invalid job id" not in said.stderr):
        return
    text = f"job {job} of Slurm's has ended ({state[0][:20].lower()})" if state else f"there is no job {job} of Slurm's any more"
    raise PeError(text, hint="ask for another one with salloc or sbatch; unset SLURM_JOB_ID to train on this machine")
