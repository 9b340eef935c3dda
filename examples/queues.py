"""Secure aggregation over queues: users in threads, one of them missing in each of three rounds.

python examples/queues.py
"""

import hashlib
from queue import Empty, Queue
from threading import Thread

import numpy as np

from sparsesecagg import Client, Parameters, Policy, RoundOptions, Server, Stage
from sparsesecagg.errors import ProtocolError, RoundFailed

USERS, DIM, ROUNDS, PATIENCE = 6, 1000, 3, 1.0


def take_part(user: int, inbox: Queue, outbox: Queue) -> None:
    """One user: the first letter has its parameters, every other one round, model and message."""
    client = Client(user, Parameters.decode(inbox.get()), Policy(min_anonymity=2))
    outbox.put((user, client.advertise_keys()))
    while letter := inbox.get():
        number, model, message = letter
        if number == user + 1:
            continue  # Users 0, 1 and 2 are missing in rounds 1, 2 and 3.
        context = hashlib.sha256(model.tobytes()).digest()  # Of the model that this user got.
        # The function stands for training: it is called once the round's header is accepted.
        for answer in client.handle(message, lambda: 1 - model, context=context):  # noqa: B023  # Called at once.
            outbox.put((user, answer))


def serve(params: Parameters, inboxes: list[Queue], arrivals: Queue) -> np.ndarray:
    """The server: set up, run the rounds, return the model."""
    server, model = Server(params), np.zeros(params.dim, np.float32)

    def exchange(messages: dict[int, bytes]) -> dict[int, bytes]:
        """Send messages and take the answers; return the next messages when all are there or time is up."""
        stage, following = server.stage, {}
        for user, message in messages.items():
            inboxes[user].put((server.round_number, model, message))
        while server.stage is stage and server.waiting_for:
            try:
                sender, answer = arrivals.get(timeout=PATIENCE)
            except Empty:  # Users that have not answered have dropped out.
                return {} if stage is Stage.SHARE_KEYS else server.close_stage()
            try:
                following = server.handle(sender, answer)
            except RoundFailed:
                raise
            except ProtocolError as problem:  # Late, twice or damaged: it has changed nothing.
                print(f"from user {sender}: {problem}")
        return following

    for inbox in inboxes:
        inbox.put(params.encode())
    exchange(exchange({}))  # Once: ADVERTISE_KEYS, then SHARE_KEYS.
    while server.round_number < ROUNDS:
        try:
            exchange(exchange(server.begin_round(context=hashlib.sha256(model.tobytes()).digest())))  # UPLOAD, UNMASK.
        except RoundFailed as failure:
            print(f"round {server.round_number} failed, the model stays as it is: {failure}")
        else:
            model = model + server.result.mean()
            print(f"round {server.round_number}: sum of users {server.result.survivors}")
    return model


def main() -> None:
    """Run six users and the server."""
    params, arrivals = Parameters.create(USERS, DIM, RoundOptions(alpha=0.5, threshold=4)), Queue()
    inboxes = [Queue() for _ in range(USERS)]
    for user, inbox in enumerate(inboxes):
        Thread(target=take_part, args=(user, inbox, arrivals), daemon=True).start()
    print(f"everybody wanted 1, the model is {serve(params, inboxes, arrivals).mean():.2f}")


if __name__ == "__main__":
    main()
