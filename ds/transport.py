"""Settings of gRPC that server and client share."""

from __future__ import annotations

from typing import Any

SERVICE = "sac.Learner"

TOKEN = "authorization"
"""Name of the metadata that carries ``Bearer <token>``."""

CHUNK = 2**20
"""Maximum of bytes of a chunk of weights; gRPC accepts four times as much by default."""

BUSY = "Concurrent RPC limit exceeded"
"""First words of gRPC's text for RESOURCE_EXHAUSTED when all call slots are taken."""

_SECOND = 1000

ChannelOptions = list[tuple[str, Any]]

KEEPALIVE: ChannelOptions = [
    ("grpc.keepalive_time_ms", 10 * _SECOND),
    ("grpc.keepalive_timeout_ms", 10 * _SECOND),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
"""Options that detect a vanished peer after twenty seconds."""

CLIENT: ChannelOptions = [
    *KEEPALIVE,
    ("grpc.initial_reconnect_backoff_ms", 200),
    (
        "grpc.max_reconnect_backoff_ms",
        2 * _SECOND,
    ),  # the default is two minutes
    ("grpc.min_reconnect_backoff_ms", 5 * _SECOND),  # how long a connection may take
    ("grpc.enable_http_proxy", 0),  # a proxy of the environment is for the web
    ("grpc.use_local_subchannel_pool", 1),  # a connection for each client: sender streams do not share one
    ("grpc.max_send_message_length", -1),  # the learner's limit holds, and names itself
]


def server_options(
    max_message: int, *, connections: int, handshake_s: float, idle_s: float
) -> ChannelOptions:
    """Return the options of a learner's server.

    max_message: bytes of the largest message that it reads.
    connections: at a time; one more is closed before its handshake.
    handshake_s: a connection that does not come about in this time is closed.
    idle_s:      one without a call for so long, too.
    """
    return [
        *KEEPALIVE,
        ("grpc.http2.min_ping_interval_without_data_ms", 5 * _SECOND),
        ("grpc.max_receive_message_length", max_message),
        ("grpc.per_message_decompression", 0),  # a small message stays one: compressed it is just malformed
        ("grpc.so_reuseport", 0),  # else a second learner would share the port and half of the actors
        ("grpc.max_concurrent_streams", 16),  # an actor needs four
        ("grpc.http2.bdp_probe", 0),  # else megabytes of each message arrive before anybody asks for it
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.max_connection_idle_ms", int(idle_s * _SECOND)),
        ("grpc.server_handshake_timeout_ms", int(handshake_s * _SECOND)),
    ]


def address(host: str, port: int) -> str:
    """Return the address in gRPC's form; an IPv6 address stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
