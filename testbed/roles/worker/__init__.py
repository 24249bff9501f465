"""The worker: it asks for parameters or is sent them, computes, waits and pushes."""
