"""The errors that a person sees, raised where the cause is known and caught at the command line.

Every message is one sentence that says what is wrong, where, and what to do. The command line prints it
without a traceback and exits with the class's ``exit_status``; any other exception is a bug and keeps
its traceback.
"""


class TestbedError(Exception):
    """An error with a message for the person who runs the command."""

    __test__ = False  # the name starts with "Test": pytest must not collect it
    exit_status = 1


class SpecError(TestbedError):
    """The experiment file, or an argument of the command line, cannot be used as it is."""

    exit_status = 2


class HostError(TestbedError):
    """This host cannot do what the experiment asks for (namespaces, descriptors, disk, kernel)."""


class DataError(TestbedError):
    """A dataset is missing, incomplete or corrupt."""


class RunError(TestbedError):
    """A run is not ``completed``: a role failed, every worker was lost, it diverged, it was disturbed.

    The exit status is that of the run's end (``testbed.run_endings.STATES``).
    """

    def __init__(self, message: str, exit_status: int = 1) -> None:
        super().__init__(message)
        self.exit_status = exit_status


class InterruptedRunError(RunError):
    """A signal ended the run; the exit status is a shell's for that signal, 130 for Ctrl-C."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message, 128 + number)


class OutputError(TestbedError):
    """Standard output cannot be written.

    Attributes:
        closed: True if its reader has ended (head, less), which is no failure to complain of.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(f"the output cannot be written: {error.strerror or error}")
        self.closed = isinstance(error, BrokenPipeError)


class EntryError(TestbedError):
    """A device of a running run cannot be entered, or the command not be carried out there.

    The status is that of programs that run others: 125 if the device cannot be entered.
    """

    def __init__(self, message: str, exit_status: int = 125) -> None:
        super().__init__(message)
        self.exit_status = exit_status
