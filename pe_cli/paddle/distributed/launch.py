"""launch: a process of a script for each device, or for each number of `--selected_gpus`, on every machine of a list."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from pe_cli.core.errors import PeError
from pe_cli.devices.cuda import cuda_count
from pe_cli.paddle.distributed.process_start import hosts_of, run, script_of, start
from pe_cli.paddle.reference_names import missing


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the arguments; default: those of the command line."""
    parser = argparse.ArgumentParser("launch", description=__doc__)
    parser.add_argument("--cluster_node_ips", default="127.0.0.1", help="addresses of all machines, with commas")
    parser.add_argument("--node_ip", default="127.0.0.1", help="address of this machine")
    parser.add_argument("--use_paddlecloud", action="store_true", help="take machines from the environment")
    parser.add_argument("--started_port", type=int, default=6170, help="port of the first process of a machine")
    parser.add_argument("--print_config", type=lambda text: text.lower() != "false", default=True, help="print what every process is told")
    parser.add_argument("--selected_gpus", default=None, help="numbers with commas; a process for each. All devices when absent")
    parser.add_argument("--log_level", type=int, default=20, help="of the launcher itself; 40 and above: no settings")
    parser.add_argument("--log_dir", default=None, help="folder for a file with what each process says")
    script_of(parser)
    return parser.parse_args(arguments)


def roles(given: argparse.Namespace) -> list[tuple[str, dict[str, str], bool]]:
    """Return name and environment of every process of this machine.

    Raises:
        PeError: this machine is not in the list, or a device is no number.
    """
    hosts, mine = hosts_of(given.cluster_node_ips), given.node_ip
    if given.use_paddlecloud:
        hosts = hosts_of(_variable("PADDLE_TRAINERS"))
        mine = _variable("POD_IP")
        given.started_port = int(_variable("PADDLE_PORT")) if "PADDLE_PORT" in os.environ else given.started_port
    if mine not in hosts:
        raise PeError(f"--node_ip {mine} is not in --cluster_node_ips {','.join(hosts)}", hint="the address of this machine")
    devices = [part.strip() for part in (given.selected_gpus or "").split(",") if part.strip()]
    if not all(part.isdigit() for part in devices):
        raise PeError(f"--selected_gpus {given.selected_gpus!r} must be numbers with commas", hint="0,1 for two processes")
    devices = devices or [str(i) for i in range(max(1, cuda_count()[0]))]
    endpoints = [f"{host}:{given.started_port + i}" for host in hosts for i in range(len(devices))]
    found = []
    for i, device in enumerate(devices):
        number = hosts.index(mine) * len(devices) + i
        environment = {
            "FLAGS_selected_gpus": device,
            "PADDLE_TRAINER_ID": str(number),
            "PADDLE_CURRENT_ENDPOINT": endpoints[number],
            "PADDLE_TRAINERS_NUM": str(len(endpoints)),
            "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        }
        found.append((f"workerlog.{i}", environment, False))
    return found


def _variable(name: str) -> str:
    if name not in os.environ:
        raise PeError(f"--use_paddlecloud needs {name} in the environment, and there is none", hint="leave the option out")
    return os.environ[name]


def launch(arguments: Sequence[str] | None = None) -> int:
    """Start all processes of this machine and wait for them; return an exit code."""
    given = parsed(arguments)
    given.print_config = given.print_config and given.log_level < 40
    return start(given, roles(given))


__getattr__ = missing("paddle.distributed.launch", lambda: globals())

if __name__ == "__main__":
    run(launch)
