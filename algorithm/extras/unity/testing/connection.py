"""The client of the protocol: one unary call at a time, like the C# package's ``RpcCommunicator``."""

from __future__ import annotations

import contextlib

import grpc

from algorithm.extras.unity.testing.messages import UnityInputProto, UnityMessageProto, UnityOutputProto

METHOD = "/communicator_objects.UnityToExternalProto/Exchange"
GOOD, BYE = 200, 400  # status of a message's header


class TrainerGoneError(Exception):
    """Error if the trainer has closed the connection, or cannot be reached."""


class Connection:
    """A channel to a trainer on this machine."""

    def __init__(self, port: int, *, wait: float) -> None:
        """Connect to a port; wait for at most ``wait`` seconds. Raises TrainerGoneError."""
        self._channel = grpc.insecure_channel(f"localhost:{port}")
        self._call = self._channel.unary_unary(
            METHOD,
            request_serializer=UnityMessageProto.SerializeToString,
            response_deserializer=UnityMessageProto.FromString,
        )
        try:
            grpc.channel_ready_future(self._channel).result(timeout=wait)
        except grpc.FutureTimeoutError:
            raise TrainerGoneError(f"nobody listens on port {port}") from None

    def exchange(self, output: UnityOutputProto | None) -> UnityInputProto:
        """Send a message and return the answer. Raises TrainerGoneError."""
        message = UnityMessageProto()
        message.header.status = GOOD
        if output is not None:
            message.unity_output.CopyFrom(output)
        try:
            answer = self._call(message)
        except grpc.RpcError as error:
            raise TrainerGoneError(f"{error.code().name}: {error.details()}") from None
        if answer.header.status != GOOD:
            raise TrainerGoneError(f"goodbye (status {answer.header.status})")
        return answer.unity_input

    def say_goodbye(self) -> None:
        """Send the C# package's message at the end of the application."""
        message = UnityMessageProto()
        message.header.status = BYE
        with contextlib.suppress(grpc.RpcError):  # as in C#: the trainer may be gone already
            self._call(message, timeout=2)
