"""The worker that asks: pull, compute, compress, wait, push (paper 001, Algorithm 1).

What it computes before it pushes or asks is said by the legs of its half: after a leg that does not ask
it goes on at its own copy of the parameters.

Parameters are received straight into the model's own memory (unless pulls bring only what changed),
and a dense float32 gradient is sent from where it was computed. A push and the next pull are sent in
one call. While it waits, the worker listens, so that the end of training does not have to wait for it.
The worker that is sent every version unasked is in ``testbed.roles.worker.listener``.
"""

from testbed.roles.transport.sending import send_available
from testbed.roles.worker.pauses import Pause
from testbed.roles.worker.session import Session
from testbed.wire.frames import Kind, header


def ask(session: Session, pause: Pause, *, asked: bool) -> None:
    """Run a worker that asks until the server says STOP.

    Args:
        asked: True if it has asked already, over another connection.
    """
    connection, answers, computation = session.connection, session.answers, session.computation
    pull = header(Kind.PULL)
    answers.listen()
    if not asked:
        connection.sendall(pull)
    computation.ask()
    awaits, version = True, 0
    while True:
        if awaits:
            came = answers.wait()
            if came is None:
                return
            version = came
        session.faults.answered(version)
        leg = computation.leg
        pause.begin(leg.gradients)
        session.line.training()
        with session.learners.take() as learner:
            if awaits:
                answers.take(learner.parameters)
            gradient, loss = computation.gradient(learner, computation.draw(answers.dealt), version)
            pieces = session.push(version, gradient, loss) if leg.pushes else []
            pieces = [*pieces, pull] if leg.asks else pieces
            # The gradient is valid only during the turn; what is not sent by then is copied.
            at_once = pause.over()
            rest = send_available(connection, pieces) if at_once else b"".join(pieces)
        session.line.waiting()
        if not at_once and not pause.wait(connection):
            return
        answers.listen()
        connection.sendall(rest)
        if leg.pushes:
            session.faults.pushed()
        awaits = leg.asks
