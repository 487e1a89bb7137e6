"""launch_ps: the parameter servers and trainers of a script, on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pe_cli.core.errors import PeError
from pe_cli.paddle.distributed.process_start import hosts_of, run, script_of, start
from pe_cli.paddle.fluid.transpiler.distribute_transpiler import endpoints_of
from pe_cli.paddle.reference_names import missing


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the arguments; default: those of the command line."""
    parser = argparse.ArgumentParser("launch_ps", description=__doc__)
    parser.add_argument("--cluster_node_ips", default="127.0.0.1", help="addresses of all machines, with commas")
    parser.add_argument("--node_ip", default="127.0.0.1", help="address of this machine")
    parser.add_argument("--start_port", type=int, default=6170, help="port of the first server of a machine")
    parser.add_argument("--print_config", type=lambda text: text.lower() != "false", default=True, help="print what every process is told")
    parser.add_argument("--endpoints", default="", help="host:port of all servers, with commas, instead of the two above")
    parser.add_argument("--worker_num", type=int, default=2, help="trainers on each machine")
    parser.add_argument("--server_num", type=int, default=2, help="servers on each machine")
    parser.add_argument("--log_dir", default=None, help="folder for a file with what each process says")
    script_of(parser)
    return parser.parse_args(arguments)


def roles(given: argparse.Namespace) -> list[tuple[str, dict[str, str], bool]]:
    """Return name and environment of every process of this machine; the first trainer comes first.

    Raises:
        PeError: this machine is not in the list, or there is no trainer or no server.
    """
    hosts = hosts_of(given.cluster_node_ips)
    if given.node_ip not in hosts:
        text = f"--node_ip {given.node_ip} is not in --cluster_node_ips {given.cluster_node_ips}"
        raise PeError(text, hint="the address of this machine")
    if given.worker_num < 1 or given.server_num < 1:
        raise PeError("--worker_num and --server_num must be at least 1", hint="launch starts processes without servers")
    made = [f"{host}:{given.start_port + i}" for host in hosts for i in range(given.server_num)]
    endpoints = endpoints_of(given.endpoints) if given.endpoints else made
    mine = [e for e in endpoints if e.rpartition(":")[0] == given.node_ip]
    common = {"PADDLE_PSERVERS_IP_PORT_LIST": ",".join(endpoints), "PADDLE_TRAINERS_NUM": str(given.worker_num * len(hosts))}
    first = hosts.index(given.node_ip) * given.worker_num
    trainers = []
    for i in range(given.worker_num):
        environment = {**common, "TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": str(first + i)}
        trainers.append((f"workerlog.{i}", environment, False))
    servers = []
    for i, endpoint in enumerate(mine):
        host, _, port = endpoint.rpartition(":")
        environment = {**common, "TRAINING_ROLE": "PSERVER", "POD_IP": host, "PADDLE_PORT": port, "PADDLE_CURRENT_ENDPOINT": endpoint}
        servers.append((f"serverlog.{i}", environment, True))
    return [*trainers, *servers]


def launch(arguments: Sequence[str] | None = None) -> int:
    """Start all processes of this machine and wait for them; return an exit code."""
    given = parsed(arguments)
    return start(given, roles(given))


__getattr__ = missing("paddle.distributed.launch_ps", lambda: globals())

if __name__ == "__main__":
    run(launch)
