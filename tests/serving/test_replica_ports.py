"""Ports that a server can take, and whether it did."""

from __future__ import annotations

import os
import socket

from serving.replica import processes
from serving.replica.ports import Ports, are_free, free_ports, is_free


def test_free_ports_are_three_below_those_of_outgoing_connections() -> None:
    ports = free_ports("127.0.0.1")

    chosen = {ports.http, ports.grpc, ports.metrics}
    assert len(chosen) == 3
    assert max(chosen) < 32768
    assert are_free("127.0.0.1", ports)


def test_a_taken_port_is_not_free_and_known_to_be_ours() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        assert not is_free("127.0.0.1", port)
        assert not are_free("127.0.0.1", Ports(http=20001, grpc=20002, metrics=port))
        assert processes.is_listening(os.getpid(), port)
        assert not processes.is_listening(os.getppid(), port)
